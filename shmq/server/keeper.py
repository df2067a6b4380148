"""The keeper: does what is due in queues that no other process uses.

Every operation on a queue first does what is due there: it ends expired leases, delays and
ttls, recovers from dead processes, and moves dead letters. A queue that no process uses stays
as is. Where that is too late (a monitor that reads depths, a consumer of only the
dead-letter queue), a keeper visits every queue of a namespace regularly.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import signal
import time
from collections.abc import Callable
from typing import Final

from shmq.client.local.queue import LocalQueue, attach
from shmq.errors import LockTimeout, NoSuchQueue, QueueDeleted, ShmqError
from shmq.host.namespace.namespace import Namespace
from shmq.host.supervision.heartbeat import Heartbeat
from shmq.host.supervision.signals import end_with_parent, handle_sigterm
from shmq.host.supervision.stderr import show_on_stderr, show_stack_on_demand
from shmq.native import _core, _group, _stream
from shmq.native._core import check_seconds

log = logging.getLogger("shmq")

#: How often new queues are checked for, in seconds.
LOOK_AROUND = 1.0
#: How long a queue whose lock timed out is passed over, in seconds.
PASSED_OVER = 0.5


class Keeper:
    """Tends every queue of a namespace. For one thread; `run` until `stop`.

    The default namespace is that of :func:`shmq.connect`. ``interval`` is how long something
    may be overdue, in seconds, at least 0.001; while no queue has a message, they are looked at as
    often as for new queues, once a second; ``alive`` is called before each queue. A queue
    whose lock another process holds is passed over for a moment. Raises
    :class:`~shmq.InvalidOption`, :class:`~shmq.InvalidName`, and TypeError for a value of
    the wrong type.
    """

    def __init__(
        self,
        namespace: str | None = None,
        interval: float = 0.05,
        *,
        alive: Callable[[], None] | None = None,
    ) -> None:
        check_seconds("interval", interval, 0.001)
        self._namespace = Namespace.chosen(namespace)
        self._interval = interval
        self._queues: dict[str, LocalQueue] = {}
        self._alive = alive or (lambda: None)
        self._held: dict[str, float] = {}
        self._look_around_at = 0.0
        self._stopped = False
        # Not an Event: setting one in a signal handler may deadlock with the wait it should end.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()

    def run(self) -> None:
        """Tend the queues until `stop` is called, from another thread or a signal handler."""
        try:
            while not self._stopped:
                self.tend()
                with contextlib.suppress(queue.Empty):
                    self._wake.get(timeout=self._pause())
        finally:
            self.close()

    def _pause(self) -> float:
        if all(tended.is_idle for tended in self._queues.values()):
            return max(self._interval, LOOK_AROUND)
        return self._interval

    def stop(self) -> None:
        """Let `run` return soon."""
        self._stopped = True
        self._wake.put(None)

    def tend(self) -> None:
        """Do what is due in every queue, once."""
        self._alive()
        if time.monotonic() >= self._look_around_at:
            self._check_all()
        for name, tended in list(self._queues.items()):
            self._alive()
            if self._held.get(name, 0.0) > time.monotonic():
                continue
            try:
                tended.tend()
            except LockTimeout as error:
                self._pass_over(name, error)
            except QueueDeleted:
                self._forget(name)
            except ShmqError as error:
                log.warning("queue %s is not maintained: %s", name, error)
                self._forget(name)
            else:
                self._held.pop(name, None)

    def close(self) -> None:
        """Detach from every queue."""
        for name in list(self._queues):
            self._forget(name)

    def _pass_over(self, name: str, error: LockTimeout) -> None:
        if name not in self._held:
            log.warning("queue %s is skipped for now: %s", name, error)
        self._held[name] = time.monotonic() + PASSED_OVER

    def _check_all(self) -> None:
        self._look_around_at = time.monotonic() + LOOK_AROUND
        for name in self._namespace.queue_names():
            self._alive()
            if name in self._queues:
                continue
            try:
                self._queues[name] = attach(self._namespace, name)
            except NoSuchQueue:
                continue
            except LockTimeout as error:
                self._pass_over(name, error)
            except ShmqError as error:
                log.warning("queue %s is not maintained: %s", name, error)
            except OSError as error:  # the next look around may succeed
                log.warning("queue %s and later ones are skipped: %s", name, error.strerror)
                return

    def _forget(self, name: str) -> None:
        self._held.pop(name, None)
        self._queues.pop(name).close()


def limit_lock_waits(seconds: float) -> None:
    """Raise LockTimeout in this thread after so many seconds of waiting for a lock; 0: default.

    This applies to the locks of queues, partitions and groups, whatever the timeout of the
    operation is.
    """
    for module in (_core, _stream, _group):
        module.set_patience(seconds)


#: How long it waits for the lock of one queue, in seconds.
_LOCK_WAIT: Final = 0.01


def main(namespace: str, level: int, heartbeat: Heartbeat, supervisor: int) -> None:
    """Tend the namespace until SIGTERM, or until the ``supervisor`` ends."""
    end_with_parent(supervisor, signal.SIGTERM)
    show_stack_on_demand()
    show_on_stderr("shmq", level)
    limit_lock_waits(_LOCK_WAIT)
    keeper = Keeper(namespace, alive=heartbeat.beat)
    handle_sigterm(keeper.stop)
    keeper.run()
