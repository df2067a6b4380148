"""Reads one segment of a stream's partition while its writer may continue.

The file is mapped, and a read returns a piece of the mapping: nothing is copied. In a file that
is not closed only what the writer has published may be read, so every call gets the offset
``until`` which it may read.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import Final, NamedTuple

from shmq.disk.storage.disk import Disk, load_file, map_file, read_whole
from shmq.disk.storage.file_header import BATCH_BYTES, INDEXED, STREAM, FileHeader, header_of
from shmq.disk.storage.paths import segment_file
from shmq.disk.storage.progress import OnProgress
from shmq.errors import DamagedFile
from shmq.fork_safe import new_lock
from shmq.native import _file
from shmq.native._core import read_record

#: Behind every offset: the whole file may be read.
EVERYTHING: Final = (1 << 64) - 1
_FOOTER_BYTES: Final = 32
_SIGN: Final = 1 << 63
#: Before every time, in ns.
LEAST_TIME: Final = -_SIGN


@dataclass(frozen=True, slots=True)
class Block:
    """Records as they lie in a file, BATCH records between them."""

    data: memoryview
    #: The offset of the first entry, and the offset after the last.
    first: int
    next: int
    #: Whether the file is closed. In a growing file each read may create another mapping, with its
    #: own descriptor, so blocks of such a file should not be kept.
    closed: bool


@dataclass(frozen=True, slots=True)
class FilePosition:
    """The position of an entry: its byte in the file, its offset, its time in ns."""

    at: int
    offset: int
    time: int


class DamagedRange(NamedTuple):
    """A damaged part of a file."""

    #: Its position in the file, and the first offset that cannot be read.
    at: int
    first: int
    #: The next readable entry; None: the rest of the file cannot be read.
    behind: FilePosition | None


class Checked(NamedTuple):
    """The contents of a file, up to its last intact commit."""

    #: "end", or "torn" for a commit at the end that was never finished.
    how: str
    #: The position after the last intact commit, and the offset after it.
    end: int
    offset: int
    #: The last record's time, in ns.
    time: int
    records: int
    commits: int
    last_commit: int
    #: Of a torn commit, its first record that is wrong.
    damage: int
    #: Whether it has the trailer of a closed file.
    closed: bool


def salts_of(header: FileHeader) -> tuple[int, int]:
    """The salts of the file's records: its own, and the stream's."""
    return header.salt, header.hash_key & 0xFFFFFFFF


def read_stream_header(disk: Disk, base: int) -> tuple[FileHeader, int]:
    """The header of the segment that begins with ``base``, and its length in bytes.

    Raises :class:`~shmq.FileError` and OSError.
    """
    name = segment_file(base)
    header, size = header_of(disk, name, (STREAM,))
    if header.number != base:
        raise DamagedFile(
            str(disk.path(name)), 32, f"the header says that it begins with {header.number}"
        )
    return header, size


class StreamSegment:
    """The segment in the directory ``disk`` that begins with ``base``. For any thread.

    Every method raises :class:`~shmq.DamagedFile` for damage, and OSError.
    """

    def __init__(self, disk: Disk, base: int) -> None:
        self.base = base
        self.path = str(disk.path(segment_file(base)))
        self.header, self.start = read_stream_header(disk, base)
        self._disk = disk
        self._salts = salts_of(self.header)
        self._lock = new_lock()
        self._mapped_until = 0
        self._map()
        self.closed = False
        self._index_damage: DamagedFile | None = None
        #: The bytes of all entries, in a closed file.
        self._entry_bytes: int | None = None
        self._places = [FilePosition(self.start, base, LEAST_TIME)]
        #: Where the last read ended, which is where the next one begins.
        self._read_to = self._places[0]
        self._read_index()

    @property
    def length(self) -> int:
        """How many bytes of the file are mapped."""
        return len(self._data)

    def block(self, offset: int, until: int, most_bytes: int, most: int) -> Block | None:
        """The records from the one with ``offset`` on, before ``until``.

        As many as ``most_bytes`` and ``most`` offsets allow, but at least one, and none after
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
            at = None if how == "stop" else self._find_entry(at, offset, until)
        return None

    def at(self, time: int, until: int) -> FilePosition | None:
        """The first entry of this time or later, before ``until``; None: there is none.

        If damage hides it, the position of the damage, with the time of the entry after it.
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
        """The first readable entry; None: there is none."""
        with self._lock:
            self._grow(until)
        found = self._walk(self._places[0], 0, LEAST_TIME, until)
        found = found.behind if isinstance(found, DamagedRange) else found
        return found if found is not None and found.offset < until else None

    def first_time(self, until: int = EVERYTHING) -> int | None:
        """The time of the first readable entry; None: there is none."""
        found = self.first(until)
        return None if found is None else found.time

    def last_time(self, until: int = EVERYTHING) -> int | None:
        """The time of the last readable entry before ``until``; None: there is none."""
        with self._lock:
            self._grow(until)
            at: FilePosition | None = self._places[-1]
        found = None
        while at is not None:
            how, end, behind, time, count = _file.walk(
                self._data, at.at, self._salts, at.offset, at.time, stop_offset=until
            )
            found = time if count or time != LEAST_TIME else found
            at = None if how != "damaged" else self._find_after(end, behind, time, until)
        return found

    def last(self, until: int = EVERYTHING) -> tuple[int, int | None]:
        """The offset after the last entry before ``until``, and the time of that entry."""
        with self._lock:
            self._grow(until)
            start = self._places[-1]
        how, end, behind, time, count = _file.walk(
            self._data, start.at, self._salts, start.offset, start.time, stop_offset=until
        )
        self._check_walk(how, end)
        return behind, (time if count or start.time != LEAST_TIME else None)

    def entry_bytes(self, until: int) -> int:
        """The bytes of the intact entries before ``until``."""
        if self._entry_bytes is not None:
            return self._entry_bytes
        with self._lock:
            self._grow(until)
        return _file.measure(self._data, self.start, self._salts, self.base, until)

    def check(self, until: int = EVERYTHING, on_progress: OnProgress | None = None) -> Checked:
        """Verify all commits, up to a torn tail, which is reported and not read.

        Nothing from the offset ``until`` on counts. ``on_progress`` is called again and again with
        how many more bytes are read. Raises :class:`~shmq.DamagedFile`.
        """
        # The writer truncates the zeros after its records, so a mapping could fault.
        load = load_file if self.closed else read_whole
        data = load(self._disk, segment_file(self.base))
        found = Checked(
            *_file.check(data, self.start, self._salts, self.base, on_progress=on_progress)
        )
        if found.how == "damaged" and found.offset < until:
            raise DamagedFile(self.path, found.damage, "a commit is not as it was written")
        if self._index_damage is not None:
            raise self._index_damage
        return found

    def produced(self, until: int, found: dict[int, tuple[int, int, int]]) -> bool:
        """Update ``found`` with the last records before ``until`` of each producer.

        Returns whether all records could be read.
        """
        how = _file.produced(self._data, self.start, self._salts, self.base, until, found)
        return how == "end"

    def _seek(self, offset: int, until: int) -> FilePosition | None:
        """The position of the entry with ``offset``."""
        with self._lock:
            self._grow(until)
            if (read_to := self._read_to).offset == offset:
                return read_to if offset < until else None
            near = bisect.bisect_right(self._places, offset, key=lambda place: place.offset)
            start = self._places[max(0, near - 1)]
        return self._find_entry(start, offset, until)

    def _find_entry(self, start: FilePosition, offset: int, until: int) -> FilePosition | None:
        """The entry with ``offset``; None: it is not before ``until``, or not in this file."""
        # With the least time of all a walk would stop before the damage.
        found = self._walk(start, offset, LEAST_TIME + 1, until)
        if isinstance(found, DamagedRange):
            behind = None if found.behind is None else found.behind.offset
            raise DamagedFile(
                self.path, found.at, "the next record is damaged",
                first_offset=found.first, next_offset=behind,
            )  # fmt: skip
        return found if found is not None and found.offset < until else None

    def _walk(
        self, start: FilePosition, offset: int, time: int, until: int
    ) -> FilePosition | DamagedRange | None:
        """The first entry that has ``offset`` or a later one, and is of ``time`` or later.

        If damage hides it, that damage; other damage before it is skipped.
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
            behind = self._find_after(at, found, found_time, until)
            if behind is None:
                # Without a limit the end of the file is not damage.
                return (
                    None if how == "end" and until == EVERYTHING else DamagedRange(at, found, None)
                )
            if behind.offset > max(found, offset) and behind.time >= time:
                return DamagedRange(at, found, behind)
            start = behind

    def _find_after(self, at: int, offset: int, time: int, until: int) -> FilePosition | None:
        """The first readable entry after the damage there, and before ``until``."""
        found = _file.find(self._data, at + 8, self._salts, offset, time, until)
        return None if found is None else FilePosition(*found)

    def _grow(self, until: int) -> None:
        """Map and index what was written since the last read. Needs the lock."""
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
        self._data = map_file(self._disk, segment_file(self.base))
        if len(self._data) < self.start:
            raise DamagedFile(self.path, len(self._data), "the file is cut off")

    def _read_index(self) -> None:
        """Read the index of a closed file."""
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
            self._note_damaged_index(footer["index"], "the footer points to no index")
            return
        places = [
            FilePosition(at, offset, (time ^ _SIGN) - _SIGN)
            for at, offset, time in index["entries"]
        ]
        if any(not self.start <= place.at < size for place in places):
            self._note_damaged_index(footer["index"], "the index points outside the file")
            return
        self._places += places

    def _note_damaged_index(self, at: int, what: str) -> None:
        """Note that the index is damaged: reads are slower without it, a check reports it."""
        self._index_damage = DamagedFile(self.path, at, what)

    def _check_walk(self, how: str, at: int) -> None:
        if how == "damaged":
            raise DamagedFile(self.path, at, "the next record is damaged")
