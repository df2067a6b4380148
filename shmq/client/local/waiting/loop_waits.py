"""The waits of an event loop's tasks: the loop itself polls a wakeup, without a thread."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import contextvars
import logging
import math
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from shmq.client.local.waiting.wait_set import WaitSet, sets
from shmq.client.local.waiting.wakeup_pool import WakeupPool
from shmq.client.ports.steps import LOCK_PAUSE
from shmq.client.shared import loop_timer
from shmq.errors import LockTimeout, ShmqError
from shmq.host.namespace.namespace import Namespace
from shmq.native import _clock as time
from shmq.native import _core

log = logging.getLogger("shmq")

_T = TypeVar("_T")
_Source = TypeVar("_Source", bound="Source")


class Source(abc.ABC):
    """Something other than a queue whose events post the wakeup of a loop."""

    @property
    @abc.abstractmethod
    def is_idle(self) -> bool:
        """Whether no task waits for it."""

    @abc.abstractmethod
    def poll(self) -> float:
        """Wake the tasks whose event may have come; return when to poll again at the latest."""

    @abc.abstractmethod
    def end(self) -> None:
        """Forget all tasks: their loop is closed."""


class LoopWaits(WaitSet):
    """Watches the queues and streams of one namespace for the tasks of one event loop.

    The loop has the wakeup's descriptor registered from the first wait until it is closed, and so
    keeps the set. It has a timer for the end of the slice, or for what is due earlier, while a task
    waits. All methods but `leave`, `wake` and `rest` are for the loop's thread.
    """

    def __init__(self, namespace: Namespace, loop: asyncio.AbstractEventLoop) -> None:
        wakeup = self.watcher.wakeup
        #: What returns the wakeup of a set that was collected with its loop.
        self._finalizer = weakref.finalize(self, WakeupPool.of(namespace).give_back, wakeup)
        self._finalizer.atexit = False
        self._name = namespace.name
        self._loop = loop
        self._timer: loop_timer.Timer | None = None
        #: By the ids of the handles.
        self._sources: dict[int, Source] = {}
        # The loop keeps the callback: it must not keep what the context of this task refers to.
        contextvars.Context().run(loop.add_reader, wakeup.fileno(), self._on_post)

    @classmethod
    def of(cls, namespace: Namespace, loop: asyncio.AbstractEventLoop) -> LoopWaits:
        """The running loop's set in that namespace."""
        found = sets.get((namespace.name, id(loop)))
        if isinstance(found, LoopWaits) and found._loop is loop:
            return found
        end_closed()
        waits = sets[namespace.name, id(loop)] = cls(namespace, loop)
        return waits

    @property
    def is_lost(self) -> bool:
        """Whether its loop was closed."""
        return self._loop.is_closed()

    def source_of(self, handle: object, make: Callable[[_core.Wakeup], _Source]) -> _Source:
        """The source of a handle, which ``make`` makes with this loop's wakeup."""
        with self.lock:
            found: Any = self._sources.get(id(handle))
            if found is None:
                found = self._sources[id(handle)] = make(self.watcher.wakeup)
        source: _Source = found
        return source

    def drop_idle(self, handle: object) -> None:
        """Forget the source of a handle if no task waits for it. From any thread."""
        with self.lock:
            source = self._sources.get(id(handle))
            if source is not None and source.is_idle:
                del self._sources[id(handle)]

    def watch_time(self, due: float) -> None:
        """Set the timer for a queue that was armed, in which something is due."""
        self._set_timer(min(due, time.monotonic() + _core.SLICE))

    def rest(self) -> None:
        # In its loop: only this one may change what it has registered.
        if self._loop.is_running() and self._loop is not asyncio._get_running_loop():
            with contextlib.suppress(RuntimeError):  # it is closed by now
                self._loop.call_soon_threadsafe(self._end_if_idle)
        else:
            self._end_if_idle()

    def _end_if_idle(self) -> None:
        if self.is_lost or (self.is_idle and not self._sources):
            self.end()

    def end(self) -> None:
        """Return the wakeup; tasks that are left in a closed loop wait no more."""
        found = self._finalizer.detach()
        if found is None:
            return
        sets.pop((self._name, id(self._loop)), None)
        if not self._loop.is_closed():
            self._loop.remove_reader(self.watcher.wakeup.fileno())
        if self._timer is not None:
            self._timer.cancel()
        self.leave_all()
        for source in list(self._sources.values()):
            source.end()
        self._sources.clear()
        _, give_back, arguments, _ = found
        give_back(*arguments)

    def forget(self) -> None:
        self._finalizer.detach()

    def _on_post(self) -> None:
        self.watcher.wakeup.clear()
        self._call()

    def _on_time(self) -> None:
        self._timer, self.watcher.until = None, math.inf
        self._call()

    def _call(self) -> None:
        try:
            pause = self._poll_all()
        except (ShmqError, OSError) as error:  # no descriptor is left, for example
            log.warning("the waits of an event loop are checked again: %s", error)
            pause = _core.SLICE
        except Exception:
            log.exception("the waits of an event loop go on after an error")
            pause = _core.SLICE
        if pause < math.inf:
            self._set_timer(time.monotonic() + pause)

    def _poll_all(self) -> float:
        """Wake the tasks whose event may have come; return the time until the next poll."""
        pause = math.inf
        if not self.is_idle:
            self.poll()
            pause = self.watcher.pause
        sources = list(self._sources.values())
        if sources:
            until = min(source.poll() for source in sources)
            pause = min(pause, until - time.monotonic())
        return pause

    def _set_timer(self, until: float) -> None:
        if until >= self.watcher.until:
            return
        if self._timer is not None:
            self._timer.cancel()
        self.watcher.until = until
        pause = max(0.0, until - time.monotonic())
        self._timer = loop_timer.call_later(self._loop, pause, self._on_time)


async def wait_for(
    namespace: Namespace,
    queue: Any,
    event: int,
    attempt: Callable[[], _T | None],
    timeout: float | None,
) -> _T | None:
    """The first result of ``attempt`` that is not None; None if ``timeout`` passed.

    The attempt is made in this task, so a cancelled task has taken nothing. If a lock cannot be
    had, it is repeated after a pause, in which the loop's other tasks run; LockTimeout is raised
    once ``timeout`` has passed.
    """
    loop = asyncio.get_running_loop()
    waits = LoopWaits.of(namespace, loop)
    is_first = waits.is_idle and event != _core.EVENT_ARRIVED
    task = _core.WaitingTask(loop)
    tasks = waits.join(queue, event, task)
    timer = None if timeout is None else loop_timer.call_later(loop, timeout, task.expire)
    found = None
    try:
        if is_first and (longest := queue.spin_time(event)):
            found = await _spin(queue, event, attempt, longest)
        while found is None:
            try:
                due = tasks.arm(task)
                found = attempt()
            except LockTimeout:
                if task.expired:
                    raise
                await loop_timer.sleep(LOCK_PAUSE)
                continue
            if found is not None or task.expired:
                break
            if due < waits.watcher.until:
                waits.watch_time(due)
            await task.future
            if task.expired:
                queue.look_for_dead()
    finally:
        if timer is not None:
            timer.cancel()
        waits.leave(tasks, task, found is not None)
    return found


async def _spin(
    queue: Any, event: int, attempt: Callable[[], _T | None], longest: float
) -> _T | None:
    """Try again between the steps of other tasks, for ``longest`` seconds at most."""
    end = time.monotonic() + longest
    found = None
    while found is None and (left := end - time.monotonic()) > 0:
        await asyncio.sleep(0)
        try:
            found = attempt()
        except LockTimeout:
            return None
    queue.learn_spin(event, longest, -1 if found is None else longest - left)
    return found


def end_closed() -> None:
    """End the sets of loops that were closed."""
    for waits in list(sets.values()):
        if isinstance(waits, LoopWaits) and waits.is_lost:
            waits.end()
