"""Lists the queues and streams with files in a data directory, from the files' names."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Final, Literal

from shmq.storage import queue_erase
from shmq.storage.disk import Disk
from shmq.storage.paths import catalog
from shmq.storage.stream_erase import erase_stream, is_carded
from shmq.storage.stream_paths import STREAMS, streams_among

__all__ = ["Kind", "erase_stored", "others", "stored_names"]

Kind = Literal["queue", "stream"]

#: The writer's own files.
_OWN: Final = frozenset(
    ("writer.lock", "writer.sock", "writer.log", "writer.log.old", "writer.refused")
)
#: The endings of files that were set aside.
_ASIDE: Final = re.compile(r"\.(dmsq\.[0-9a-f]{16}|damaged|aside)(\.\d+)?\Z", re.ASCII)


def stored_names(directory: Path, kind: Kind) -> set[str]:
    """The names that a writer would recover; none if there is no directory.

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
        and (queue_erase.note(name) not in names or queue_erase.is_left(disk, files))
    }


def others(disk: Disk) -> list[str]:
    """The files that belong to no queue or stream, and are not the writer's own, sorted."""
    of_queues = {file for files in catalog(disk.names()).values() for file in files.names()}
    return [
        name
        for name in disk.names()
        if name not in of_queues
        and name not in _OWN
        and not name.startswith(".")
        and _ASIDE.search(name) is None
        and disk.path(name).is_file()
    ]


def erase_stored(directory: Path, kind: Kind, name: str) -> None:
    """Remove the files of that name, which is not in memory, durably. Raises OSError.

    Needs the registry lock. Files with damaged headers are removed, too.
    """
    disk = Disk(directory)
    if kind == "stream":
        for stream, identity in streams_among(disk.under(STREAMS).names()):
            if stream == name:
                erase_stream(disk, name, identity)
        return
    queue_erase.erase(disk, name)
    left = catalog(disk.names()).get(name)
    for file in left.names() if left is not None else ():
        with contextlib.suppress(FileNotFoundError):
            disk.unlink(file)
    disk.sync_directory()
