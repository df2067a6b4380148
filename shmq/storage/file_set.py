"""Which files of a queue count: its snapshot, and the segments that go on from it."""

from __future__ import annotations

import struct
from typing import Final

from shmq.errors import DamagedFile, FileError
from shmq.storage.disk import Disk
from shmq.storage.file_header import (
    HEADER_BYTES,
    JOURNAL,
    SNAPSHOT,
    VERSION,
    FileHeader,
    read_header,
)
from shmq.storage.paths import Files, segment_name, snapshot_name

__all__ = ["lineage_of"]

#: Of a header: the magic, the version, its size, the segment's number, the length of the names.
_SIGNS: Final = struct.Struct("<4sH2xI20xQ24xI")
_MAGIC: Final = b"DMSQ"
#: What a header has beside the names, in bytes, before it is rounded up.
_BESIDE_NAMES: Final = 76


def lineage_of(disk: Disk, files: Files) -> list[str]:
    """The names of the files that a queue is to be read from; none: nothing was finished.

    Segments that the snapshot covers are left out, which a dead writer was about to remove;
    and so is the last one if it never got its header, behind which nothing is written
    before it is on disk. Raises DamagedFile for a file that is not what its name says;
    whether they are whole is for who reads them.
    """
    names, first, key = [], 0, None
    if files.snapshot:
        names.append(snapshot_name(files.queue))
        header = _header_if_any(disk, names[0])
        if header is not None:
            _check(disk, names[0], header, (SNAPSHOT, files.queue))
            first, key = header.number, header.hash_key
    for number in files.segments:
        name = segment_name(files.queue, number)
        if number < first:
            continue
        header = _header_if_any(disk, name)
        own = (JOURNAL, files.queue, number)
        if number == files.segments[-1]:
            if header is None and _never_begun(disk, name, number):
                continue
            if header is not None and (_said(header) != own or key not in {None, header.hash_key}):
                continue  # what a deleted file left where the header was to be
        if header is not None:
            _check(disk, name, header, own)
            key = header.hash_key
        names.append(name)
    return names


def _said(header: FileHeader) -> tuple[int, str, int]:
    return header.kind, header.name, header.number


def _check(disk: Disk, name: str, header: FileHeader, own: tuple[object, ...]) -> None:
    if _said(header)[: len(own)] != own:
        kind = "a snapshot" if header.kind == SNAPSHOT else f"segment {header.number}"
        raise DamagedFile(
            str(disk.path(name)), 0, f"by its header it is {kind} of queue {header.name!r}"
        )


def _read(disk: Disk, name: str) -> tuple[bytes, int]:
    """The beginning of the file, and its length."""
    file = disk.open(name)
    try:
        return disk.read(file, HEADER_BYTES, 0), disk.size(file)
    finally:
        disk.close(file)


def _header_if_any(disk: Disk, name: str) -> FileHeader | None:
    """Its header; None if it has no whole one: whoever reads it says what is wrong."""
    try:
        return read_header(_read(disk, name)[0], name)[0]
    except FileError:
        return None


def _never_begun(disk: Disk, name: str, number: int) -> bool:
    """Whether the segment has no whole header because it never had one.

    A crash leaves of a header some of its sectors, and in place of the others zeros or what
    was there before; and nothing behind it. What has most signs of a header and more than a
    header is one that was damaged.
    """
    raw, length = _read(disk, name)
    if len(raw) < _SIGNS.size:
        return True
    magic, version, size, told, names = _SIGNS.unpack_from(raw)
    if magic == _MAGIC and version > VERSION:
        return False
    signs = (magic == _MAGIC, told == number, size == -(-(_BESIDE_NAMES + names) // 8) * 8)
    return sum(signs) < 2 or bool(signs[2] and length <= size)
