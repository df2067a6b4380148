"""What came to a queue with durability "snapshot" from other queues since its last snapshot.

A message that moves between two queues leaves the snapshot of one, and is in that of the other only
when the next one is written. So before a snapshot replaces an older one, what has arrived at the
other queues is written to segments on top of their own snapshots: they only add messages, so each
can be written at any moment. The next snapshot of such a queue replaces its segments.
"""

from __future__ import annotations

from shmq.client.local.queue import LocalQueue
from shmq.disk.persistence.journal import Journal
from shmq.disk.persistence.segment_writer import WriteSizes
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.file_header import QueueIdentity
from shmq.disk.storage.paths import catalog
from shmq.disk.storage.queue_reader import lineage_of, load_queue
from shmq.errors import FileError
from shmq.native import _core


class Arrivals:
    """Writes what arrives at one queue. For one thread at a time.

    ``number`` is the first segment to replay on top of the queue's snapshot; 0: it has none. Every
    method raises OSError.
    """

    def __init__(self, disk: Disk, handle: LocalQueue, number: int, sizes: WriteSizes) -> None:
        self._handle = handle
        self._sizes = sizes
        #: The arrivals up to this sequence number are on disk.
        self._covered = 0
        segment, offset, last_batch = _find_end(disk, handle.name, number)
        #: The segments.
        self.journal = Journal(disk, self._identify, segment, offset, sizes)
        self._batch = last_batch + 1

    def write(self) -> bool:
        """Write what has arrived and is not on disk yet; whether there was any.

        Also raises QueueDeleted.
        """
        if self._handle.last_sequence == self._covered:
            return False
        scan = _core.Scan.of_copies(self._handle, self._covered)
        found = scan.read(self._sizes.chunk, 0, self._batch) is not None
        if found:
            salt = self.journal.ready(self._batch)
            scan = _core.Scan.of_copies(self._handle, self._covered)
            before = 0
            while (piece := scan.read(self._sizes.chunk, salt, self._batch)) is not None:
                commit = _core.Collected(
                    self._batch, piece, scan.limit, scan.count - before, 0, False
                )
                self.journal.append(commit)
                self.journal.note(commit)
                self._batch, before = self._batch + 1, scan.count
                piece.release()
        self._covered = scan.covered
        return found

    def abandon(self) -> None:
        """Close the segment as is."""
        self.journal.abandon()

    def _identify(self) -> QueueIdentity:
        return QueueIdentity.of(self._handle.segment, self._handle.name)


def _find_end(disk: Disk, name: str, number: int) -> tuple[int, int, int]:
    """Where the queue's files end: the last segment, its bytes that count, and its last batch."""
    files = catalog(disk.names()).get(name)
    if files is None or not files.segments:
        return max(0, number - 1), 0, 0
    try:
        with load_queue(disk, lineage_of(disk, files)) as chain:
            return chain.segment, chain.end, chain.last_batch
    except FileError:  # the next snapshot replaces what is damaged
        return files.segments[-1], 0, 0
