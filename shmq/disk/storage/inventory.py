"""What is in a data directory: its queues and streams, its writer, and what was not recovered.

`writer.refused` tells processes that open a name why the last recovery did not recover it. It is a
JSON object: for "queue" and "stream" an object of names with
``{"text": …, "damage": [FILE, OFFSET, WHAT]}``, or null if nothing was ever finished, so that the
name is free. Each recovery rewrites it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, get_args

from shmq.disk.storage.disk import Disk, remove_file, replace_file
from shmq.disk.storage.erase import erasure_note, is_carded, is_left
from shmq.disk.storage.file_lock import is_locked
from shmq.disk.storage.history import HISTORY
from shmq.disk.storage.paths import (
    EXCHANGES,
    SCHEMAS,
    SOCKET,
    STREAMS,
    TABLES,
    UNFINISHED_SOCKET,
    catalog,
    is_stream_file,
    stream_directory,
    streams_among,
)
from shmq.disk.storage.transaction_file import TRANSACTIONS
from shmq.errors import DamagedFile, FileError, ShmqError

Kind = Literal["queue", "stream"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

#: The name of the file that the directory's writer holds locked with flock(2).
LOCK: Final = "writer.lock"
_REFUSALS: Final = "writer.refused"
_UNFINISHED_REFUSALS: Final = ".writer.refused.tmp"
#: The writer's own files.
OWN: Final = frozenset(
    (LOCK, SOCKET, UNFINISHED_SOCKET, "writer.log", "writer.log.old", _REFUSALS, HISTORY)
)
#: The files of the namespace that belong to no queue or stream.
_OTHERS: Final = (EXCHANGES, SCHEMAS, TRANSACTIONS)
#: The ending of a table's file.
_TABLE: Final = re.compile(r"\.[0-9a-f]{16}\.sqlite\Z", re.ASCII)
#: The endings of files that were set aside.
_ASIDE: Final = re.compile(r"\.(dmsq\.[0-9a-f]{16}|damaged|aside)(\.\d+)?\Z", re.ASCII)


def stored_names(directory: Path, kind: Kind) -> set[str]:
    """The names that a writer would recover; none if no directory exists.

    Those that are about to be erased are left out. Raises OSError.
    """
    disk = Disk(directory)
    if kind == "stream":
        found = streams_among(disk.under(STREAMS).names())
        return {name for name, identity in found if is_carded(disk, name, identity)}
    names = disk.names()
    return {
        name
        for name, files in catalog(names).items()
        if (files.snapshot or files.segments)
        and (erasure_note(name) not in names or is_left(disk, files))
    }


def others(disk: Disk) -> list[str]:
    """The files of the namespace that belong to no queue or stream, sorted."""
    return sorted(name for name in disk.names() if name in _OTHERS and disk.path(name).is_file())


def foreign_files(disk: Disk) -> list[str]:
    """The files that no process of shmq writes there, sorted; hidden ones are left out.

    Those among the files of streams are included. Raises OSError.
    """
    names = disk.names()
    known = {file for files in catalog(names).values() for file in files.names()}
    known.update(OWN, _OTHERS)
    found = [name for name in names if name not in known and _ASIDE.search(name) is None]
    for name, identity in streams_among(disk.under(STREAMS).names()):
        stream = stream_directory(name, identity)
        paths = files_below(disk.under(stream))
        found += [f"{stream}/{path}" for path in paths if not is_stream_file(path)]
    return sorted(
        path
        for path in found
        if not Path(path).name.startswith(".") and not disk.path(path).is_dir()
    )


def files_below(stream: Disk) -> list[str]:
    """The paths in the directory of a stream and in those of its partitions. Raises OSError."""
    found = []
    for name in stream.names():
        is_partition = name.isascii() and name.isdecimal() and stream.path(name).is_dir()
        below = stream.under(name).names() if is_partition else []
        found += [name, *(f"{name}/{file}" for file in below)]
    return found


def is_data_directory(disk: Disk) -> bool:
    """Whether it is empty, or has any file of shmq. Raises OSError."""
    names = disk.names()
    return bool(
        not names
        or catalog(names)
        or OWN.intersection(names)
        or others(disk)
        or streams_among(disk.under(STREAMS).names())
        or any(_ASIDE.search(name) for name in names)
        or any(_TABLE.search(name) for name in disk.under(TABLES).names())
    )


def write_refusals(disk: Disk, found: Mapping[Kind, Mapping[str, ShmqError | None]]) -> None:
    """Write the file; remove it if nothing was refused. Raises OSError."""
    refusals = {
        kind: {name: None if error is None else _pack(error) for name, error in names.items()}
        for kind, names in found.items()
    }
    if any(refusals.values()):
        replace_file(disk, _REFUSALS, _UNFINISHED_REFUSALS, [json.dumps(refusals).encode()])
    else:
        remove_file(disk, _REFUSALS)


def _pack(error: ShmqError) -> dict[str, Any]:
    damage = None
    if isinstance(error, DamagedFile):
        damage = [error.path, error.offset, error.what]
    return {"text": str(error), "damage": damage}


def refusal_of(directory: Path, kind: Kind, name: str) -> FileError | None:
    """Why a name with files there is not in memory, and what to do; None: the name is free."""
    option = "-q" if kind == "queue" else "--stream"
    delete = f"`shmq delete --kind {kind} {name}` deletes its files"
    refused = f"so {kind} {name!r} is not recovered, and no new one gets its name"
    refusals = _read_refusals(directory).get(kind, {})
    if name not in refusals:
        return FileError(
            f"{kind} {name!r} is on disk in {directory}, but not in memory; see the log of its "
            f"writer: `shmq restore {option} {name}` restores it, {delete}"
        )
    match refusals[name]:
        case None:
            return None
        case {"damage": [str(path), int(offset), str(what)]}:
            salvage = f"`shmq restore --salvage {option} {name}` restores the intact parts"
            return DamagedFile(path, offset, f"{what}; {refused}: {salvage}, {delete}")
        case {"text": str(text)}:
            again = f"`shmq restore {option} {name}` tries again"
            return FileError(f"{text}; {refused}: {again}, {delete}")
    return None


def unrecovered(
    directory: Path, is_known: Callable[[Kind, str], bool]
) -> Iterator[tuple[Kind, str, FileError]]:
    """The names with files there that the last recovery refused, each with its `refusal_of`.

    Those that ``is_known`` by now are left out. Raises OSError.
    """
    refusals = _read_refusals(directory)
    for kind in KINDS:
        for name in sorted(refusals.get(kind, {}).keys() & stored_names(directory, kind)):
            error = None if is_known(kind, name) else refusal_of(directory, kind, name)
            if error is not None:
                yield kind, name, error


def _read_refusals(directory: Path) -> dict[str, Any]:
    try:
        refusals = json.loads((directory / _REFUSALS).read_text())
        return {kind: dict(names) for kind, names in refusals.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def is_written(directory: Path) -> bool:
    """Whether a process writes there now."""
    return is_locked(directory / LOCK)


def holds_data(directory: Path) -> bool:
    """Whether it has files of a queue, a stream, a table or definitions. Raises OSError."""
    disk = Disk(directory)
    streams, tables = disk.under(STREAMS), disk.under(TABLES)
    return bool(
        catalog(disk.names()) or streams_among(streams.names()) or tables.names() or others(disk)
    )


def writer_of(directory: Path) -> int:
    """The process id that the directory's writer has noted; 0: none can be read."""
    try:
        text = (directory / LOCK).read_text("ascii")
    except (OSError, ValueError):
        return 0
    found = re.search(r"^pid (\d{1,18})$", text, re.MULTILINE | re.ASCII)
    return int(found[1]) if found else 0
