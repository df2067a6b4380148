"""The thread that waits on behalf of a process's descriptors."""

from __future__ import annotations

import logging
import threading
from typing import Any, cast

from shmq.client.local.waiting.wait_set import WaitSet, sets
from shmq.client.local.waiting.wakeup_pool import WakeupPool, at_the_end
from shmq.errors import ShmqError
from shmq.fork_safe import new_lock
from shmq.host.namespace.namespace import Namespace
from shmq.native import _clock as time
from shmq.native import _core

log = logging.getLogger("shmq")

#: How long the thread keeps watching after the last waiter has left, in seconds: starting it again
#: costs more than its checks.
_LINGER = 1.0
#: How long the end of the process waits for the thread to end, in seconds.
_END_WAIT = 1.0

_threads_lock = new_lock()


class WaitThread(WaitSet):
    """Watches the queues of one namespace for the descriptors of this process.

    Its thread sleeps on the wakeup, without the GIL.
    """

    def __init__(self, namespace: Namespace) -> None:
        self._wakeups = WakeupPool.of(namespace)
        self._namespace = namespace.name
        self._has_ended = False
        self._thread = threading.Thread(
            target=self._run, name=f"shmq waits {namespace.name}", daemon=True
        )
        self._thread.start()
        self._end_later = at_the_end(self.end, 2)

    def try_join(self, queue: Any, event: int, waiter: _core.Waiter) -> _core.TaskQueue | None:
        """As `join`; None if the thread has ended."""
        with self.lock:
            return None if self._has_ended else self.join(queue, event, waiter)

    def watch_time(self, due: float) -> None:
        """Wake the thread if it would sleep too long for a queue that was armed."""
        until = self.watcher.until
        if due < until or until > time.monotonic() + _core.LONG_SLICE:
            self.wake()

    def rest(self) -> None:
        with _threads_lock:
            if self.end(if_idle=True):
                sets.pop((self._namespace, 0), None)

    def end(self, *, if_idle: bool = False) -> bool:
        """End the thread and return its wakeup; whether that was done."""
        # At exit, a daemon thread may sleep forever and hold what this one or ours waits for.
        if not self.lock.acquire(timeout=_END_WAIT):
            return False
        try:
            if self._has_ended or (if_idle and not self.is_idle):
                return False
            self._has_ended = True
        finally:
            self.lock.release()
        self._end_later.cancel()
        self.wake()
        if self._thread is not threading.current_thread():
            self._thread.join(None if if_idle else _END_WAIT)
        self._wakeups.give_back(self.watcher.wakeup)
        return True

    # ---- the thread ----

    def _run(self) -> None:
        last_used = time.monotonic()
        while not self._has_ended:
            idle = time.monotonic() > last_used + _LINGER
            self.watcher.sleep(_core.LONG_SLICE, idle=idle)
            if idle or not self.is_idle:
                last_used = time.monotonic()
            try:
                self.poll()
            except (ShmqError, OSError) as error:  # no descriptor is left, for example
                log.warning("the wait thread of this process tries again: %s", error)
                time.sleep(_core.SLICE)
            except Exception:
                log.exception("the wait thread of this process goes on after an error")
                time.sleep(_core.SLICE)


def join(
    namespace: Namespace, queue: Any, event: int, waiter: _core.Waiter
) -> tuple[WaitThread, _core.TaskQueue]:
    """Add it to its queue of waiters in the thread of the namespace, which is started if needed."""
    while True:
        with _threads_lock:
            found = sets.get((namespace.name, 0)) or WaitThread(namespace)
            wait_thread = sets[namespace.name, 0] = cast("WaitThread", found)
            task_queue = wait_thread.try_join(queue, event, waiter)
            if task_queue is not None:
                return wait_thread, task_queue
            del sets[namespace.name, 0]
