"""The queues and streams that the last recovery of a data directory did not recover, and why.

`writer.refused` has this for processes that open such a name. It is a JSON object: for "queue" and
"stream" an object of names with ``{"text": …, "damage": [FILE, OFFSET, WHAT]}``, or null if nothing
was ever finished, so that the name is free. Each recovery rewrites it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from shmq.errors import DamagedFile, FileError, ShmqError
from shmq.storage.disk import Disk
from shmq.storage.inventory import Kind
from shmq.storage.write_fully import write_whole

__all__ = ["refusal_of", "write_refusals"]

_NAME: Final = "writer.refused"
_UNFINISHED: Final = ".writer.refused.tmp"


def write_refusals(disk: Disk, found: Mapping[Kind, Mapping[str, ShmqError | None]]) -> None:
    """Write the file; remove it if nothing was refused. Raises OSError."""
    told = {
        kind: {name: None if error is None else _packed(error) for name, error in names.items()}
        for kind, names in found.items()
    }
    with contextlib.suppress(FileNotFoundError):
        disk.unlink(_UNFINISHED)
    if not any(told.values()):
        with contextlib.suppress(FileNotFoundError):
            disk.unlink(_NAME)
        return
    file = disk.create(_UNFINISHED)
    try:
        write_whole(disk, file, [json.dumps(told).encode()], 0)
    finally:
        disk.close(file)
    disk.rename(_UNFINISHED, _NAME)


def _packed(error: ShmqError) -> dict[str, Any]:
    damage = None
    if isinstance(error, DamagedFile):
        damage = [error.path, error.offset, error.what]
    return {"text": str(error), "damage": damage}


def refusal_of(directory: Path, kind: Kind, name: str) -> FileError | None:
    """Why a name with files there is not in memory, and what to do; None: the name is free."""
    option = "-q" if kind == "queue" else "--stream"
    delete = f"`shmq delete --kind {kind} {name}` gives its files up"
    refused = f"so {kind} {name!r} is not brought back, and no new one takes its place"
    told = _read(directory).get(kind, {})
    if name not in told:
        return FileError(
            f"{kind} {name!r} is on disk in {directory}, and not in memory, and the log of its "
            f"writer says why: `shmq restore {option} {name}` brings it back, {delete}"
        )
    match told[name]:
        case None:
            return None
        case {"damage": [str(path), int(offset), str(what)]}:
            salvage = f"`shmq restore --salvage {option} {name}` makes it of what is intact"
            return DamagedFile(path, offset, f"{what}; {refused}: {salvage}, {delete}")
        case {"text": str(text)}:
            again = f"`shmq restore {option} {name}` tries it again"
            return FileError(f"{text}; {refused}: {again}, {delete}")
    return None


def _read(directory: Path) -> dict[str, Any]:
    try:
        told = json.loads((directory / _NAME).read_text())
        return {kind: dict(names) for kind, names in told.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
