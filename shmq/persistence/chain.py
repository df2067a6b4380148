"""Which files of a queue count: its snapshot, and the segments that go on from it."""

from __future__ import annotations

from dataclasses import dataclass

from shmq.errors import DamagedFile
from shmq.persistence.catalog import Files, segment_name, snapshot_name
from shmq.persistence.disk import Disk
from shmq.persistence.frames import Header, read_header

__all__ = ["Chain", "chain_of"]


@dataclass(frozen=True, slots=True)
class Chain:
    """The files of a queue in the order in which they are read.

    ``useless`` are those that a dead writer was about to remove, or never began to use.
    """

    names: list[str]
    hash_key: int
    useless: list[str]


def chain_of(disk: Disk, files: Files) -> Chain | None:
    """The chain of the queue's files; None if nothing was ever finished.

    Raises DamagedFile for a file without a whole header, but for the last one, whose header
    may never have been written; and where one is missing. Files are not read beyond their
    headers.
    """
    headers: dict[int, Header] = {}
    useless: list[str] = []
    first, snapshot = 1, None
    if files.snapshot:
        snapshot = read_header(disk, snapshot_name(files.queue))
        first = snapshot.number
    for number in files.segments:
        name = segment_name(files.queue, number)
        if number < first:
            useless.append(name)
            continue
        try:
            headers[number] = read_header(disk, name)
        except DamagedFile:
            if number != files.segments[-1]:
                raise
            useless.append(name)
    _refuse_gaps(disk, files.queue, first, [*headers], snapshot is not None)
    every = [*([snapshot] if snapshot else []), *headers.values()]
    if not every:
        return None
    names = [segment_name(files.queue, number) for number in headers]
    if snapshot is not None:
        names.insert(0, snapshot_name(files.queue))
    return Chain(names, every[-1].hash_key, useless)


def _refuse_gaps(disk: Disk, queue: str, first: int, numbers: list[int], snapshot: bool) -> None:
    for wanted, number in enumerate(numbers, first):
        if number != wanted:
            missing = segment_name(queue, wanted)
            what = "what comes before it" if wanted == first and not snapshot else "it"
            raise DamagedFile(
                f"{disk.path(missing)} is missing: {segment_name(queue, number)} is there, and "
                f"needs {what}"
            )
