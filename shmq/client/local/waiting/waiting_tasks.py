"""Those that wait for the same event of the same queue, in order: tasks, or descriptors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from shmq.errors import ShmqError
from shmq.native import _core

if TYPE_CHECKING:
    import asyncio


class Waiter:
    """Waits in a `TaskQueue`; ``called``: it was woken, and has not looked since."""

    __slots__ = ("called",)

    def __init__(self) -> None:
        self.called = False

    def renew(self) -> None:
        """It is about to wait again."""


class WaitingDescriptor(Waiter):
    """A descriptor that ``tell`` makes readable, from any thread."""

    __slots__ = ("tell",)

    def __init__(self, tell: Callable[[], None]) -> None:
        super().__init__()
        self.tell = tell


class WaitingTask(Waiter):
    """One waiting task."""

    __slots__ = ("_thread", "expired", "future", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.loop = loop
        self._thread = threading.get_ident()
        self.expired = False
        self.future: asyncio.Future[None] = loop.create_future()

    def renew(self) -> None:
        if self.future.done():
            self.future = self.loop.create_future()

    def expire(self) -> None:
        """End the wait at its timeout. Must be called in the task's loop."""
        self.expired = True
        _resolve(self.future)

    def wake(self) -> bool:
        """End the wait, from any thread; False if the loop is closed."""
        try:
            if threading.get_ident() == self._thread:
                _resolve(self.future)
            else:
                self.loop.call_soon_threadsafe(_resolve, self.future)
        except RuntimeError:
            return False
        return True


class TaskQueue:
    """Waiting tasks of an event loop, or descriptors, first come, first served.

    Each wakeup calls one task. As long as some tasks were not called, either the queue is armed, or
    a called task has not left yet: a task that leaves after a call calls the next one, if there is
    something for it, or arms the queue. The last task disarms the queue, which wakes another
    process for what is left. So every wakeup is used or passed on. A task keeps its place until it
    leaves.

    Tasks that wait for arriving messages with a filter are all called at each wakeup: one of them
    may match what another leaves. Descriptors wait so, too: it is open whether a message is taken
    after one became readable.
    """

    def __init__(
        self, queue: Any, event: int, wakeup: _core.Wakeup, lock: threading.RLock
    ) -> None:
        self.watch = _core.Watch(queue, event, wakeup)
        self._all = event == _core.EVENT_ARRIVED
        self._waiters: dict[Waiter, None] = {}
        self._called = 0
        self._lock = lock

    def join(self, waiter: Waiter) -> None:
        """Append it."""
        self._waiters[waiter] = None

    @property
    def is_empty(self) -> bool:
        """Whether none waits."""
        return not self._waiters

    def waiters(self) -> list[Waiter]:
        """Those that wait, in their order."""
        return list(self._waiters)

    def arm(self, waiter: Waiter) -> None:
        """Arm the queue: an event after the next attempt will wake the waiter.

        If all are called at each event, one that came before this is not seen any more, so the
        others are called here. Raises what an operation on the queue raises.
        """
        others: list[Waiter] = []
        with self._lock:
            self._clear_called(waiter)
            waiter.renew()
            if not self.watch.is_armed:
                self.watch.arm()
                if self._all:
                    others = self._call_some(len(self._waiters), other_than=waiter)
        for lost in wake(others):
            self.leave(lost, served=False)

    def leave(self, waiter: Waiter, *, served: bool) -> None:
        """Remove the waiter, ``served`` or not. May be called again."""
        with self._lock:
            if waiter not in self._waiters:
                return
            del self._waiters[waiter]
            was_called = self._clear_called(waiter)
            if not self._waiters:
                self.watch.disarm()
                return
            next_ = self._choose_next() if was_called or served else []
        for lost in wake(next_):
            self.leave(lost, served=False)

    def call(self, *, closely: bool) -> list[Waiter]:
        """Those to be woken now that the event may have come.

        Unless ``closely``, none are woken while a called one has not answered.
        """
        with self._lock:
            if self.watch.has_ended or self._all:
                return self._call_some(len(self._waiters))
            return [] if self._called and not closely else self._call_some(1)

    def _choose_next(self) -> list[Waiter]:
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

    def _call_some(self, count: int, other_than: Waiter | None = None) -> list[Waiter]:
        called: list[Waiter] = []
        for waiter in self._waiters:
            if len(called) == count:
                break
            if not waiter.called and waiter is not other_than:
                waiter.called = True
                called.append(waiter)
        self._called += len(called)
        return called

    def _clear_called(self, waiter: Waiter) -> bool:
        was_called, waiter.called = waiter.called, False
        self._called -= was_called
        return was_called


def wake(waiters: Iterable[Waiter]) -> list[WaitingTask]:
    """Wake the called ones, a task in its loop; returns the tasks whose loop is closed."""
    lost: list[WaitingTask] = []
    for waiter in waiters:
        if isinstance(waiter, WaitingTask):
            if not waiter.wake():
                lost.append(waiter)
        elif isinstance(waiter, WaitingDescriptor):
            waiter.tell()
    return lost


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
