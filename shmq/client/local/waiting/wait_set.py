"""What waits on one wakeup: tasks of an event loop, or the descriptors of a process."""

from __future__ import annotations

import os
from typing import Any

from shmq.client.local.waiting.waiting_tasks import TaskQueue, Waiter, wake
from shmq.client.local.waiting.wakeup_pool import WakeupPool
from shmq.client.local.waiting.watcher import Watcher
from shmq.fork_safe import new_lock
from shmq.host.namespace.namespace import Namespace
from shmq.native import _core

#: How long `WaitSet.poll` waits for the lock of one queue, in seconds: the waiters of others are
#: delayed, too.
_LOCK_WAIT = 0.005


#: Those that have not ended, by namespace and loop; the loop is None for descriptors.
sets: dict[tuple[str, object], WaitSet] = {}


class WaitSet:
    """Watches the queues of one namespace for some waiters of this process.

    It keeps a `TaskQueue` as long as one of them waits in it.
    """

    def __init__(self, namespace: Namespace) -> None:
        self._wakeups = WakeupPool.of(namespace)
        self._watcher = Watcher(self._wakeups.take())
        self._task_queues: dict[tuple[int, int], TaskQueue] = {}
        self._watched: dict[_core.Watch, TaskQueue] | None = None
        # A task ended by the garbage collector leaves in whatever thread runs the collector.
        self._lock = new_lock()

    def join(self, queue: Any, event: int, waiter: Waiter) -> TaskQueue:
        """Add it to its queue of waiters."""
        with self._lock:
            task_queue = self._task_queues.get((id(queue), event))
            if task_queue is None:
                task_queue = TaskQueue(queue, event, self._watcher.wakeup, self._lock)
                self._task_queues[id(queue), event] = task_queue
                self._watched = None
            task_queue.join(waiter)
            return task_queue

    def leave(self, task_queue: TaskQueue, waiter: Waiter, *, served: bool) -> None:
        """Remove it from its queue of waiters."""
        with self._lock:
            task_queue.leave(waiter, served=served)
            key = (id(task_queue.watch.queue), task_queue.watch.event)
            if not task_queue.is_empty:
                if task_queue.watch.due < self._watcher.until:
                    self.wake()  # the next one may have armed it
            elif self._task_queues.get(key) is task_queue:
                del self._task_queues[key]
                self._watched = None

    def wake(self) -> None:
        """Have it poll."""
        self._watcher.wakeup.wake()

    def rest(self) -> None:
        """End, unless it is in use."""
        raise NotImplementedError

    def _poll(self) -> None:
        """Call the waiters whose event may have come."""
        with self._lock:
            if self._watched is None:
                self._watched = {
                    task_queue.watch: task_queue for task_queue in self._task_queues.values()
                }
            task_queues = self._watched
        _core.set_patience(_LOCK_WAIT)
        try:
            called = {
                waiter: task_queues[watch]
                for watch in self._watcher.look(list(task_queues))
                for waiter in task_queues[watch].call(closely=self._watcher.closely)
            }
            for lost in wake(called):
                self.leave(called[lost], lost, served=False)
        finally:
            _core.set_patience(0)


def wake_all(namespace: Namespace) -> None:
    """Have the waiters of a handle of that namespace that was closed notified."""
    for waits in _list_of(namespace):
        waits.wake()


def rest(namespace: Namespace) -> None:
    """End the namespace's sets and remove its wakeups, unless they are in use."""
    for waits in _list_of(namespace):
        waits.rest()
    WakeupPool.of(namespace).remove_idle()


def _list_of(namespace: Namespace) -> list[WaitSet]:
    return [waits for (name, _), waits in list(sets.items()) if name == namespace.name]


os.register_at_fork(after_in_child=sets.clear)
