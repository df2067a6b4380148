"""Snapshots: one of one queue, the writer of a queue's snapshots, and the thread that takes all.

A snapshot is a temporary file that is written, synced, and then replaces the last one. No lock is
held while it is written: the queue goes on, and each message is copied as it is found. So the
snapshot alone shows no single moment. With the segments from its number on it does: they have all
changes since the journal rolled.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import queue
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from typing import Final

from shmq.client.local.queue import LocalQueue
from shmq.disk.persistence.arrivals import Arrivals
from shmq.disk.persistence.conflicts import set_earlier_aside
from shmq.disk.persistence.journal import Journal
from shmq.disk.persistence.segment_writer import WriteSizes
from shmq.disk.persistence.transfers import Transfers
from shmq.disk.storage.disk import Disk, size_of, write_file
from shmq.disk.storage.erase import erase_queue
from shmq.disk.storage.file_header import SNAPSHOT, QueueIdentity, Trailer, hash_key_of, header_of
from shmq.disk.storage.paths import catalog, segment_name, snapshot_name, unfinished
from shmq.disk.storage.writer_control import WriterEnding
from shmq.errors import QueueDeleted, ShmqError
from shmq.native import _core


class Snapshot:
    """One snapshot of a queue: `write` it, then `install` it; or `discard` it.

    ``number`` is the first segment to be replayed on top of it.
    """

    def __init__(self, disk: Disk, identity: QueueIdentity, number: int) -> None:
        self.number = number
        #: Its length, once written.
        self.bytes = 0
        self._disk = disk
        self._identity = identity

    def write(self, scan: _core.Scan, chunk: int) -> None:
        """Copy the queue to the temporary file, and sync it.

        ``chunk`` is how many bytes are copied at a time. Raises OSError.
        """
        self.discard()
        name = unfinished(self._identity.name)
        write_file(self._disk, name, self._pack_pieces(scan, chunk), self._count)

    def _count(self, more: int) -> None:
        self.bytes += more

    def install(self) -> None:
        """Rename it to the snapshot. The caller syncs the directory before it removes anything."""
        self._disk.rename(unfinished(self._identity.name), snapshot_name(self._identity.name))

    def discard(self) -> None:
        """Remove the temporary file."""
        with contextlib.suppress(FileNotFoundError):
            self._disk.unlink(unfinished(self._identity.name))

    def _pack_pieces(self, scan: _core.Scan, chunk: int) -> Iterator[bytes | memoryview]:
        header = self._identity.header(SNAPSHOT, self.number, first_batch=1)
        trailer = Trailer()
        yield header.pack()
        batch, before = 1, 0
        while (piece := scan.read(chunk, header.salt, batch)) is not None:
            trailer.note(self.bytes, batch, scan.limit, scan.count - before)
            yield piece
            batch, before = batch + 1, scan.count
            piece.release()
        yield trailer.pack(self.bytes, header.salt)


log = logging.getLogger("shmq")

#: A snapshot that failed is tried again after this long, in seconds.
AGAIN: Final = 0.5
#: How long a snapshot that is asked for is tried again while transactions or moves are under way,
#: and the pause before each attempt, in seconds.
_PATIENCE: Final = 10.0
_PAUSE: Final = 0.1


class SnapshotWriter:
    """Writes one queue with durability "snapshot". Any thread may call any method.

    It owns the handle. Nothing runs by itself: `snapshot` writes one.
    """

    def __init__(
        self, disk: Disk, handle: LocalQueue, sizes: WriteSizes, transfers: Transfers
    ) -> None:
        self.disk = disk
        self.handle = handle
        self.sizes = sizes
        self.name = handle.name
        self.key = handle.segment.hash_key
        #: When the last snapshot was started, on the monotonic clock.
        self.snapshot_at = time.monotonic()
        #: The first segment to replay on top of the snapshot; 0: no snapshot exists.
        self.number = 0
        self._transfers = transfers
        #: Made for the first snapshot, or when it is first asked what has come.
        self._arrivals: Arrivals | None = None
        # One snapshot at a time; taken before `_lock`.
        self._writing = threading.Lock()
        #: Whether it is detached: nothing is written any more.
        self.closed = False
        self._lock = threading.RLock()
        self._prepare()

    @property
    def identity(self) -> QueueIdentity:
        """The queue's identity, with its options as they are now."""
        return QueueIdentity.of(self.handle.segment, self.name)

    @property
    def deleted(self) -> bool:
        """Whether the queue was deleted."""
        return self.handle.segment.deleted

    @property
    def due(self) -> bool:
        """Whether a snapshot has to be written now: the first one at once."""
        if not self.number or (self._arrivals is not None and self._arrivals.journal.is_broken):
            return True
        return time.monotonic() >= self.snapshot_at + self.handle.options.snapshot_interval

    def snapshot(self) -> None:
        """Write a snapshot that replaces the last one, and the segments on top of that.

        Raises OSError and QueueDeleted.
        """
        with self._writing:
            if self.closed:
                raise QueueDeleted(f"queue {self.name!r} was deleted")
            self.snapshot_at = time.monotonic()
            snapshot, scan = self._begin()
            try:
                snapshot.write(scan, self.sizes.chunk)
                self._replace(snapshot)
            except BaseException:
                self.snapshot_at = -math.inf  # it stays due
                with contextlib.suppress(OSError):
                    snapshot.discard()
                raise
            scan.snapshot_taken(snapshot.bytes)
            with self._lock:
                if not self.closed:  # else the names may belong to the next queue of that name
                    self._segments.drop_before(self.number)

    def find_arrived(self, source: int, seqs: list[int]) -> set[int]:
        """Which of these messages, of the queue with the hash key ``source``, are on disk here.

        A message that is under way is not. Raises OSError and QueueDeleted.
        """
        with self._lock:
            self._check_open()
            under_way = set(self.handle.transfer.staged_from(source))  # before it is a message
            self._open_arrivals().write()
        return set(seqs) - under_way

    def secure_arrivals(self, source: int) -> bool:
        """Have all that came here on disk; whether it was not yet.

        Raises OSError, with EAGAIN if a message of the queue with the hash key ``source`` is under
        way; and QueueDeleted.
        """
        with self._lock:
            self._check_open()
            if self.handle.transfer.staged_from(source):
                raise OSError(errno.EAGAIN, f"a message is being moved to queue {self.name!r}")
            return self._open_arrivals().write()

    def _check_open(self) -> None:
        if self.closed or self.deleted:
            raise QueueDeleted(f"queue {self.name!r} was deleted")

    def settle_arrived(self, target: str) -> bool:  # noqa: ARG002 - the next snapshot does
        """Settle what has arrived at ``target``, on disk; return false if the disk refuses."""
        return True

    def close(self) -> None:
        """Detach, and remove the files of a deleted queue. Raises OSError."""
        self._transfers.leave(self)
        with self._writing, self._lock:
            gone, self.closed = self.deleted, True
            if self._arrivals is not None:
                self._arrivals.abandon()
            self.handle.close()
            if gone:
                erase_queue(self.disk, self.name, self.key)

    def held(self) -> contextlib.AbstractContextManager[object]:
        """A lock: while it is held, nothing is published and no snapshot is replaced."""
        return self._lock

    def parts(self) -> list[tuple[str, int]]:
        """The files that hold the queue now, each with its bytes. Needs the lock `held`."""
        name = snapshot_name(self.name)
        segments = self._segments.parts(max(1, self.number))
        return [
            *([(name, size_of(self.disk, name))] if self.number else []),
            *((segment_name(self.name, number), length) for number, length in segments),
        ]

    @property
    def _segments(self) -> Journal:
        """The segments on top of the snapshot. Needs the lock. Raises OSError."""
        return self._open_arrivals().journal

    def _open_arrivals(self) -> Arrivals:
        if self._arrivals is None:
            self._arrivals = Arrivals(self.disk, self.handle, self.number, self.sizes)
        return self._arrivals

    def _begin(self) -> tuple[Snapshot, _core.Scan]:
        """A new snapshot, and the scan of the queue for it."""
        with self._lock:
            number = self._segments.roll()
        return Snapshot(self.disk, self.identity, number), _core.Scan(self.handle)

    def _replace(self, snapshot: Snapshot) -> None:
        self._secure_moved()
        with self._lock:
            snapshot.install()
            self.number = snapshot.number
        self.disk.sync_directory()

    def _secure_moved(self) -> None:
        """Have on disk elsewhere what the snapshot has no longer. Raises OSError."""
        # Else what came from a journal, and was settled here, may come back there.
        self._transfers.settle_all(self)
        self._transfers.secure_all(self, self.key)

    def _prepare(self) -> None:
        """Set aside files of an earlier queue of that name, and remove an unfinished snapshot."""
        self.disk.sync_directory()  # the previous writer may have died before its own sync
        files = catalog(self.disk.names()).get(self.name)
        keys = {name: hash_key_of(self.disk, name) for name in (files.names() if files else ())}
        earlier = set_earlier_aside(self.disk, self.name, self.key, keys)
        with contextlib.suppress(FileNotFoundError):
            self.disk.unlink(unfinished(self.name))
        if files is not None and files.snapshot and snapshot_name(self.name) not in earlier:
            self.number = header_of(self.disk, snapshot_name(self.name))[0].number


#: A queue whose snapshot was ordered, and the outcome.
_Order = tuple[SnapshotWriter, Future[None]]


class SnapshotThread:
    """Writes snapshots in a thread of its own, from `start` to `finish`."""

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[_Order | None] = queue.SimpleQueue()
        # A daemon: a process that ends at once does not wait for it.
        self._thread = threading.Thread(target=self._run, name="snapshots", daemon=True)
        self._lock = threading.Lock()
        self._ordered: set[SnapshotWriter] = set()
        self._not_before: dict[SnapshotWriter, float] = {}
        self._failures: dict[SnapshotWriter, str] = {}
        self._ended = False

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def expose(self, all_kept: Iterable[SnapshotWriter]) -> None:
        """Order a snapshot of each queue for which one is due."""
        now = time.monotonic()
        for kept in all_kept:
            with self._lock:
                waits = kept in self._ordered or self._not_before.get(kept, 0.0) > now
            if not waits and not kept.deleted and kept.due:
                self._order(kept)

    def take(self, kept: SnapshotWriter, timeout: float | None) -> None:
        """Return once a snapshot, started after this call, is written.

        One that comes in the middle of a transaction, or of a move, is tried again. Raises
        ShmqError if it fails, or takes longer than ``timeout`` seconds.
        """
        began = time.monotonic()
        until = began + min(_PATIENCE, math.inf if timeout is None else timeout)
        while True:
            order = self._order(kept)
            try:
                left = None if timeout is None else max(0.0, began + timeout - time.monotonic())
                error = order.exception(left)
            except TimeoutError:
                raise ShmqError(
                    f"the snapshot of queue {kept.name!r} was not written within {timeout} s; it "
                    f"may still be written"
                ) from None
            if error is None:
                return
            passes = isinstance(error, OSError) and error.errno == errno.EAGAIN
            if not passes or time.monotonic() >= until:
                raise ShmqError(
                    f"the snapshot of queue {kept.name!r} could not be written: {_describe(error)}"
                ) from error
            time.sleep(_PAUSE)

    def finish(self, last: Iterable[SnapshotWriter]) -> None:
        """Write the ordered snapshots, then a last one of each of these, and end the thread."""
        for kept in last:
            if not kept.deleted:
                self._order(kept)
        with self._lock:
            self._ended = True
        self._orders.put(None)
        if self._thread.ident is None:
            self._run()
        else:
            self._thread.join()

    def _order(self, kept: SnapshotWriter) -> Future[None]:
        order: Future[None] = Future()
        with self._lock:
            if self._ended:
                raise WriterEnding
            self._ordered.add(kept)
            self._orders.put((kept, order))
        return order

    def _run(self) -> None:
        while (taken := self._orders.get()) is not None:
            kept, order = taken
            failure: Exception | None = None
            try:
                kept.snapshot()
            except (OSError, ShmqError, MemoryError) as error:
                failure = error
            if failure is None or isinstance(failure, QueueDeleted):
                self._note_success(kept)
            else:
                self._note_failure(kept, failure)
            with self._lock:  # only now: while it is being written it is still due
                self._ordered.discard(kept)
            order.set_exception(failure) if failure else order.set_result(None)

    def _note_failure(self, kept: SnapshotWriter, error: Exception) -> None:
        """Log the error, once; the snapshot is tried again while it is due."""
        reason = _describe(error)
        if self._failures.get(kept) != reason:
            log.error("queue %s: no snapshot can be written: %s", kept.name, reason)
        with self._lock:
            self._failures[kept] = reason
            self._not_before[kept] = time.monotonic() + AGAIN

    def _note_success(self, kept: SnapshotWriter) -> None:
        with self._lock:
            self._not_before.pop(kept, None)
            failure = self._failures.pop(kept, None)
        if failure is not None:
            log.warning("queue %s: a snapshot is written again", kept.name)


def _describe(error: BaseException) -> str:
    """The error's text, without the errno that Python puts before it."""
    return (isinstance(error, OSError) and error.strerror) or str(error)
