"""Reads all segments of a partition as one log.

A segment counts up to the first offset of the next one: records after that may be left over
from a writer that was killed or whose disk failed.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
from collections.abc import Callable, Iterable
from typing import Final

from shmq.disk.storage.disk import Disk
from shmq.disk.storage.paths import bases, segment_file
from shmq.disk.storage.stream_segment import Block, StreamSegment
from shmq.errors import DamagedFile, FileError
from shmq.fork_safe import new_lock

#: How many segments are kept open between reads.
_OPEN: Final = 4


class StreamFiles:
    """The segments in the directory ``disk``. For any thread.

    ``until`` is the offset that the writer has published: nothing from it on is read. Methods
    raise OSError, and `block` :class:`~shmq.DamagedFile`, which has the first offset that cannot
    be read, and the next readable one if that is in the same file.
    """

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self._lock = new_lock()
        self._bases: list[int] = []
        self._open: dict[int, StreamSegment] = {}

    def earliest(self) -> int | None:
        """The first offset that a file has; None: there are no files."""
        found = self._poll()
        return found[0] if found else None

    def block(
        self, offset: int, until: int, most_bytes: int = 1 << 20, most: int = 0
    ) -> Block | None:
        """Records from the one with ``offset`` on; None: there are none in the files.

        They are from one segment: call again from their end. Those of a segment that was removed
        in the meantime are gone.
        """
        if offset >= until:
            return None
        for look in (self._get_known, self._poll):
            found = look()
            at = bisect.bisect_right(found, offset) - 1
            # There may be new segments after the last known one.
            if at < 0 or (look == self._get_known and at == len(found) - 1):
                continue
            try:
                return self._read_block(found, at, offset, until, most_bytes, most)
            except FileNotFoundError:
                continue
        return None

    def next_whole(self, offset: int, until: int) -> int:
        """The first readable offset in the files after the one with ``offset``.

        Returns ``until`` if there is none before it.
        """
        found = [base for base in self._poll() if offset < base < until]
        for base, limit in itertools.pairwise([*found, until]):
            with contextlib.suppress(FileNotFoundError, FileError):
                place = self._open_segment(base).first(limit)
                if place is not None:
                    return place.offset
        return until

    def at(self, time: int, until: int) -> int | None:
        """The offset of the first entry of this time, in ns, or later; None: all are older.

        If that entry may be in an unreadable segment, the first offset of that segment.
        """
        # A segment of which nothing is published may yet be replaced by another of its name.
        found = [base for base in self._poll() if base < until]
        near = bisect.bisect_left(found, True, key=lambda base: self._is_later(base, time, until))
        for at in range(max(0, near - 1), len(found)):
            limit = min(until, found[at + 1]) if at + 1 < len(found) else until
            try:
                place = self._open_segment(found[at]).at(time, limit)
            except FileNotFoundError:
                continue
            except FileError:
                return found[at]
            if place is not None:
                return place.offset
        return None

    def first_time(self, until: int) -> int | None:
        """The time of the first readable record, in ns; None: there is none."""
        return self._find_time(self._poll(), until, StreamSegment.first_time)

    def last_time(self, until: int) -> int | None:
        """The time of the last readable record before ``until``; None: there is none."""
        return self._find_time(reversed(self._poll()), until, StreamSegment.last_time)

    def _find_time(
        self, found: Iterable[int], until: int, read: Callable[[StreamSegment, int], int | None]
    ) -> int | None:
        for base in found:
            with contextlib.suppress(FileNotFoundError, FileError):  # removed, or damaged
                time = read(self._open_segment(base), until) if base < until else None
                if time is not None:
                    return time
        return None

    def size(self) -> int:
        """The bytes of all files."""
        found = 0
        for base in self._poll():
            with contextlib.suppress(FileNotFoundError):
                found += self.disk.path(segment_file(base)).stat().st_size
        return found

    def _is_later(self, base: int, time: int, until: int) -> bool:
        """Whether the segment begins with an entry of this time or later, or has none."""
        try:
            first = self._open_segment(base).first_time(until)
        except FileNotFoundError:
            return False  # retention removed it, so it was old
        except FileError:
            return True  # unknown: the caller reads the segment
        return first is None or first >= time

    def _read_block(
        self, found: list[int], at: int, offset: int, until: int, most_bytes: int, most: int
    ) -> Block | None:
        limit = min(until, found[at + 1]) if at + 1 < len(found) else until
        try:
            segment = self._open_segment(found[at])
        except FileError as error:
            raise self._make_unreadable_error(found[at], error) from error
        return segment.block(offset, limit, most_bytes, most)

    def _make_unreadable_error(self, base: int, error: FileError) -> DamagedFile:
        """The error for a segment of which nothing can be read, always a DamagedFile."""
        path = str(self.disk.path(segment_file(base)))
        if isinstance(error, DamagedFile):
            return DamagedFile(path, error.offset, error.what, first_offset=base)
        return DamagedFile(path, 0, str(error), first_offset=base)

    def _open_segment(self, base: int) -> StreamSegment:
        with self._lock:
            segment = self._open.pop(base, None)
        if segment is None:
            segment = StreamSegment(self.disk, base)
        with self._lock:
            self._open[base] = segment  # ordered by last use
            while len(self._open) > _OPEN:
                del self._open[next(iter(self._open))]
        return segment

    def _get_known(self) -> list[int]:
        return self._bases

    def _poll(self) -> list[int]:
        self._bases = bases(self.disk.names())
        return self._bases
