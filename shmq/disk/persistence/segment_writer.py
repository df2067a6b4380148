"""Writes the segments of a queue's journal or of a stream's partition.

A commit is written after the last one and synced, and only then counts, so that a power cut leaves
at most one torn commit, the last one.

After a failed write or sync the file is not trusted any more: it is abandoned, and the next commit
goes to a new segment, whose header or name says where the one before it ends. Every writer that
starts begins a new segment in the same way.

A segment is created, and its name synced, before anything is written to it. One that was created
and of which nothing counts is replaced by another of its number.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from shmq.disk.storage.disk import AppendedFile, Disk, create_file, write_whole
from shmq.disk.storage.file_header import FileHeader, Trailer


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


class SegmentWriter(AppendedFile):
    """Segments in the directory ``disk``, of which one may be open. For one thread at a time.

    ``lengths`` are those of the existing segments, by number. Every method raises OSError.
    """

    #: The name of a segment until its header is synced; None: it has its own name at once.
    _temporary: str | None = None

    def __init__(self, disk: Disk, sizes: WriteSizes, lengths: Mapping[int, int]) -> None:
        super().__init__(disk)
        #: The salt to seal the records of the next commit with, while a segment is open.
        self.salt = 0
        self._sizes = sizes
        self._lengths = dict(lengths)
        self._zeros = memoryview(bytes(sizes.ahead))
        #: The open segment: its number, and where its last commit ends.
        self._number = self._end = 0
        #: How long its file is: zeros ahead of the end, or what is torn.
        self._written = 0
        self._trailer = Trailer()

    @property
    def size(self) -> int:
        """The bytes of all segments."""
        return sum(list(self._lengths.values()))  # any thread may ask

    @property
    def is_long(self) -> bool:
        """Whether the open segment has reached its full length."""
        return self._file >= 0 and self._end >= self._sizes.segment

    def _name_of(self, number: int) -> str:
        """The file name of a segment."""
        raise NotImplementedError

    def _open(self, header: FileHeader) -> None:
        """Create and open the segment with this header, which is on disk afterwards."""
        # With a temporary name the segment of which nothing counts is replaced: it may be the only
        # one with the next number, so it must not be removed first.
        self._file, end = create_file(
            self._disk, self._name_of(header.number), [header.pack()], self._temporary
        )
        self._number, self.salt = header.number, header.salt
        self._end = self._written = self._lengths[header.number] = end
        self._trailer = Trailer()

    def _write(self, pieces: Sequence[bytes | memoryview], end: int) -> int:
        """Write and sync the pieces of a commit that goes from the last one up to ``end``.

        Returns how long the file is at least.
        """
        return self._disk.commit(self._file, [*pieces, self._zeros_after(end)], self._end)

    def _zeros_after(self, end: int) -> memoryview:
        """The zeros to write after a commit that ends at ``end``."""
        if end <= self._written or (end - self._end) * _SMALL > self._sizes.ahead:
            return self._zeros[:0]
        most = min(end + self._sizes.ahead, self._sizes.segment)
        return self._zeros[: max(0, most // _PAGE * _PAGE - end)]

    def _conclude(self) -> None:
        """Write the trailer of the open segment if possible, cut off what follows, and close it."""
        with contextlib.suppress(OSError):  # the trailer is optional
            trailer = self._trailer.pack(self._end, self.salt)
            end = write_whole(self._disk, self._file, [trailer], self._end)
            if self._written > end:
                self._disk.truncate(self._file, end)
            self._disk.sync(self._file)
            self._lengths[self._number] = end
        self.abandon()

    def _remove(self, numbers: Sequence[int]) -> None:
        """Remove the segments, durably, the first one first."""
        for number in numbers:
            with contextlib.suppress(FileNotFoundError):
                self._disk.unlink(self._name_of(number))
        if numbers:
            self._disk.sync_directory()
        for number in numbers:
            del self._lengths[number]
