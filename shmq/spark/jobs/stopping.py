"""A stream's end where nothing is left half done: once the batch at hand is committed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["stop_after_batch"]

#: How often the query is looked at, in seconds.
_GLANCE: Final = 0.05


def stop_after_batch(query: StreamingQuery) -> None:
    """Let the query finish the batch at hand and begin no other, and wait until it has ended.

    ``query.stop()`` alone would interrupt it: the batch is planned then and not committed,
    its messages go back to their queue, and others may take them.
    """
    thread = _Thread(query)
    thread.end_behind_batch()
    while thread.is_alive and not thread.is_between_batches:
        time.sleep(_GLANCE)
    query.stop()


class _Thread:
    """The thread that a query's batches run in.

    It ends by itself where it finds that its query is over, and looks at that between batches.
    Within one it looks, too, behind the plan, and then interrupts itself. So it must be told
    when it is in no batch, and as it is not asked before it begins one, be kept from that
    meanwhile: it takes the query's progress lock three times a round, which is fair. At the
    first it has planned nothing yet, behind the second its batch is committed, and for the
    third it is in no batch any more. What it says of its state is true while it waits for it.
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
        """Whether it sleeps until the next batch is due; in the order that makes this true."""
        return str(self._thread.getState()) == "TIMED_WAITING" and not self._is_in_batch

    @property
    def _is_in_batch(self) -> bool:
        return bool(self._query.status["isTriggerActive"])

    def end_behind_batch(self) -> None:
        """Tell it that the query is over when it is in no batch, and begins none."""
        before: Any = None  # what the query's state was when it was told so in its sleep
        self._lock.lock()
        try:
            while self.is_alive:
                if self._lock.hasQueuedThread(self._thread):
                    if not self._is_in_batch:
                        self._state.set(self._over)
                        return
                    if before is not None:  # it was about to wake, and goes through with this one
                        self._state.set(before)
                        before = None
                    self._let_pass()
                elif self.is_between_batches:
                    if before is not None:  # it was asleep after it was told: it wakes to end
                        return
                    before = self._state.getAndSet(self._over)
                else:
                    time.sleep(_GLANCE)
        finally:
            self._lock.unlock()

    def _let_pass(self) -> None:
        self._lock.unlock()
        self._lock.lock()
