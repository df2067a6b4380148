"""Stops a stream cleanly: after its current batch is committed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["stop_after_batch"]

#: How often the query's state is checked, in seconds.
_GLANCE: Final = 0.05


def stop_after_batch(query: StreamingQuery) -> None:
    """Let the query finish its current batch and begin no other, and wait until it has ended.

    ``query.stop()`` alone would interrupt the batch: it would be planned but not committed, its
    messages would return to their queue, and other consumers could get them.
    """
    thread = _Thread(query)
    thread.end_behind_batch()
    while thread.is_alive and not thread.is_between_batches:
        time.sleep(_GLANCE)
    query.stop()


class _Thread:
    """The thread that runs a query's batches.

    The thread ends on its own when it finds its query terminated, which it checks between
    batches. It also checks within a batch, after planning, and then interrupts itself. So the
    query must be set to terminated while the thread is in no batch, and the thread must be kept
    from beginning one meanwhile. The query's progress lock does that: it is fair, and the
    thread takes it three times a round. At the first time nothing is planned yet, after the
    second the batch is committed, and at the third the thread is in no batch any more. The
    state that Spark reports is reliable while the thread waits for the lock.
    """

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        execution: Any = query._jsq.streamingQuery()
        package = execution.getClass().getPackageName()
        loader = execution.getClass().getClassLoader()
        self._over = loader.loadClass(f"{package}.TERMINATED$").getField("MODULE$").get(None)
        self._state = execution.state()
        self._lock = execution.awaitProgressLock()
        self._thread = execution.queryExecutionThread()

    @property
    def is_alive(self) -> bool:
        return bool(self._thread.isAlive())

    @property
    def is_between_batches(self) -> bool:
        """Whether it sleeps until the next batch is due. The order of the checks matters."""
        return str(self._thread.getState()) == "TIMED_WAITING" and not self._is_in_batch

    @property
    def _is_in_batch(self) -> bool:
        return bool(self._query.status["isTriggerActive"])

    def end_behind_batch(self) -> None:
        """Set the query to terminated while the thread is in no batch and begins none."""
        before: Any = None  # the query's state before it was set to terminated during a sleep
        self._lock.lock()
        try:
            while self.is_alive:
                if self._lock.hasQueuedThread(self._thread):
                    if not self._is_in_batch:
                        self._state.set(self._over)
                        return
                    if before is not None:  # it was about to wake: let it run this batch
                        self._state.set(before)
                        before = None
                    self._let_pass()
                elif self.is_between_batches:
                    if before is not None:  # still asleep after the change: it wakes and ends
                        return
                    before = self._state.getAndSet(self._over)
                else:
                    time.sleep(_GLANCE)
        finally:
            self._lock.unlock()

    def _let_pass(self) -> None:
        self._lock.unlock()
        self._lock.lock()
