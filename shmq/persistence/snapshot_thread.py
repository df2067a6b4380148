"""The thread that writes the snapshots of all queues, one after the other."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Iterable
from typing import Final

from shmq.errors import QueueDeleted, ShmqError
from shmq.persistence.snapshot_writer import SnapshotWriter

__all__ = ["SnapshotThread"]

log = logging.getLogger("shmq")

#: A snapshot that failed is tried again after this long, in seconds.
AGAIN: Final = 0.5


class Order:
    """A snapshot that was ordered, and its result."""

    def __init__(self, kept: SnapshotWriter) -> None:
        self.kept = kept
        self.done = threading.Event()
        self.error: Exception | None = None


class SnapshotThread:
    """Writes snapshots in a thread of its own, from `start` to `finish`."""

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
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
        """Return once a snapshot, begun after this call, is written.

        Raises ShmqError if that fails, or takes longer than ``timeout`` seconds.
        """
        order = self._order(kept)
        if not order.done.wait(timeout):
            raise ShmqError(
                f"the snapshot of queue {kept.name!r} was not written within {timeout} s: it "
                f"still may be"
            )
        if order.error is not None:
            raise ShmqError(
                f"the snapshot of queue {kept.name!r} could not be written: {_told(order.error)}"
            ) from order.error

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

    def _order(self, kept: SnapshotWriter) -> Order:
        order = Order(kept)
        with self._lock:
            if self._ended:
                raise ShmqError("the writer is ending: ask the next one")
            self._ordered.add(kept)
            self._orders.put(order)
        return order

    def _run(self) -> None:
        while (order := self._orders.get()) is not None:
            try:
                order.kept.snapshot()
            except QueueDeleted as error:
                order.error = error
                self._worked(order.kept)
            except (OSError, ShmqError, MemoryError) as error:
                order.error = error
                self._failed(order.kept, error)
            else:
                self._worked(order.kept)
            with self._lock:  # only now: while it is being written it is still due
                self._ordered.discard(order.kept)
            order.done.set()

    def _failed(self, kept: SnapshotWriter, error: Exception) -> None:
        """Log the error, once; the snapshot is tried again while it is due."""
        told = _told(error)
        if self._failures.get(kept) != told:
            log.error("queue %s: no snapshot can be written: %s", kept.name, told)
        with self._lock:
            self._failures[kept] = told
            self._not_before[kept] = time.monotonic() + AGAIN

    def _worked(self, kept: SnapshotWriter) -> None:
        with self._lock:
            self._not_before.pop(kept, None)
            failure = self._failures.pop(kept, None)
        if failure is not None:
            log.warning("queue %s: a snapshot is written again", kept.name)


def _told(error: Exception) -> str:
    """The error's text, without the errno that Python puts before it."""
    return (isinstance(error, OSError) and error.strerror) or str(error)
