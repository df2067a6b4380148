"""The queues of this host that a Python worker keeps open between its tasks.

Mapping a queue's memory costs a page fault for each 64 KiB that a task reads, and unmapping it
about half as much again: together a tenth of a read. A task therefore reads through the handle of
an earlier task if there is one. It still opens the queue itself, so it finds and refuses what a
task without a pool does; the id of the queue that it has opened says which handle is of the same
memory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import time
from collections.abc import Iterator
from typing import Final

import shmq
from shmq.client.local.queue import LocalQueue
from shmq.errors import ShmqError
from shmq.spark.shared.address import Address

#: How long an idle queue stays open, in seconds, and how many do.
_IDLE: Final = 5.0
_MOST: Final = 8
#: How often it is checked whether an idle queue was deleted, in seconds.
_CHECK: Final = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class _Opened:
    """A queue, and the broker that has opened it."""

    broker: shmq.Broker
    queue: LocalQueue
    #: When it is closed if no task has used it again, on the monotonic clock.
    until: float

    def is_due(self, now: float) -> bool:
        return self.until <= now or self.queue.is_gone

    def close(self) -> None:
        with contextlib.suppress(ShmqError, OSError):  # it was deleted or damaged since
            self.broker.close()


class QueuePool:
    """The open queues of this process that no task is using."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Forget all queues without closing them: after a fork they belong to the parent."""
        self._lock = threading.Lock()  # guards the other two
        #: By the queue's id, which no other queue has, of the same name or another; the least
        #: recently used first.
        self._idle: dict[int, _Opened] = {}
        self._closing: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._idle)

    def take(self, queue_id: int) -> _Opened | None:
        """Take the queue out of the pool, if it is there."""
        with self._lock:
            return self._idle.pop(queue_id, None)

    def give(self, broker: shmq.Broker, queue: LocalQueue) -> None:
        """Put an open queue into the pool, which closes it once it is idle for too long."""
        opened = _Opened(broker, queue, time.monotonic() + _IDLE)
        with self._lock:
            closed = [self._idle.pop(queue.segment.queue_id, None)]
            self._idle[queue.segment.queue_id] = opened
            if len(self._idle) > _MOST:
                closed.append(self._idle.pop(next(iter(self._idle))))
            if self._closing is None:
                closing = threading.Thread(
                    target=self._close_idle, name="shmq-queue-pool", daemon=True
                )
                closing.start()  # it waits for the lock
                self._closing = closing
        for each in closed:
            if each is not None:
                each.close()

    def _close_idle(self) -> None:
        """Close queues as they are due, until the pool is empty."""
        while (pause := self._close_due()) is not None:
            time.sleep(pause)

    def _close_due(self) -> float | None:
        """Close the queues that are due; return the seconds until the next check, if any."""
        now = time.monotonic()
        with self._lock:
            due = [each for each, opened in self._idle.items() if opened.is_due(now)]
            closed = [self._idle.pop(each) for each in due]
            first = min((opened.until for opened in self._idle.values()), default=None)
            if first is None:
                self._closing = None
        for opened in closed:
            opened.close()
        return None if first is None else min(first - now, _CHECK)


_POOL: Final = QueuePool()
os.register_at_fork(after_in_child=_POOL.renew)


@contextlib.contextmanager
def borrow_queue(address: Address, name: str) -> Iterator[shmq.Queue]:
    """A queue for a task. Raises what :func:`shmq.connect` and ``Broker.queue`` raise.

    A queue of this host is in the pool afterwards, unless the block raised; a server's is closed.
    """
    broker = address.connect()
    try:
        queue = broker.queue(name)
        earlier = _POOL.take(queue.segment.queue_id) if isinstance(queue, LocalQueue) else None
        if earlier is not None:
            broker.close()
            broker, queue = earlier.broker, earlier.queue
        yield queue
    except BaseException:
        broker.close()
        raise
    if isinstance(queue, LocalQueue):
        _POOL.give(broker, queue)
    else:
        broker.close()
