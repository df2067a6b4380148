"""Which queues and streams have files in a data directory, from the names of the files alone."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from shmq.persistence import erasing
from shmq.persistence.catalog import catalog
from shmq.persistence.disk import Disk
from shmq.persistence.stream_erasing import is_carded
from shmq.persistence.stream_places import STREAMS, streams_among

__all__ = ["Kind", "stored_names"]

Kind = Literal["queue", "stream"]


def stored_names(directory: Path, kind: Kind) -> set[str]:
    """The names whose files a writer would bring back; none if there is no directory.

    What is about to be erased is left out. Raises OSError.
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
        and (erasing.note(name) not in names or erasing.is_left(disk, files))
    }
