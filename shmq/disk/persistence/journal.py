"""The journal of one queue: its segments, and how they are written.

The *position* says what is certainly on disk: a segment and how many of its bytes. A commit
is written behind it and synced, and only then the position moves, so that a power cut leaves
at most one torn commit, the last one.

After a failed write or sync the file is not trusted any more: the segment ends at the
position, and the next commit goes to a new segment, whose header says so too.

A segment is created, and its name synced, before anything is written to it. A segment that was
created but never became the position holds nothing, and is replaced by another of its number;
except the first one of a queue, so that a queue once begun has a file at every moment.
"""

from __future__ import annotations

import contextlib
import errno
from dataclasses import dataclass
from typing import Final

from shmq.disk.storage.disk import Disk, opened, size_of, write_whole
from shmq.disk.storage.file_header import HEADER_BYTES, JOURNAL, QueueIdentity, Trailer, read_header
from shmq.disk.storage.paths import catalog, segment_name
from shmq.errors import FileError
from shmq.native import _core
from shmq.native._core import read_record


@dataclass(frozen=True, slots=True)
class WriteSizes:
    """Sizes in bytes. The defaults are what a writer uses."""

    #: A segment of this length is closed after its last commit.
    segment: int = 64 << 20
    #: The most zeros that are written ahead of small commits; 0: none.
    ahead: int = 1 << 20
    #: The most that is collected for one commit, except a longer message.
    commit: int = 8 << 20
    #: A stream's commit from this length on is written before its records are checked.
    early: int = 1 << 20
    #: How much a snapshot copies out of the queue at a time.
    chunk: int = 1 << 20


#: Zeros are written ahead of commits of up to this fraction of them. They save syncing a longer
#: file with each commit, and must cost less than that.
_SMALL: Final = 16
_PAGE: Final = 4096


class Journal:
    """The segments of one queue's journal, from a position on. For one thread at a time."""

    def __init__(
        self, disk: Disk, identity: QueueIdentity, segment: int, offset: int, sizes: WriteSizes
    ) -> None:
        #: The position: the segment that was synced last, and how many bytes of it.
        self.segment = segment
        self.offset = offset
        #: The salt to seal the records of the next commit with, once `ready`.
        self.salt = 0
        #: Whether another process removed a segment: a snapshot has to replace them all.
        self.is_broken = False
        self._disk = disk
        self._identity = identity
        self._sizes = sizes
        self._zeros = memoryview(bytes(sizes.ahead))
        self._file = -1
        self._number = 0
        self._begun = self._end = 0  # the last commit, and what follows
        self._written = 0  # how long the file is: zeros ahead of the end, or what is torn
        self._trailer = Trailer()
        self._lengths = self._find_segments()

    @property
    def next_segment(self) -> int:
        """The number of the segment that follows the position's."""
        if not self.segment:
            return max(self._lengths, default=0) + 1
        return self.segment + 1

    @property
    def bytes(self) -> int:
        """The bytes of all segments."""
        return sum(list(self._lengths.values()))  # any thread may ask

    @property
    def is_long(self) -> bool:
        """Whether the open segment has reached its full length."""
        return self._file >= 0 and self._end >= self._sizes.segment

    def is_whole(self) -> bool:
        """Whether the position's segment exists, and its batches lead to the position.

        An older copy of it may be as long: zeros are written ahead. Raises OSError.
        """
        if not self.segment:
            return True
        if self._lengths.get(self.segment, -1) < self.offset:
            return False
        name = segment_name(self._identity.name, self.segment)
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
            self._begin(first_batch)
        return self.salt

    def append(self, commit: _core.Collected) -> None:
        """Write a commit that is sealed with the salt, sync it, move the position.

        Raises OSError; then the caller seals and appends it again, once this is `ready`.
        Otherwise the caller publishes the position, and then calls `note`.
        """
        end = self._end + len(commit.data)
        pieces = [commit.data] if end <= self._written else [commit.data, self._ahead(end)]
        try:
            written = self._disk.commit(self._file, pieces, self._end)
        except OSError as error:
            self.is_broken |= error.errno == errno.ENOENT
            self.abandon()
            raise
        self._begun, self._end = self._end, end
        self._written = max(self._written, written)
        self.segment, self.offset = self._number, end

    def note(self, commit: _core.Collected) -> None:
        """Note the commit appended last in the segment's trailer."""
        self._trailer.note(self._begun, commit.batch, commit.last_seq, commit.puts)
        self._lengths[self._number] = self._end

    def roll(self) -> int:
        """End the segment; returns the number of the one that the next commit goes to."""
        if self._file >= 0 and self.segment == self._number:
            with contextlib.suppress(OSError):  # the trailer is optional
                self._conclude()
            self.abandon()
        return self.next_segment

    def abandon(self) -> None:
        """Close the segment's file as it is."""
        if self._file >= 0:
            file, self._file = self._file, -1
            with contextlib.suppress(OSError):
                self._disk.close(file)

    def drop_before(self, number: int) -> None:
        """Remove the segments below ``number``, durably. Raises OSError."""
        self.is_broken = False
        doomed = sorted(each for each in self._lengths if each < number)
        for each in doomed:
            with contextlib.suppress(FileNotFoundError):
                self._disk.unlink(segment_name(self._identity.name, each))
        if doomed:
            self._disk.sync_directory()
        for each in doomed:
            del self._lengths[each]

    def _find_segments(self) -> dict[int, int]:
        """The lengths of the existing segments, by number."""
        files = catalog(self._disk.names()).get(self._identity.name)
        found = {
            number: size_of(self._disk, segment_name(self._identity.name, number))
            for number in (files.segments if files else ())
        }
        if not self.segment:
            for number in [each for each in found if not self._has_header(each)]:
                self._clear(segment_name(self._identity.name, number))
                del found[number]
        return found

    def _has_header(self, number: int) -> bool:
        """Whether the segment was begun: its header is intact."""
        name = segment_name(self._identity.name, number)
        try:
            with opened(self._disk, name) as file:
                read_header(self._disk.read(file, HEADER_BYTES, 0), name)
                self._disk.sync(file)
        except FileError:
            return False
        return True

    def _begin(self, first_batch: int) -> None:
        number = self.next_segment
        name = segment_name(self._identity.name, number)
        self._clear(name)
        header = self._identity.header(
            JOURNAL, number, previous_end=self.offset, first_batch=first_batch
        )
        file = self._disk.create(name)
        try:
            end = write_whole(self._disk, file, [header.pack()], 0)
            self._disk.sync(file)
            self._disk.sync_directory()
        except OSError:
            with contextlib.suppress(OSError):
                self._disk.close(file)
            raise
        self._file, self._number, self.salt = file, number, header.salt
        self._end = self._written = self._lengths[number] = end
        self._trailer = Trailer()
        if not self.segment:
            self.segment, self.offset = number, end

    def _clear(self, name: str) -> None:
        """Remove a file with the name of a segment of which nothing was ever published."""
        try:
            self._disk.unlink(name)
        except FileNotFoundError:
            return
        self._disk.sync_directory()

    def _ahead(self, end: int) -> memoryview:
        """The zeros to write behind a commit that ends at ``end``."""
        if end <= self._written or (end - self._end) * _SMALL > self._sizes.ahead:
            return self._zeros[:0]
        most = min(end + self._sizes.ahead, self._sizes.segment)
        return self._zeros[: max(0, most // _PAGE * _PAGE - end)]

    def _conclude(self) -> None:
        """Write the trailer of a closed file, and cut off what is behind it."""
        trailer = self._trailer.pack(self._end, self.salt)
        end = write_whole(self._disk, self._file, [trailer], self._end)
        if self._written > end:
            self._disk.truncate(self._file, end)
        self._disk.sync(self._file)
        self._lengths[self._number] = end
