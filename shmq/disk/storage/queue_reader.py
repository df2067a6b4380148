"""Reads a queue's files while their writer may continue.

The writer appends to the last segment and truncates it when it closes it, and a new snapshot
replaces the old one and the segments before it. So an open file is copied, a closed one is
mapped, and if a file has disappeared, the files are listed again.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from shmq.disk.storage.disk import LASTING, Disk, load_file, opened, read_pieces, unreadable
from shmq.disk.storage.file_header import (
    HEADER_BYTES,
    JOURNAL,
    SNAPSHOT,
    VERSION,
    FileHeader,
    header_of,
    read_header,
)
from shmq.disk.storage.paths import Files, catalog, segment_name, snapshot_name
from shmq.disk.storage.queue_files import ALL_NUMBERS, QueueFiles
from shmq.errors import DamagedFile, FileError
from shmq.native._core import read_record

#: How many times a queue's files are listed, if snapshots replace them in the meantime.
_TRIES: Final = 20
_FOOTER_BYTES: Final = 32
_MARK_BYTES: Final = 72


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
        # A snapshot alone is not enough if its first segment was created in the meantime.
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


def load_queue(disk: Disk, names: Sequence[str]) -> QueueFiles:
    """The files of these names, which nobody writes: see :class:`QueueFiles`.

    Raises :class:`~shmq.FileError` also for one that the disk cannot read, and OSError.
    """
    loaded = []
    for name in names:
        try:
            loaded.append((str(disk.path(name)), load_file(disk, name)))
        except OSError as error:
            if error.errno not in LASTING:
                raise
            raise unreadable(error, disk.path(name)) from error
    return QueueFiles(loaded)


def _open(
    disk: Disk, files: Files, salvage: bool, numbers: tuple[int, int]
) -> tuple[QueueFiles, list[Part]]:
    names = lineage_of(disk, files)
    if not names:
        raise FileError(
            f"none of the files of queue {files.queue!r} in {disk.directory} was ever completed"
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
    with opened(disk, name) as file:
        size = disk.size(file)
        begin = disk.read(file, HEADER_BYTES, 0)
        mark = begin[:_MARK_BYTES]
        if _is_closed(disk, file, name, begin, size):
            return load_file(disk, name), Part(name, size, mark)
        data = b"".join(read_pieces(disk, file, size))
        return data, Part(name, len(data), mark)


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
        header = _find_header(disk, names[0])
        if header is not None:
            _check(disk, names[0], header, (SNAPSHOT, files.queue))
            first, key = header.number, header.hash_key
    for number in files.segments:
        name = segment_name(files.queue, number)
        if number < first:
            continue
        header = _find_header(disk, name)
        own = (JOURNAL, files.queue, number)
        if number == files.segments[-1]:
            if header is None and _was_never_started(disk, name, number):
                continue
            if header is not None and (
                _identify(header) != own or key not in {None, header.hash_key}
            ):
                continue  # old bytes of a deleted file in place of the header
        if header is not None:
            _check(disk, name, header, own)
            key = header.hash_key
        names.append(name)
    return names


def _identify(header: FileHeader) -> tuple[int, str, int]:
    return header.kind, header.name, header.number


def _check(disk: Disk, name: str, header: FileHeader, own: tuple[object, ...]) -> None:
    if _identify(header)[: len(own)] != own:
        kind = "a snapshot" if header.kind == SNAPSHOT else f"segment {header.number}"
        raise DamagedFile(
            str(disk.path(name)), 0, f"by its header it is {kind} of queue {header.name!r}"
        )


def _find_header(disk: Disk, name: str) -> FileHeader | None:
    """Its header; None if that is damaged, which the reader of the file reports."""
    try:
        return header_of(disk, name)[0]
    except FileError:
        return None


def _was_never_started(disk: Disk, name: str, number: int) -> bool:
    """Whether the segment has no intact header because the header was never synced.

    A power cut leaves some sectors of a header, with zeros or old bytes in place of the others,
    and nothing after it. A file with most signs of a header, and bytes after it, was damaged
    later.
    """
    with opened(disk, name) as file:
        raw, length = disk.read(file, _SIGNS.size, 0), disk.size(file)
    if len(raw) < _SIGNS.size:
        return True
    magic, version, size, stated, names = _SIGNS.unpack_from(raw)
    if magic == _MAGIC and version > VERSION:
        return False
    signs = (magic == _MAGIC, stated == number, size == -(-(_BESIDE_NAMES + names) // 8) * 8)
    return sum(signs) < 2 or bool(signs[2] and length <= size)
