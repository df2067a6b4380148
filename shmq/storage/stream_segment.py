"""One segment of a stream's partition, to read from while its writer may go on.

The file is mapped, and what is read is a piece of the mapping: nothing is copied. Of a file
that is not closed only that may be looked at which its writer has published, so every
question says up to which offset.
"""

from __future__ import annotations

import bisect
import mmap
import threading
from dataclasses import dataclass
from typing import Final, NamedTuple

from shmq.errors import DamagedFile
from shmq.native import _file
from shmq.storage.disk import Disk
from shmq.storage.file_header import (
    BATCH_BYTES,
    HEADER_BYTES,
    INDEXED,
    STREAM,
    FileHeader,
    read_header,
    read_record,
)
from shmq.storage.stream_paths import segment_file

__all__ = [
    "EVERYTHING",
    "LEAST_TIME",
    "Block",
    "Checked",
    "FilePosition",
    "StreamSegment",
    "read_stream_header",
    "salts_of",
]

#: Behind every offset: all that there is may be looked at.
EVERYTHING: Final = (1 << 64) - 1
_FOOTER_BYTES: Final = 32
_PIECE: Final = 8 << 20
_SIGN: Final = 1 << 63
#: Before every time, in ns.
LEAST_TIME: Final = -_SIGN


@dataclass(frozen=True, slots=True)
class Block:
    """Records as they lie in a file, BATCH records between them."""

    data: memoryview
    #: The offset of the first entry, and the one behind the last.
    first: int
    next: int
    #: Whether the file is closed: of one that grows each look may make another mapping, with a
    #: descriptor of its own, so what is of such a file should not be kept.
    closed: bool


@dataclass(frozen=True, slots=True)
class FilePosition:
    """Where an entry stands: its byte in the file, its offset, its time in ns."""

    at: int
    offset: int
    time: int


class DamagedRange(NamedTuple):
    """Bytes of a file that are not as they were written."""

    #: Where in the file, and the first offset that is missing for it.
    at: int
    first: int
    #: The next entry that can be read; None: the rest of the file cannot.
    behind: FilePosition | None


class Checked(NamedTuple):
    """What a file holds, as far as its commits are whole."""

    #: "end", or "torn" for a commit at the end that was never finished.
    how: str
    #: Where in the file the last whole commit ends, and the offset behind it.
    end: int
    offset: int
    #: The last record's time, in ns.
    time: int
    records: int
    commits: int
    last_commit: int
    damage: int
    #: Whether it ends as a closed file does.
    closed: bool


def salts_of(header: FileHeader) -> tuple[int, int]:
    """What the records of the file are sealed with: its own salt, and the stream's."""
    return header.salt, header.hash_key & 0xFFFFFFFF


def read_stream_header(disk: Disk, base: int) -> tuple[FileHeader, int]:
    """The header of the segment that begins with ``base``, and its bytes.

    Raises :class:`~shmq.FileError` and OSError.
    """
    name = segment_file(base)
    file = disk.open(name)
    try:
        path = str(disk.path(name))
        header, size = read_header(disk.read(file, HEADER_BYTES, 0), path, (STREAM,))
    finally:
        disk.close(file)
    if header.number != base:
        raise DamagedFile(path, 32, f"the header says that it begins with {header.number}")
    return header, size


class StreamSegment:
    """The segment of the directory ``disk`` that begins with ``base``. For any thread.

    Every method raises :class:`~shmq.DamagedFile` for what is not as it was written, and
    OSError.
    """

    def __init__(self, disk: Disk, base: int) -> None:
        self.base = base
        self.path = str(disk.path(segment_file(base)))
        self.header, self.start = read_stream_header(disk, base)
        self._disk = disk
        self._salts = salts_of(self.header)
        self._lock = threading.Lock()
        self._mapped_until = 0
        self._map()
        self.closed = False
        self._index_damage: DamagedFile | None = None
        #: Of a closed file.
        self._entry_bytes: int | None = None
        self._places = [FilePosition(self.start, base, LEAST_TIME)]
        #: Where the last read ended, which is where the next one begins.
        self._read_to = self._places[0]
        self._read_index()

    @property
    def length(self) -> int:
        """How many bytes of the file are looked at."""
        return len(self._data)

    def block(self, offset: int, until: int, most_bytes: int, most: int) -> Block | None:
        """The records from the one that has ``offset`` on, and none from ``until`` on.

        As many as ``most_bytes`` and ``most`` offsets allow, but one at least, and none behind
        damage. None: there are none in this file.
        """
        at = self._seek(offset, until)
        while at is not None:
            how, end, behind, time, count = _file.walk(
                self._data, at.at, self._salts, at.offset, at.time, stop_offset=until,
                most_bytes=most_bytes, most=most,
            )  # fmt: skip
            if count:
                self._read_to = FilePosition(end, behind, time)
                return Block(memoryview(self._data)[at.at : end], at.offset, behind, self.closed)
            at = None if how == "stop" else self._entry(at, offset, until)
        return None

    def at(self, time: int, until: int) -> FilePosition | None:
        """The first entry of this time or later, before ``until``; None: there is none.

        Or the damage where that was, with the time of what comes behind it.
        """
        with self._lock:
            self._grow(until)
            near = bisect.bisect_left(self._places, time, key=lambda place: place.time)
            start = self._places[max(0, near - 1)]
        found = self._walk(start, 0, time, until)
        if isinstance(found, DamagedRange):
            return FilePosition(found.at, found.first, found.behind.time if found.behind else time)
        return found if found is not None and found.offset < until else None

    def first(self, until: int = EVERYTHING) -> FilePosition | None:
        """The first entry that can be read; None: there is none."""
        with self._lock:
            self._grow(until)
        found = self._walk(self._places[0], 0, LEAST_TIME, until)
        found = found.behind if isinstance(found, DamagedRange) else found
        return found if found is not None and found.offset < until else None

    def first_time(self, until: int = EVERYTHING) -> int | None:
        """The time of the first entry that can be read; None: there is none."""
        found = self.first(until)
        return None if found is None else found.time

    def last_time(self, until: int = EVERYTHING) -> int | None:
        """The time of the last entry before ``until`` that can be read; None: there is none."""
        with self._lock:
            self._grow(until)
            at: FilePosition | None = self._places[-1]
        found = None
        while at is not None:
            how, end, behind, time, count = _file.walk(
                self._data, at.at, self._salts, at.offset, at.time, stop_offset=until
            )
            found = time if count or time != LEAST_TIME else found
            at = None if how != "damaged" else self._behind(end, behind, time, until)
        return found

    def last(self, until: int = EVERYTHING) -> tuple[int, int | None]:
        """The offset behind the last entry before ``until``, and the time of that entry."""
        with self._lock:
            self._grow(until)
            start = self._places[-1]
        how, end, behind, time, count = _file.walk(
            self._data, start.at, self._salts, start.offset, start.time, stop_offset=until
        )
        self._refuse(how, end)
        return behind, (time if count or start.time != LEAST_TIME else None)

    def entry_bytes(self, until: int) -> int:
        """Bytes of the entries before ``until``, as far as they are whole."""
        if self._entry_bytes is not None:
            return self._entry_bytes
        with self._lock:
            self._grow(until)
        return _file.measure(self._data, self.start, self._salts, self.base, until)

    def check(self, until: int = EVERYTHING) -> Checked:
        """What is whole of all commits; a torn tail is told, and not looked at any more.

        With ``until`` nothing counts from that offset on. Raises :class:`~shmq.DamagedFile`.
        """
        # Its writer cuts off the zeros behind what it wrote: of a mapping they would be gone.
        data = self._data if self.closed else self._copy()
        found = Checked(*_file.check(data, self.start, self._salts, self.base))
        if found.how == "damaged" and found.offset < until:
            raise DamagedFile(self.path, found.damage, "a commit is not as it was written")
        if self._index_damage is not None:
            raise self._index_damage
        return found

    def produced(self, until: int, found: dict[int, tuple[int, int, int]]) -> bool:
        """Have ``found`` say which were the last records before ``until`` of each producer.

        Whether all of them could be read.
        """
        how = _file.produced(self._data, self.start, self._salts, self.base, until, found)
        return how == "end"

    def _seek(self, offset: int, until: int) -> FilePosition | None:
        """Where the entry that has ``offset`` stands."""
        with self._lock:
            self._grow(until)
            if (read_to := self._read_to).offset == offset:
                return read_to if offset < until else None
            near = bisect.bisect_right(self._places, offset, key=lambda place: place.offset)
            start = self._places[max(0, near - 1)]
        return self._entry(start, offset, until)

    def _entry(self, start: FilePosition, offset: int, until: int) -> FilePosition | None:
        """The entry that has ``offset``; None: it is not before ``until``, or not in this file."""
        # With the least time of all a walk would stop before what is damaged.
        found = self._walk(start, offset, LEAST_TIME + 1, until)
        if isinstance(found, DamagedRange):
            behind = None if found.behind is None else found.behind.offset
            raise DamagedFile(
                self.path, found.at, "no record of the stream that could come next",
                first_offset=found.first, next_offset=behind,
            )  # fmt: skip
        return found if found is not None and found.offset < until else None

    def _walk(
        self, start: FilePosition, offset: int, time: int, until: int
    ) -> FilePosition | DamagedRange | None:
        """The first entry that has ``offset``, or begins behind it, and is of ``time`` or later.

        Or the damage where it was; other damage before it is passed over.
        """
        while True:
            how, at, found, found_time, _ = _file.walk(
                self._data, start.at, self._salts, start.offset, start.time,
                stop_offset=offset, stop_time=time,
            )  # fmt: skip
            if how == "stop":
                return FilePosition(at, found, found_time)
            if found >= until:
                return None
            behind = self._behind(at, found, found_time, until)
            if behind is None:
                # Where it ends nobody knows that asks for everything.
                return (
                    None if how == "end" and until == EVERYTHING else DamagedRange(at, found, None)
                )
            if behind.offset > max(found, offset) and behind.time >= time:
                return DamagedRange(at, found, behind)
            start = behind

    def _behind(self, at: int, offset: int, time: int, until: int) -> FilePosition | None:
        """The first entry that can be read behind what is damaged there, and before ``until``."""
        found = _file.find(self._data, at + 8, self._salts, offset, time, until)
        return None if found is None else FilePosition(*found)

    def _grow(self, until: int) -> None:
        """Find the places of what was written since. Needs the lock."""
        if self.closed or until <= self._mapped_until:
            return
        self._map()
        self._mapped_until = 0 if until == EVERYTHING else until
        last = self._places[-1]
        while last.offset < until:
            how, at, offset, time, count = _file.walk(
                self._data, last.at, self._salts, last.offset, last.time, stop_offset=until,
                most_bytes=INDEXED,
            )  # fmt: skip
            if how != "stop" or not count or offset >= until:
                return
            last = FilePosition(at, offset, time)
            self._places.append(last)

    def _map(self) -> None:
        file = self._disk.open(segment_file(self.base))
        try:
            size = self._disk.size(file)
            if size < self.start:
                raise DamagedFile(self.path, size, "the file is cut off")
            self._data = mmap.mmap(file, size, access=mmap.ACCESS_READ)
        finally:
            self._disk.close(file)

    def _copy(self) -> bytes:
        file = self._disk.open(segment_file(self.base))
        try:
            pieces, at = [], 0
            while piece := self._disk.read(file, _PIECE, at):
                pieces.append(piece)
                at += len(piece)
            return b"".join(pieces)
        finally:
            self._disk.close(file)

    def _read_index(self) -> None:
        """Of a closed file: the places that it ends with."""
        size = len(self._data)
        if size < self.start + _FOOTER_BYTES:
            return
        how, kind, _, footer = read_record(self._data, size - _FOOTER_BYTES, self._salts[0])
        if (how, kind) != ("ok", "footer"):
            return
        self.closed = True
        how, kind, _, end = read_record(self._data, footer["end"], self._salts[0])
        if (how, kind) == ("ok", "end"):
            batches = end["batches"] * BATCH_BYTES
            self._entry_bytes = footer["end"] - self.start - batches
        how, kind, _, index = read_record(self._data, footer["index"], self._salts[0])
        if (how, kind) != ("ok", "index"):
            self._no_index(footer["index"], "there is no index, as the footer says")
            return
        places = [
            FilePosition(at, offset, (time ^ _SIGN) - _SIGN)
            for at, offset, time in index["entries"]
        ]
        if any(not self.start <= place.at < size for place in places):
            self._no_index(footer["index"], "the index leads out of the file")
            return
        self._places += places

    def _no_index(self, at: int, what: str) -> None:
        """Records are found without it, in a longer time; a check tells of it."""
        self._index_damage = DamagedFile(self.path, at, what)

    def _refuse(self, how: str, at: int) -> None:
        if how == "damaged":
            raise DamagedFile(self.path, at, "no record of the stream that could come next")
