"""All segments of a partition, as one thing to read from.

A segment counts up to the offset that the next one begins with: what is behind may be what
a writer left that was killed or whose disk failed.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import threading
from typing import Final

from shmq.errors import DamagedFile, FileError
from shmq.storage.disk import Disk
from shmq.storage.stream_paths import bases, segment_file
from shmq.storage.stream_segment import Block, StreamSegment

__all__ = ["StreamFiles"]

#: How many segments are kept open between reads.
_OPEN: Final = 4


class StreamFiles:
    """The segments in the directory ``disk``. For any thread.

    ``until`` is what its writer has published: nothing from this offset on is looked at.
    Methods raise OSError, and `block` :class:`~shmq.DamagedFile`, which tells the first offset
    that cannot be read, and the next one that can if that is in the same file.
    """

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self._lock = threading.Lock()
        self._bases: list[int] = []
        self._open: dict[int, StreamSegment] = {}

    def earliest(self) -> int | None:
        """The first offset that there is a file of; None: there are no files."""
        found = self._look()
        return found[0] if found else None

    def block(
        self, offset: int, until: int, most_bytes: int = 1 << 20, most: int = 0
    ) -> Block | None:
        """Records from the one that has ``offset`` on; None: there are none in the files.

        They are of one segment: ask again from where they end. Those of one that was removed
        meanwhile are not there.
        """
        if offset >= until:
            return None
        for look in (self._known, self._look):
            found = look()
            at = bisect.bisect_right(found, offset) - 1
            # The last one that is known may have been followed by others.
            if at < 0 or (look == self._known and at == len(found) - 1):
                continue
            try:
                return self._block(found, at, offset, until, most_bytes, most)
            except FileNotFoundError:
                continue
        return None

    def next_whole(self, offset: int, until: int) -> int:
        """The first offset that can be read of the files behind the one that has ``offset``.

        ``until``: there is none before that.
        """
        found = [base for base in self._look() if offset < base < until]
        for base, limit in itertools.pairwise([*found, until]):
            with contextlib.suppress(FileNotFoundError, FileError):
                place = self._segment(base).first(limit)
                if place is not None:
                    return place.offset
        return until

    def at(self, time: int, until: int) -> int | None:
        """The offset of the first entry of this time, in ns, or later; None: all are older.

        Where that may have been among what cannot be read, the first offset of this.
        """
        # One that nothing is published of may yet be replaced by another of its name.
        found = [base for base in self._look() if base < until]
        near = bisect.bisect_left(found, True, key=lambda base: self._is_later(base, time, until))
        for at in range(max(0, near - 1), len(found)):
            limit = min(until, found[at + 1]) if at + 1 < len(found) else until
            try:
                place = self._segment(found[at]).at(time, limit)
            except FileNotFoundError:
                continue
            except FileError:
                return found[at]
            if place is not None:
                return place.offset
        return None

    def first_time(self, until: int) -> int | None:
        """The time of the first record that can be read, in ns; None: there is none."""
        for base in self._look():
            with contextlib.suppress(FileNotFoundError, FileError):  # it went meanwhile
                time = self._segment(base).first_time(until) if base < until else None
                if time is not None:
                    return time
        return None

    def last_time(self, until: int) -> int | None:
        """The time of the last record before ``until`` that can be read; None: there is none."""
        for base in reversed(self._look()):
            with contextlib.suppress(FileNotFoundError, FileError):
                time = self._segment(base).last_time(until) if base < until else None
                if time is not None:
                    return time
        return None

    def size(self) -> int:
        """Bytes of all files."""
        found = 0
        for base in self._look():
            with contextlib.suppress(FileNotFoundError):
                found += self.disk.path(segment_file(base)).stat().st_size
        return found

    def _is_later(self, base: int, time: int, until: int) -> bool:
        """Whether the segment begins with an entry of this time or later, or has none."""
        try:
            first = self._segment(base).first_time(until)
        except FileNotFoundError:
            return False  # it is gone, because it was old
        except FileError:
            return True  # nobody knows: it is looked into
        return first is None or first >= time

    def _block(
        self, found: list[int], at: int, offset: int, until: int, most_bytes: int, most: int
    ) -> Block | None:
        limit = min(until, found[at + 1]) if at + 1 < len(found) else until
        try:
            segment = self._segment(found[at])
        except FileError as error:
            raise self._unreadable(found[at], error) from error
        return segment.block(offset, limit, most_bytes, most)

    def _unreadable(self, base: int, error: FileError) -> DamagedFile:
        """Nothing of the segment can be read; it is none of an unknown kind, but a stream's."""
        path = str(self.disk.path(segment_file(base)))
        if isinstance(error, DamagedFile):
            return DamagedFile(path, error.offset, error.what, first_offset=base)
        return DamagedFile(path, 0, str(error), first_offset=base)

    def _segment(self, base: int) -> StreamSegment:
        with self._lock:
            segment = self._open.pop(base, None)
        if segment is None:
            segment = StreamSegment(self.disk, base)
        with self._lock:
            self._open[base] = segment  # the newest is the last
            while len(self._open) > _OPEN:
                del self._open[next(iter(self._open))]
        return segment

    def _known(self) -> list[int]:
        return self._bases

    def _look(self) -> list[int]:
        self._bases = bases(self.disk.names())
        return self._bases
