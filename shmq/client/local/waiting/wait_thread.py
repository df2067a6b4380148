"""The thread that waits on behalf of a process's event loops."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from shmq.client.local.waiting.bell_pool import Bells, at_the_end
from shmq.client.local.waiting.bell_watcher import Watcher
from shmq.client.local.waiting.waiting_tasks import Line, Waiter, wake
from shmq.errors import LockTimeout
from shmq.namespace.namespace import Namespace
from shmq.native import _core

__all__ = ["rest", "ring", "wait_for"]

log = logging.getLogger("shmq")

_T = TypeVar("_T")

#: How long the thread keeps watch when nobody waits any more, in seconds: waking it costs
#: more than its looks.
_LINGER = 1.0
#: How long it waits for the lock of one queue, in seconds: the others' waiters would wait, too.
_LOCK_WAIT = 0.005
#: What passes between two attempts of a task that cannot have a lock, in seconds: each may hold
#: up its loop for as long, while the lock is waited for.
_LOCK_PAUSE = 0.1

_hubs: dict[str, Hub] = {}
_hubs_lock = threading.Lock()


class Hub:
    """Watches the queues of one namespace that tasks of this process wait for.

    Its thread sleeps on one bell, without the interpreter's lock, and wakes event loops.
    A line is here as long as somebody stands in it.
    """

    def __init__(self, namespace: Namespace) -> None:
        self._bells = Bells.of(namespace)
        self._watcher = Watcher(self._bells.take())
        self._lines: dict[tuple[int, int], Line] = {}
        self._watched: dict[_core.Watch, Line] | None = None
        self._lock = threading.RLock()
        self._ended = False
        self._thread = threading.Thread(
            target=self._run, name=f"shmq hub {namespace.name}", daemon=True
        )
        self._thread.start()
        self._end_later = at_the_end(self.end, 2)

    def join(self, queue: Any, event: int, waiter: Waiter) -> Line | None:
        """Put the waiter into its line; None if the hub has ended."""
        with self._lock:
            if self._ended:
                return None
            line = self._lines.get((id(queue), event))
            if line is None:
                line = Line(queue, event, self._watcher.bell)
                self._lines[id(queue), event] = line
                self._watched = None
            line.join(waiter)
            return line

    def leave(self, line: Line, waiter: Waiter, *, served: bool) -> None:
        """Take the waiter out of it."""
        line.leave(waiter, served=served)
        key = (id(line.watch.queue), line.watch.event)
        with self._lock:
            if line.is_empty and self._lines.get(key) is line:
                del self._lines[key]
                self._watched = None

    def see(self, line: Line) -> None:
        """A line was armed: wake the thread if it would sleep too long for it."""
        until = self._watcher.until
        if line.watch.due < until or until > time.monotonic() + _core.SLICE:
            self._watcher.bell.ring()

    def ring(self) -> None:
        """Have the thread look."""
        self._watcher.bell.ring()

    def end(self, *, if_idle: bool = False) -> bool:
        """End the thread and remove the bell; whether it was done."""
        with self._lock:
            if self._ended or (if_idle and self._lines):
                return False
            self._ended = True
        self._end_later.cancel()
        self._watcher.bell.ring()
        if self._thread is not threading.current_thread():
            self._thread.join()
        self._bells.give_back(self._watcher.bell)
        return True

    # ---- the thread ----

    def _run(self) -> None:
        _core.set_patience(_LOCK_WAIT)
        last_used = time.monotonic()
        while not self._ended:
            idle = time.monotonic() > last_used + _LINGER
            self._watcher.sleep(_core.SLICE, idle=idle)
            if idle or self._lines:
                last_used = time.monotonic()
            try:
                self._look()
            except Exception:
                log.exception("the hub of this process goes on after an error")
                time.sleep(_core.SLICE)

    def _look(self) -> None:
        with self._lock:
            if self._watched is None:
                self._watched = {line.watch: line for line in self._lines.values()}
            lines = self._watched
        called = {
            waiter: lines[watch]
            for watch in self._watcher.look(list(lines))
            for waiter in lines[watch].call(closely=self._watcher.closely)
        }
        for waiter in wake(called):
            self.leave(called[waiter], waiter, served=False)


async def wait_for(
    namespace: Namespace,
    queue: Any,
    event: int,
    attempt: Callable[[], _T | None],
    timeout: float | None,
) -> _T | None:
    """What ``attempt`` returns as soon as that is not None; None if ``timeout`` passed.

    The attempt is made in this task, so that a task that is cancelled has taken nothing. Where
    a lock is not to be had it is made again after a pause, in which the loop's other tasks run;
    LockTimeout is raised once ``timeout`` has passed.
    """
    import asyncio  # noqa: PLC0415 - who awaits has it; others need it not

    loop = asyncio.get_running_loop()
    waiter = Waiter(loop)
    hub, line = _join(namespace, queue, event, waiter)
    timer = None if timeout is None else loop.call_later(timeout, waiter.expire)
    found = None
    try:
        while True:
            try:
                line.arm(waiter)
                found = attempt()
            except LockTimeout:
                if waiter.expired:
                    raise
                await asyncio.sleep(_LOCK_PAUSE)
                continue
            if found is not None or waiter.expired:
                return found
            hub.see(line)
            await waiter.future
    finally:
        if timer is not None:
            timer.cancel()
        hub.leave(line, waiter, served=found is not None)


def _join(namespace: Namespace, queue: Any, event: int, waiter: Waiter) -> tuple[Hub, Line]:
    while True:
        with _hubs_lock:
            hub = _hubs.get(namespace.name)
            if hub is None:
                hub = _hubs[namespace.name] = Hub(namespace)
            line = hub.join(queue, event, waiter)
            if line is not None:
                return hub, line
            del _hubs[namespace.name]


def ring(namespace: Namespace) -> None:
    """A handle of that namespace was closed: whoever waits through it is to be told."""
    hub = _hubs.get(namespace.name)
    if hub is not None:
        hub.ring()


def rest(namespace: Namespace) -> None:
    """End the namespace's thread, and remove its bells, unless they are in use."""
    with _hubs_lock:
        hub = _hubs.get(namespace.name)
        if hub is not None and hub.end(if_idle=True):
            del _hubs[namespace.name]
    Bells.of(namespace).remove_idle()


def _forked() -> None:
    global _hubs_lock  # noqa: PLW0603 - a lock that a thread held at the fork stays held
    _hubs_lock = threading.Lock()
    _hubs.clear()


os.register_at_fork(after_in_child=_forked)
