"""Selects the files of a queue that count: its snapshot, and the segments that follow it."""

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

#: Parts of a header: magic, version, size, the segment's number, the length of the names.
_SIGNS: Final = struct.Struct("<4sH2xI20xQ24xI")
_MAGIC: Final = b"DMSQ"
#: The bytes of a header without the names, before rounding up.
_BESIDE_NAMES: Final = 76


def lineage_of(disk: Disk, files: Files) -> list[str]:
    """The names of the files to read a queue from; none: nothing was finished.

    Segments that the snapshot covers are left out: a dead writer was about to remove them. The
    last segment is left out, too, if its header was never synced, since then it has no records.
    Raises DamagedFile for a file that is not what its name says; whether the files are intact is
    for their reader to check.
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
                continue  # old bytes of a deleted file in place of the header
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
    """Its header; None if that is damaged, which the reader of the file reports."""
    try:
        return read_header(_read(disk, name)[0], name)[0]
    except FileError:
        return None


def _never_begun(disk: Disk, name: str, number: int) -> bool:
    """Whether the segment has no intact header because the header was never synced.

    A power cut leaves some sectors of a header, with zeros or old bytes in place of the others,
    and nothing behind it. A file with most signs of a header, and bytes behind it, was damaged
    later.
    """
    raw, length = _read(disk, name)
    if len(raw) < _SIGNS.size:
        return True
    magic, version, size, told, names = _SIGNS.unpack_from(raw)
    if magic == _MAGIC and version > VERSION:
        return False
    signs = (magic == _MAGIC, told == number, size == -(-(_BESIDE_NAMES + names) // 8) * 8)
    return sum(signs) < 2 or bool(signs[2] and length <= size)
