"""The journal of one queue.

The *position* says what is certainly on disk: a segment and how many of its bytes. A segment that
was created but never became the position holds nothing, and is replaced; except the first one of a
queue, so that a queue once started has a file at every moment. A segment's header says where the
one before it ends.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from shmq.disk.persistence.segment_writer import SegmentWriter, WriteSizes
from shmq.disk.storage.disk import Disk, opened, remove_file, size_of, sync_file
from shmq.disk.storage.file_header import JOURNAL, QueueIdentity, header_of, read_header
from shmq.disk.storage.paths import catalog, segment_name
from shmq.errors import FileError
from shmq.native import _core
from shmq.native._core import read_record


class Journal(SegmentWriter):
    """The segments of one queue's journal, from a position on. For one thread at a time.

    ``identity`` returns the queue's, with its options at that time.
    """

    def __init__(
        self,
        disk: Disk,
        identity: Callable[[], QueueIdentity],
        segment: int,
        offset: int,
        sizes: WriteSizes,
    ) -> None:
        #: The position: the segment that was synced last, and how many bytes of it.
        self.segment = segment
        self.offset = offset
        #: Whether another process removed a segment: a snapshot has to replace them all.
        self.is_broken = False
        self._identity = identity
        self._queue = identity().name
        self._started = 0  # where the last commit starts
        files = catalog(disk.names()).get(self._queue)
        numbers = files.segments if files else ()
        super().__init__(
            disk, sizes, {each: size_of(disk, self._name_of(each)) for each in numbers}
        )
        if not segment:
            for number in [each for each in self._lengths if not self._has_header(each)]:
                remove_file(disk, self._name_of(number))
                del self._lengths[number]

    @property
    def next_segment(self) -> int:
        """The number of the segment that follows the position's."""
        if not self.segment:
            return max(self._lengths, default=0) + 1
        return self.segment + 1

    def is_whole(self) -> bool:
        """Whether the position's segment exists, and its batches lead to the position.

        An older copy of it may be as long: zeros are written ahead. Raises OSError.
        """
        if not self.segment:
            return True
        if self._lengths.get(self.segment, -1) < self.offset:
            return False
        name = self._name_of(self.segment)
        with opened(self._disk, name) as file:
            data = self._disk.read(file, self.offset, 0)
        try:
            header, at = read_header(data, name)
        except FileError:
            return False
        while at < len(data):
            how, kind, size, fields = read_record(data, at, header.salt)
            if (how, kind) != ("ok", "batch"):
                return False
            at += size + fields["bytes"]
        return at == self.offset

    def parts(self, least: int) -> list[tuple[int, int]]:
        """The segments from number ``least`` on, each with its synced bytes."""
        return [
            (number, self.offset if number == self.segment else length)
            for number, length in sorted(self._lengths.items())
            if least <= number <= self.segment or (self._file >= 0 and number == self._number)
        ]

    def ready(self, first_batch: int) -> int:
        """Open a segment for the commit ``first_batch`` unless one is open; returns its salt.

        Its header, which says where the previous segment ends, is on disk. Raises OSError.
        """
        if self._file < 0:
            self._open(
                self._identity().header(
                    JOURNAL, self.next_segment, previous_end=self.offset, first_batch=first_batch
                )
            )
            if not self.segment:
                self.segment, self.offset = self._number, self._end
        return self.salt

    def append(self, commit: _core.Collected) -> None:
        """Write a commit that is sealed with the salt, sync it, move the position.

        Raises OSError; then the caller seals and appends it again, once this is `ready`.
        Otherwise the caller publishes the position, and then calls `note`.
        """
        end = self._end + len(commit.data)
        try:
            written = self._write([commit.data], end)
        except OSError as error:
            self.is_broken |= error.errno == errno.ENOENT
            self.abandon()
            raise
        self._started, self._end = self._end, end
        self._written = max(self._written, written)
        self.segment, self.offset = self._number, end

    def note(self, commit: _core.Collected) -> None:
        """Note the commit appended last in the segment's trailer."""
        self._trailer.note(self._started, commit.batch, commit.last_seq, commit.puts)
        self._lengths[self._number] = self._end

    def roll(self) -> int:
        """End the segment; returns the number of the one that the next commit goes to."""
        if self._file >= 0 and self.segment == self._number:
            self._conclude()
        return self.next_segment

    def drop_before(self, number: int) -> None:
        """Remove the segments below ``number``, durably. Raises OSError."""
        self.is_broken = False
        self._remove(sorted(each for each in self._lengths if each < number))

    def _name_of(self, number: int) -> str:
        return segment_name(self._queue, number)

    def _has_header(self, number: int) -> bool:
        """Whether the segment was started: its header is intact."""
        try:
            header_of(self._disk, self._name_of(number))
            sync_file(self._disk, self._name_of(number))
        except FileError:
            return False
        return True
