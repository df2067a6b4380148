"""The tasks that wait for the same event of the same queue, in order."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from shmq.errors import ShmqError
from shmq.native import _core

if TYPE_CHECKING:
    import asyncio

__all__ = ["TaskQueue", "WaitingTask", "wake"]


class WaitingTask:
    """One waiting task."""

    __slots__ = ("called", "expired", "future", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.called = False
        self.expired = False
        self.future: asyncio.Future[None] = loop.create_future()

    def expire(self) -> None:
        """End the wait at its timeout. Must be called in the task's loop."""
        self.expired = True
        _resolve([self.future])


class TaskQueue:
    """Waiting tasks of any number of event loops, first come, first served.

    Each wakeup calls one task. As long as some tasks were not called, either the queue is armed, or
    a called task has not left yet: a task that leaves after a call calls the next one, if there is
    something for it, or arms the queue. The last task disarms the queue, which wakes another
    process for what is left. So every wakeup is used or passed on. A task keeps its place until it
    leaves.

    Tasks that wait for arriving messages with a filter are all called at each wakeup: one of them
    may match what another leaves.
    """

    def __init__(self, queue: Any, event: int, wakeup: _core.Wakeup) -> None:
        self.watch = _core.Watch(queue, event, wakeup)
        self._all = event == _core.EVENT_ARRIVED
        self._waiters: OrderedDict[WaitingTask, None] = OrderedDict()
        self._called = 0
        # A task ended by the garbage collector leaves in whatever thread runs the collector.
        self._lock = threading.RLock()

    def join(self, waiting_task: WaitingTask) -> None:
        """Append the task."""
        self._waiters[waiting_task] = None

    @property
    def is_empty(self) -> bool:
        """Whether no task waits."""
        return not self._waiters

    def arm(self, waiting_task: WaitingTask) -> None:
        """Arm the queue: an event after the task's next attempt will wake it.

        Raises what an operation on the queue raises.
        """
        with self._lock:
            self._answered(waiting_task)
            if waiting_task.future.done():
                waiting_task.future = waiting_task.loop.create_future()
            if not self.watch.is_armed:
                self.watch.arm()

    def leave(self, waiting_task: WaitingTask, *, served: bool) -> None:
        """Remove the task, ``served`` or not. May be called again."""
        with self._lock:
            if waiting_task not in self._waiters:
                return
            del self._waiters[waiting_task]
            was_called = self._answered(waiting_task)
            if not self._waiters:
                self.watch.disarm()
                return
            next_ = self._next() if was_called or served else []
        for lost in wake(next_):
            self.leave(lost, served=False)

    def call(self, *, closely: bool) -> list[WaitingTask]:
        """The tasks to be woken now that the event may have come.

        Unless ``closely``, none are woken while a called task has not answered.
        """
        with self._lock:
            if self.watch.has_ended or self._all:
                return self._call_some(len(self._waiters))
            return [] if self._called and not closely else self._call_some(1)

    def _next(self) -> list[WaitingTask]:
        if self._all or self._called == len(self._waiters):
            return []
        try:
            if not _core.scan([self.watch], True)[0]:
                if not self.watch.is_armed:
                    self.watch.arm()
                if not _core.scan([self.watch], True)[0]:
                    return []
        except ShmqError:
            return self._call_some(len(self._waiters))  # each gets the error by its own attempt
        return self._call_some(1)

    def _call_some(self, count: int) -> list[WaitingTask]:
        called: list[WaitingTask] = []
        for waiting_task in self._waiters:
            if len(called) == count:
                break
            if not waiting_task.called:
                waiting_task.called = True
                called.append(waiting_task)
        self._called += len(called)
        return called

    def _answered(self, waiting_task: WaitingTask) -> bool:
        was_called, waiting_task.called = waiting_task.called, False
        self._called -= was_called
        return was_called


def wake(waiters: Iterable[WaitingTask]) -> list[WaitingTask]:
    """Wake the called tasks, each in its loop; returns those whose loop is closed."""
    import asyncio  # noqa: PLC0415 - callers that await have it loaded

    lost: list[WaitingTask] = []
    by_loop: dict[asyncio.AbstractEventLoop, list[WaitingTask]] = {}
    for waiting_task in waiters:
        by_loop.setdefault(waiting_task.loop, []).append(waiting_task)
    here = asyncio._get_running_loop()
    for loop, called in by_loop.items():
        futures = [waiting_task.future for waiting_task in called]
        if loop is here:
            _resolve(futures)
            continue
        try:
            loop.call_soon_threadsafe(_resolve, futures)
        except RuntimeError:
            lost += called
    return lost


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
