"""Which files of a queue count: its snapshot, and the segments that go on from it."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from shmq.errors import DamagedFile, IncompatibleFile
from shmq.persistence.catalog import Files, segment_name, snapshot_name
from shmq.persistence.disk import Disk
from shmq.persistence.format import HEADER_BYTES, VERSION, FileHeader, read_header

__all__ = ["Lineage", "lineage_of"]

#: Of a header: the magic, the version, its size, the segment's number, the length of the names.
_SIGNS: Final = struct.Struct("<4sH2xI20xQ24xI")
_MAGIC: Final = b"DMSQ"
#: What a header has beside the names, in bytes, before it is rounded up.
_BESIDE_NAMES: Final = 76


@dataclass(frozen=True, slots=True)
class Lineage:
    """The files of a queue in the order in which they are read.

    ``useless`` are those that a dead writer was about to remove, or never began to use.
    """

    names: list[str]
    hash_key: int
    useless: list[str]


def lineage_of(disk: Disk, files: Files) -> Lineage | None:
    """The files of the queue that count; None if nothing was ever finished.

    Only headers are read. Raises DamagedFile where a header is damaged or a file is
    missing, and IncompatibleFile. The last segment may never have got its header: nothing
    is written behind one that is not on disk.
    """
    headers: dict[int, FileHeader] = {}
    useless: list[str] = []
    first = 1
    if files.snapshot:
        snapshot = _header(disk, snapshot_name(files.queue))
        first = snapshot.number
    for number in files.segments:
        name = segment_name(files.queue, number)
        last = number == files.segments[-1]
        if number < first or (last and _never_begun(disk, name, number)):
            useless.append(name)
        else:
            headers[number] = _header(disk, name)
    _refuse_gaps(disk, files, first, [*headers])
    names = [segment_name(files.queue, number) for number in headers]
    every = [*headers.values()]
    if files.snapshot:
        names.insert(0, snapshot_name(files.queue))
        every.insert(0, snapshot)
    return Lineage(names, every[-1].hash_key, useless) if every else None


def _read(disk: Disk, name: str) -> tuple[bytes, int]:
    """The beginning of the file, and its length."""
    file = disk.open(name)
    try:
        return disk.read(file, HEADER_BYTES, 0), disk.size(file)
    finally:
        disk.close(file)


def _header(disk: Disk, name: str) -> FileHeader:
    return read_header(_read(disk, name)[0], str(disk.path(name)))[0]


def _never_begun(disk: Disk, name: str, number: int) -> bool:
    """Whether the segment has no whole header because it never had one.

    A crash leaves of a header some of its sectors, and in place of the others zeros or what
    was there before; and nothing behind it. What has most signs of a header and more than a
    header is one that was damaged.
    """
    raw, length = _read(disk, name)
    try:
        read_header(raw, name)
    except (DamagedFile, IncompatibleFile):
        if len(raw) < _SIGNS.size:
            return True
        magic, version, size, told, names = _SIGNS.unpack_from(raw)
        if magic == _MAGIC and version > VERSION:
            return False
        signs = (magic == _MAGIC, told == number, size == -(-(_BESIDE_NAMES + names) // 8) * 8)
        return sum(signs) < 2 or (signs[2] and length <= size)
    return False


def _refuse_gaps(disk: Disk, files: Files, first: int, numbers: list[int]) -> None:
    for wanted, number in enumerate(numbers, first):
        if number != wanted:
            needed = segment_name(files.queue, number)
            raise DamagedFile(
                str(disk.path(segment_name(files.queue, wanted))),
                0,
                f"it is missing, and {needed} goes on from it",
            )
