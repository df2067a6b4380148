"""Reads a queue's files while their writer may continue.

The writer appends to the last segment and truncates it when it closes it, and a new snapshot
replaces the old one and the segments before it. So an open file is copied, a closed one is
mapped, and if a file has disappeared, the files are listed again.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from shmq.errors import FileError
from shmq.storage.disk import Disk
from shmq.storage.file_header import HEADER_BYTES, read_header, read_record
from shmq.storage.file_set import lineage_of
from shmq.storage.paths import Files, catalog, segment_name
from shmq.storage.queue_files import ALL_NUMBERS, QueueFiles

__all__ = ["Part", "ReadOnly", "open_parts", "open_queue"]

#: How many times a queue's files are listed, if snapshots replace them meanwhile.
_TRIES: Final = 20
_FOOTER_BYTES: Final = 32
_MARK_BYTES: Final = 72
_PIECE: Final = 8 << 20


class ReadOnly(Disk):
    """A directory whose files are only read, so they need not be writable."""

    def open(self, name: str) -> int:
        """Open the file of that name for reading. Raises FileNotFoundError."""
        return os.open(self.path(name), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)


@dataclass(frozen=True, slots=True)
class Part:
    """A file of a chain, and how many of its bytes counted when it was read."""

    name: str
    size: int
    #: Its first bytes, which distinguish it from another file of the same name.
    mark: bytes


def open_queue(
    disk: Disk, queue: str, *, salvage: bool = False, numbers: tuple[int, int] = ALL_NUMBERS
) -> tuple[QueueFiles, list[Part]]:
    """Open the files of the queue as they are now, and list them: see :class:`QueueFiles`.

    Raises :class:`~shmq.FileError` if there are none, or they are not of one queue,
    :class:`~shmq.DamagedFile` for damage, and OSError.
    """
    for tries in range(_TRIES):
        files = catalog(disk.names()).get(queue)
        if files is None or not (files.snapshot or files.segments):
            raise FileError(f"there are no files of queue {queue!r} in {disk.directory}")
        try:
            chain, parts = _open(disk, files, salvage, numbers)
        except (FileError, FileNotFoundError):
            if tries == _TRIES - 1 or catalog(disk.names()).get(queue) == files:
                raise
            continue
        # A snapshot alone is not enough if its first segment was created meanwhile.
        if len(parts) > 1 or catalog(disk.names()).get(queue) == files:
            return chain, parts
        chain.close()
    raise FileError(
        f"the files of queue {queue!r} in {disk.directory} were replaced {_TRIES} times while "
        f"they were opened: read a backup of it (shmq backup)"
    )


def open_parts(
    disk: Disk, parts: Sequence[Part], *, salvage: bool = False,
    numbers: tuple[int, int] = ALL_NUMBERS,
) -> QueueFiles | None:  # fmt: skip
    """Open these files as they were when they were listed; None: one of them is gone."""
    opened: list[tuple[str, Any]] = []
    for part in parts:
        try:
            data, found = _read(disk, part.name)
        except FileNotFoundError:
            return None
        if found.mark != part.mark or found.size < part.size:
            return None
        opened.append((str(disk.path(part.name)), memoryview(data)[: part.size]))
    return QueueFiles(opened, salvage, numbers=numbers)


def _open(
    disk: Disk, files: Files, salvage: bool, numbers: tuple[int, int]
) -> tuple[QueueFiles, list[Part]]:
    names = lineage_of(disk, files)
    if not names:
        raise FileError(
            f"nothing of queue {files.queue!r} in {disk.directory} was ever written to its end"
        )
    opened, parts = [], []
    for name in names:
        data, part = _read(disk, name)
        opened.append((str(disk.path(name)), data))
        parts.append(part)
    chain = QueueFiles(opened, salvage, numbers=numbers)
    if names[-1] == segment_name(files.queue, chain.segment):
        parts[-1] = replace(parts[-1], size=chain.end)
    return chain, parts


def _read(disk: Disk, name: str) -> tuple[Any, Part]:
    """The bytes of the file, which do not change any more."""
    file = disk.open(name)
    try:
        size = disk.size(file)
        begin = disk.read(file, HEADER_BYTES, 0)
        mark = begin[:_MARK_BYTES]
        if _is_closed(disk, file, name, begin, size):
            return mmap.mmap(file, size, access=mmap.ACCESS_READ), Part(name, size, mark)
        data = b"".join(_pieces(disk, file, size))
        return data, Part(name, len(data), mark)
    finally:
        disk.close(file)


def _is_closed(disk: Disk, file: int, name: str, begin: bytes, size: int) -> bool:
    """Whether it ends in a footer: then it is not written or truncated any more."""
    if size < _FOOTER_BYTES:
        return False
    try:
        header, _ = read_header(begin, name)
    except FileError:
        return False
    end = disk.read(file, _FOOTER_BYTES, size - _FOOTER_BYTES)
    return read_record(end, 0, header.salt)[:2] == ("ok", "footer")


def _pieces(disk: Disk, file: int, size: int) -> Iterator[bytes]:
    at = 0
    while at < size and (piece := disk.read(file, min(_PIECE, size - at), at)):
        yield piece
        at += len(piece)
