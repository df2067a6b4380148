"""The thread that waits on behalf of a process's event loops and descriptors."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from shmq.client.local.waiting.waiting_tasks import TaskQueue, Waiter, WaitingTask, wake
from shmq.client.local.waiting.wakeup_pool import WakeupPool, at_the_end
from shmq.client.local.waiting.watcher import Watcher
from shmq.errors import LockTimeout, ShmqError
from shmq.fork_safe import new_lock
from shmq.host.namespace.namespace import Namespace
from shmq.lazy_imports import late_imports
from shmq.native import _clock as time
from shmq.native import _core

log = logging.getLogger("shmq")

_T = TypeVar("_T")

#: How long the thread keeps watching after the last waiter has left, in seconds: starting it again
#: costs more than its checks.
_LINGER = 1.0
#: How long the end of the process waits for the thread to end, in seconds.
_END_WAIT = 1.0
#: How long it waits for the lock of one queue, in seconds: the waiters of others are delayed, too.
_LOCK_WAIT = 0.005
#: The pause between two attempts of a task that cannot get a lock, in seconds: each attempt may
#: block its loop for as long as it waits for the lock.
_LOCK_PAUSE = 0.1

_wait_threads: dict[str, WaitThread] = {}
_threads_lock = new_lock()


class WaitThread:
    """Watches the queues of one namespace for the tasks and descriptors of this process.

    Its thread sleeps on one semaphore, without the GIL, and wakes event loops. It keeps a
    `TaskQueue` as long as one of them waits in it.
    """

    def __init__(self, namespace: Namespace) -> None:
        self._wakeups = WakeupPool.of(namespace)
        self._watcher = Watcher(self._wakeups.take())
        self._task_queues: dict[tuple[int, int], TaskQueue] = {}
        self._watched: dict[_core.Watch, TaskQueue] | None = None
        self._lock = new_lock()
        self._ended = False
        self._thread = threading.Thread(
            target=self._run, name=f"shmq waits {namespace.name}", daemon=True
        )
        self._thread.start()
        self._end_later = at_the_end(self.end, 2)

    def join(self, queue: Any, event: int, waiter: Waiter) -> TaskQueue | None:
        """Add it to its queue of waiters; None if the thread has ended."""
        with self._lock:
            if self._ended:
                return None
            task_queue = self._task_queues.get((id(queue), event))
            if task_queue is None:
                task_queue = TaskQueue(queue, event, self._watcher.wakeup)
                self._task_queues[id(queue), event] = task_queue
                self._watched = None
            task_queue.join(waiter)
            return task_queue

    def leave(self, task_queue: TaskQueue, waiter: Waiter, *, served: bool) -> None:
        """Remove it from its queue of waiters."""
        task_queue.leave(waiter, served=served)
        key = (id(task_queue.watch.queue), task_queue.watch.event)
        with self._lock:
            if task_queue.is_empty and self._task_queues.get(key) is task_queue:
                del self._task_queues[key]
                self._watched = None

    def see(self, task_queue: TaskQueue) -> None:
        """A queue of waiters was armed: wake the thread if it would sleep too long for it."""
        until = self._watcher.until
        if task_queue.watch.due < until or until > time.monotonic() + _core.LONG_SLICE:
            self._watcher.wakeup.wake()

    def wake(self) -> None:
        """Wake the thread to check."""
        self._watcher.wakeup.wake()

    def end(self, *, if_idle: bool = False) -> bool:
        """End the thread and remove its semaphore; whether that was done."""
        with self._lock:
            if self._ended or (if_idle and self._task_queues):
                return False
            self._ended = True
        self._end_later.cancel()
        self._watcher.wakeup.wake()
        if self._thread is not threading.current_thread():
            # At exit, a daemon thread may sleep forever and hold what the thread waits for.
            self._thread.join(None if if_idle else _END_WAIT)
        self._wakeups.give_back(self._watcher.wakeup)
        return True

    # ---- the thread ----

    def _run(self) -> None:
        _core.set_patience(_LOCK_WAIT)
        last_used = time.monotonic()
        while not self._ended:
            idle = time.monotonic() > last_used + _LINGER
            self._watcher.sleep(_core.LONG_SLICE, idle=idle)
            if idle or self._task_queues:
                last_used = time.monotonic()
            try:
                self._poll()
            except (ShmqError, OSError) as error:  # no descriptor is left, for example
                log.warning("the wait thread of this process tries again: %s", error)
                time.sleep(_core.SLICE)
            except Exception:
                log.exception("the wait thread of this process goes on after an error")
                time.sleep(_core.SLICE)

    def _poll(self) -> None:
        with self._lock:
            if self._watched is None:
                self._watched = {
                    task_queue.watch: task_queue for task_queue in self._task_queues.values()
                }
            task_queues = self._watched
        called = {
            waiter: task_queues[watch]
            for watch in self._watcher.look(list(task_queues))
            for waiter in task_queues[watch].call(closely=self._watcher.closely)
        }
        for waiting_task in wake(called):
            self.leave(called[waiting_task], waiting_task, served=False)


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
    import asyncio  # noqa: PLC0415 - callers that await have it loaded

    with late_imports:
        from shmq.client.shared import loop_timer  # noqa: PLC0415

    loop = asyncio.get_running_loop()
    waiting_task = WaitingTask(loop)
    wait_thread, task_queue = join(namespace, queue, event, waiting_task)
    timer = None if timeout is None else loop_timer.call_later(loop, timeout, waiting_task.expire)
    found = None
    try:
        while True:
            try:
                task_queue.arm(waiting_task)
                found = attempt()
            except LockTimeout:
                if waiting_task.expired:
                    raise
                await loop_timer.sleep(_LOCK_PAUSE)
                continue
            if found is not None or waiting_task.expired:
                return found
            wait_thread.see(task_queue)
            await waiting_task.future
    finally:
        if timer is not None:
            timer.cancel()
        wait_thread.leave(task_queue, waiting_task, served=found is not None)


def join(
    namespace: Namespace, queue: Any, event: int, waiter: Waiter
) -> tuple[WaitThread, TaskQueue]:
    """Add it to its queue of waiters in the thread of the namespace, which is started if needed."""
    while True:
        with _threads_lock:
            wait_thread = _wait_threads.get(namespace.name)
            if wait_thread is None:
                wait_thread = _wait_threads[namespace.name] = WaitThread(namespace)
            task_queue = wait_thread.join(queue, event, waiter)
            if task_queue is not None:
                return wait_thread, task_queue
            del _wait_threads[namespace.name]


def wake_thread(namespace: Namespace) -> None:
    """Wake the thread to notify the waiters of a handle of that namespace that was closed."""
    wait_thread = _wait_threads.get(namespace.name)
    if wait_thread is not None:
        wait_thread.wake()


def rest(namespace: Namespace) -> None:
    """End the namespace's thread, and remove its semaphores, unless they are in use."""
    with _threads_lock:
        wait_thread = _wait_threads.get(namespace.name)
        if wait_thread is not None and wait_thread.end(if_idle=True):
            del _wait_threads[namespace.name]
    WakeupPool.of(namespace).remove_idle()


os.register_at_fork(after_in_child=_wait_threads.clear)
