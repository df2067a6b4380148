"""The segments of one partition, each named by its first offset, and how they are written.

Every offset before `next` is certainly on disk. A segment starts with `next`; what the one before
it has from there on does not count.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass

from shmq.disk.persistence.segment_writer import SegmentWriter, WriteSizes
from shmq.disk.storage.disk import Disk, size_of, write_pushed
from shmq.disk.storage.file_header import BATCH_BYTES, INDEXED, StreamIdentity
from shmq.disk.storage.paths import UNFINISHED_SEGMENT, bases, segment_file
from shmq.disk.storage.stream_producers import note_producers
from shmq.disk.storage.stream_segment import LEAST_TIME, FilePosition, StreamSegment
from shmq.errors import DamagedSegment, FileError
from shmq.native import _core, _file
from shmq.native._core import pack_record


@dataclass(frozen=True, slots=True)
class Commit:
    """Whole records of a partition, in a few pieces at most, as they lie in its ring."""

    pieces: Sequence[memoryview]
    #: The offset of the first record, and the offset after the last.
    first: int
    next: int

    @property
    def bytes(self) -> int:
        """The bytes of all pieces."""
        return sum(len(piece) for piece in self.pieces)


class StreamJournal(SegmentWriter):
    """Writes the segments of a partition, from the offset ``begin`` on. One thread at a time.

    ``disk`` is the partition's directory, which exists. Raises OSError.
    """

    _temporary = UNFINISHED_SEGMENT

    def __init__(
        self, disk: Disk, identity: StreamIdentity, partition: int, begin: int, sizes: WriteSizes
    ) -> None:
        #: Every offset before it is on disk.
        self.next = begin
        self._identity = identity
        self._partition = partition
        self._last_time: int | None = None
        disk.sync_directory()  # the previous writer may have died before its own sync
        lengths = {base: size_of(disk, segment_file(base)) for base in bases(disk.names())}
        super().__init__(disk, sizes, lengths)
        #: Bytes of only the records, by segment; filled on demand.
        self._record_bytes: dict[int, int] = {}

    @property
    def earliest(self) -> int:
        """The first offset that a file has."""
        return min(self._lengths, default=self.next)

    @property
    def lengths(self) -> list[tuple[int, int]]:
        """The base offsets of the segments, each with the number of bytes that count."""
        return sorted(self._lengths.items())

    def append(self, commit: Commit) -> None:
        """Write a commit, which begins with `next`, and sync it; `next` moves on.

        Raises OSError, after which the caller appends it again, and DamagedSegment.
        """
        assert commit.first == self.next, f"{commit.first} does not follow {self.next}"
        self.begin()
        end = self._end + BATCH_BYTES + commit.bytes
        try:
            if commit.bytes < self._sizes.early:
                places, last_time = self._sample_positions(commit)
                written = self._write([self._pack_batch(commit), *commit.pieces], end)
            else:
                # The disk starts while the commit is surveyed. The BATCH record, without which
                # readers ignore the whole commit, is written last.
                written = write_pushed(
                    self._disk,
                    self._file,
                    [*commit.pieces, self._zeros_after(end)],
                    self._end + BATCH_BYTES,
                )
                places, last_time = self._sample_positions(commit)
                self._disk.commit(self._file, [self._pack_batch(commit)], self._end)
        except (OSError, DamagedSegment):
            self.abandon()
            raise
        for place in places:
            self._trailer.place(self._end + BATCH_BYTES + place.at, place.offset, place.time)
        self._trailer.count(commit.first, commit.next, commit.next - commit.first)
        self._end = end
        self._written = max(self._written, written)
        self._lengths[self._number] = end
        self._record_bytes[self._number] += commit.bytes
        self.next, self._last_time = commit.next, last_time

    def follow(self, identity: StreamIdentity, sizes: WriteSizes) -> None:
        """Write with these options from now on: the next segment has them in its header."""
        self._identity, self._sizes = identity, sizes

    def roll(self) -> None:
        """End the segment, and begin the next one. Raises OSError."""
        if self._file >= 0 and self.next > self._number:
            self._conclude()
            with contextlib.suppress(OSError):  # without it the next start reads more
                note_producers(self._disk, self._identity, self._partition, self.next)
        self.begin()

    def retain(self, most_bytes: int | None, before: int | None) -> list[int]:
        """Remove old segments, durably; returns their base offsets.

        Removes segments that are not needed for ``most_bytes`` of records, and those whose records
        are all older than ``before``, in ns. The last segment stays, since it has the next offset.
        One that cannot be read counts as old as the records after it. Raises OSError.
        """
        if before is not None and self._last_time is not None and self._last_time < before:
            self.roll()
        doomed = []
        needed = 0 if most_bytes is None else self._find_needed(most_bytes)
        for base, following in itertools.pairwise(sorted(self._lengths)):
            if base >= needed and not self._is_old(base, following, before):
                break
            doomed.append(base)
        for base in doomed:  # an unsynced removal of several could leave a gap, as damage
            self._remove([base])
            self._record_bytes.pop(base, None)
        return doomed

    def restart_at(self, begin: int) -> StreamJournal:
        """Abandon this one, and return another from the offset ``begin`` on."""
        self.abandon()
        return StreamJournal(self._disk, self._identity, self._partition, begin, self._sizes)

    def begin(self) -> None:
        """Open a segment, if none is open, so that a file has the next offset."""
        if self._file < 0:
            self._open(self._identity.segment(self._partition, self.next))
            self._record_bytes[self.next] = 0

    # ---- the segment that is written ----

    def _name_of(self, number: int) -> str:
        return segment_file(number)

    def _pack_batch(self, commit: Commit) -> bytes:
        """The BATCH record in front of the commit's records."""
        crc = 0
        for piece in commit.pieces:
            crc = _core.crc32c(piece, crc)
        return pack_record(
            "batch", self.salt, batch=commit.first, wall=time.time_ns(), last_seq=commit.next,
            bytes=commit.bytes, crc=crc,
        )  # fmt: skip

    def _sample_positions(self, commit: Commit) -> tuple[list[FilePosition], int]:
        """Positions of some records, in bytes from the first, for the index; the last one's time.

        Raises DamagedSegment if the records do not match the commit, which does not count then.
        """
        salts, found, before = (self.salt, self._identity.salt), [], 0
        offset, moment = commit.first, LEAST_TIME
        for piece in commit.pieces:
            due = offset
            how, at, offset, moment, _ = _file.walk(piece, 0, salts, due, stop_offset=0)
            if offset != due:  # with offset 0 a walk accepts any first offset
                how, offset = "damaged", due
            while how == "stop":
                found.append(FilePosition(before + at, offset, moment))
                how, at, offset, moment, _ = _file.walk(
                    piece, at, salts, offset, moment, most_bytes=INDEXED, verify=False
                )
            if how != "end":
                raise DamagedSegment(
                    f"partition {self._partition} of stream {self._identity.name!r} has no record "
                    f"where that of offset {offset} should be: its memory is damaged"
                )
            before += len(piece)
        if offset != commit.next:
            raise DamagedSegment(
                f"partition {self._partition} of stream {self._identity.name!r} has records up to "
                f"{offset}, and says up to {commit.next}: its memory is damaged"
            )
        return found, moment

    # ---- the others ----

    def _find_needed(self, most_bytes: int) -> int:
        """The base of the last segments that have ``most_bytes`` of records together.

        Frames of commits, zeros ahead of them, and trailers are not counted: with many small
        commits, or after a kill, they are most of a file.
        """
        found, following = 0, self.next
        if self.size < most_bytes:
            return 0
        for base in sorted(self._lengths, reverse=True):
            found += self._measure_records(base, following)
            if found >= most_bytes:
                return base
            following = base
        return 0

    def _measure_records(self, base: int, following: int) -> int:
        if base not in self._record_bytes:
            try:
                self._record_bytes[base] = StreamSegment(self._disk, base).entry_bytes(following)
            except (FileError, FileNotFoundError):  # reported to its readers
                self._record_bytes[base] = 0
        return self._record_bytes[base]

    def _is_old(self, base: int, following: int, before: int | None) -> bool:
        if before is None:
            return False
        try:
            last = StreamSegment(self._disk, base).last_time(following)
        except FileError:
            return self._is_before(following, before)
        return last is None or last < before

    def _is_before(self, following: int, before: int) -> bool:
        """Whether the first readable record from ``following`` on is older than ``before``."""
        for base in sorted(base for base in self._lengths if base >= following):
            with contextlib.suppress(FileError):
                first = StreamSegment(self._disk, base).first_time()
                if first is not None:
                    return first < before
        return False
