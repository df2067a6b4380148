"""The thread that waits for a stream's records on behalf of a process's event loops."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Mapping

from shmq.client.shared import loop_timer
from shmq.fork_safe import new_lock
from shmq.native import _core, _stream

#: How long the thread stays after the last waiter has left, in seconds.
_LINGER = 1.0


class _Waiter:
    """A task that waits until one of its partitions has a record at or after its offset."""

    def __init__(self, position: Mapping[int, int]) -> None:
        self.position = dict(position)
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()

    def call(self) -> None:
        """Wake the task to check; from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self.loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


class StreamWaitThread:
    """Watches one stream for the tasks of this process that wait for it.

    Its thread runs as long as a task waits. After a fork the child cannot use it.
    """

    def __init__(self, logs: list[_stream.Partition], look: Callable[[], bool]) -> None:
        self._logs = logs
        self._poll = look  # checks for dead processes; whether another one does that from now on
        self._process = os.getpid()
        self._waiters: set[_Waiter] = set()
        self._lock = new_lock()
        self._thread: threading.Thread | None = None

    @property
    def is_ours(self) -> bool:
        """Whether it was made in this process."""
        return self._process == os.getpid()

    async def wait_for_any(self, position: Mapping[int, int], timeout: float | None) -> bool:
        """Whether one of these partitions has a record at or after the offset, in time."""
        waiting_task = _Waiter(position)
        self.join(waiting_task)
        try:
            return await loop_timer.wait(waiting_task.future, timeout)
        finally:
            self.leave(waiting_task)

    def join(self, waiting_task: _Waiter) -> None:
        """Add a task, to be called once there may be a record for it."""
        with self._lock:
            self._waiters.add(waiting_task)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="shmq stream waits", daemon=True
                )
                self._thread.start()
        self._logs[0].wake()

    def leave(self, waiting_task: _Waiter) -> None:
        """Remove a task that waits no more."""
        with self._lock:
            self._waiters.discard(waiting_task)

    def _run(self) -> None:
        idle, at_most = 0.0, _core.SLICE
        while idle < _LINGER or not self._is_ending():
            with self._lock:
                waiters = list(self._waiters)
            wakeup = self._arm_waiters(waiters)
            for waiting_task in [
                waiting_task for waiting_task in waiters if self._has(waiting_task)
            ]:
                self.leave(waiting_task)
                waiting_task.call()
            slept = at_most if waiters else _core.SLICE
            woken = self._logs[0].sleep(wakeup, slept)
            if not woken and waiters:
                at_most = _core.LONG_SLICE if self._poll() else _core.SLICE
            idle = 0.0 if waiters or woken else idle + slept

    def _arm_waiters(self, waiters: list[_Waiter]) -> int:
        wakeup = self._logs[0].arm()
        for partition in {p for waiting_task in waiters for p in waiting_task.position}:
            self._logs[partition].arm()
        return wakeup

    def _has(self, waiting_task: _Waiter) -> bool:
        return any(self._logs[p].reaches(offset) for p, offset in waiting_task.position.items())

    def _is_ending(self) -> bool:
        with self._lock:
            if self._waiters:
                return False
            self._thread = None
            return True
