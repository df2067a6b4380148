"""Waiting for the disk on behalf of event loops, and the error if it does not confirm."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from shmq.client.shared import durability
from shmq.errors import NotConfirmed, QueueDeleted, ShmqError
from shmq.fork_safe import new_lock
from shmq.lazy_imports import late_imports

if TYPE_CHECKING:
    import asyncio

    _Waiter = tuple[int, int, asyncio.AbstractEventLoop, asyncio.Future[None]]

#: The longest wait of the thread before it removes waiters that have given up, in seconds.
_SLICE = 0.25
#: How long the thread stays after the last waiter has left, in seconds.
_LINGER = 1.0

_numbers = itertools.count()
_waiters: dict[int, Waiters] = {}
_lock = new_lock()


class Waiters:
    """The tasks of this process that wait for the journal of one queue.

    One thread sleeps for all of them, without the GIL, and wakes their loops. It runs as long as a
    task waits.
    """

    def __init__(self, queue: Any) -> None:
        self._queue = queue
        self._heap: list[_Waiter] = []
        self._change = threading.Condition(_lock)
        thread = threading.Thread(target=self._run, name=f"shmq journal {queue.name}", daemon=True)
        thread.start()

    def join(self, seq: int, future: asyncio.Future[None]) -> None:
        """Complete the future once ``seq`` is on disk, or cannot be. The caller holds the lock."""
        heapq.heappush(self._heap, (seq, next(_numbers), future.get_loop(), future))
        self._change.notify()

    def _run(self) -> None:
        while (seq := self._first()) is not None:
            fails = False
            try:
                synced = self._queue.journal.wait_synced(seq, _SLICE)
                fails = not synced and _is_hopeless(self._queue)
            except ShmqError:
                fails = True
            _wake(self._served(self._queue.journal.synced, everyone=fails))

    def _first(self) -> int | None:
        """The lowest sequence number that a task waits for; None: the thread must end."""
        with self._change:
            if not self._heap:
                self._change.wait(_LINGER)
            if self._heap:
                return self._heap[0][0]
            if _waiters.get(id(self._queue)) is self:
                del _waiters[id(self._queue)]
            return None

    def _served(self, synced: int, *, everyone: bool) -> list[_Waiter]:
        """Remove and return the waiters to wake; forget those that have given up."""
        with self._change:
            served = []
            while self._heap and (everyone or self._heap[0][0] <= synced):
                served.append(heapq.heappop(self._heap))
            left = [waiter for waiter in self._heap if not waiter[3].done()]
            if len(left) < len(self._heap):
                heapq.heapify(left)
                self._heap = left
            return served


def _wake(served: Iterable[_Waiter]) -> None:
    """Wake the waiters with one call to each loop."""
    loops: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for _, _, loop, future in served:
        loops.setdefault(loop, []).append(future)
    for loop, futures in loops.items():
        with contextlib.suppress(RuntimeError):  # the loop was closed in the meantime
            loop.call_soon_threadsafe(_complete, futures)


def _complete(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)


def _is_hopeless(queue: Any) -> bool:
    """Whether waiting for the journal is pointless now."""
    return bool(queue.journal.error or queue.segment.deleted or queue.closed)


async def synced(queue: Any, seq: int, timeout: float | None) -> bool:
    """``queue.journal.wait_synced`` for asyncio: other tasks run while it waits."""
    import asyncio  # noqa: PLC0415 - callers that await have it loaded

    with late_imports:
        from shmq.client.shared import loop_timer  # noqa: PLC0415

    queue.journal.request_sync(seq)
    if queue.journal.synced >= seq:
        return True
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    with _lock:
        waiters = _waiters.get(id(queue))
        if waiters is None:
            waiters = _waiters[id(queue)] = Waiters(queue)
        waiters.join(seq, future)
    try:
        await loop_timer.wait(future, timeout)
    finally:
        future.cancel()
    return bool(queue.journal.synced >= seq)


def not_confirmed(queue: Any, seq: int, taken: int) -> ShmqError:
    """The error of a put of ``taken`` messages, up to ``seq``, that are not known to be on disk."""
    if queue.segment.deleted:
        return QueueDeleted(f"queue {queue.name!r} was deleted before message {seq} was on disk")
    queue.check_memory()
    what = f"message {seq}" if taken == 1 else f"{taken} messages, the last one {seq},"
    if error := queue.journal.error or queue.journal.last_error:  # it may work again by now
        why = (
            f"the disk of its journal fails: {os.strerror(error)}; it is written as soon as that "
            f"works again"
        )
    elif queue.closed:
        why = "this handle was closed in the meantime"
    elif not queue.has_writer() and queue.namespace.roles.writer_pid is None:
        why = f"{durability.missing(queue.namespace)}; it is written then"
    else:
        why = (
            f"its journal has come to message {queue.journal.synced} within the timeout: wait "
            f"longer, or see `shmq stats -q {queue.name}`"
        )
    text = f"queue {queue.name!r} has {what} in memory, but not known to be on disk: {why}"
    return NotConfirmed(text, seq, taken)


os.register_at_fork(after_in_child=_waiters.clear)
