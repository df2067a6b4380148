"""The deaths of worker processes: the message that was being handled keeps why it failed."""

from __future__ import annotations

import contextlib
import logging
import re
import signal
from pathlib import Path
from typing import Final

from shmq.api import Message, Queue
from shmq.api.contract import unwrapped
from shmq.client.local.queue import LocalQueue
from shmq.errors import LeaseExpired, QueueDeleted, ShmqError
from shmq.host.namespace.roles import Roles
from shmq.host.supervision.heartbeat import SharedNumbers
from shmq.native import _clock as time
from shmq.workers.plan import Plan

log = logging.getLogger("shmq.workers")

#: The exit code with which faulthandler ends a process at the timeout of its handler.
_TIMED_OUT: Final = 1

#: How long a request to a server may take, in seconds, as the supervisor has processes to restart
#: meanwhile. The server returns the message itself after a second.
_PATIENCE: Final = 5.0

_OWN_CGROUP: Final = Path("/proc/self/cgroup")
#: Where version 2 of cgroups is mounted: alone, and beside version 1.
_MOUNTS: Final = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
#: Of the cgroup alone, and with those below it, which older kernels have.
_EVENTS: Final = ("memory.events.local", "memory.events")


class CurrentDelivery(SharedNumbers):
    """The message that a process is handling, in shared memory: it outlives that process.

    The process writes it, and its supervisor reads it after the end of the process. It is the
    receipt, 0 without a message, and when its handler was called, in ns.
    """

    NAME = "shmq-delivery"

    def begin(self, message: Message) -> None:
        """Note a message that is about to be handled."""
        self.numbers[0] = message.receipt

    def call(self) -> None:
        """Note that its handler is about to be called, for a handler with a timeout."""
        self.numbers[1] = time.monotonic_ns()

    def end(self) -> None:
        """Note that it has been settled. Without a message it does nothing."""
        self.numbers[0] = 0

    def take(self) -> tuple[int, float]:
        """Return and forget the receipt, and how many seconds ago its handler was called."""
        receipt, called = self.numbers
        self.end()
        return receipt, (time.monotonic_ns() - called) / 1e9


class WatchedQueue:
    """A plan's queue, as its supervisor has it open to report deaths there.

    A server waits for the report as well, as the processes connect as supervised ones.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._open = contextlib.ExitStack()
        self._queue: Queue | None = None
        self._roles: Roles | None = None

    def attach(self) -> None:
        """Attach to the queue of that name, again if it was recreated. Raises what that raises."""
        self.close()
        with contextlib.ExitStack() as stack:
            broker = stack.enter_context(self._plan.reach(_PATIENCE))
            queue = broker.queue(self._plan.queue)
            local = unwrapped(queue)
            self._roles = local.namespace.roles if isinstance(local, LocalQueue) else None
            self._queue, self._open = queue, stack.pop_all()

    def close(self) -> None:
        """Close the queue."""
        self._queue = None
        self._open.close()

    def watch(self, pid: int) -> None:
        """Be the process that reports the death of process ``pid``: others wait for that."""
        if self._roles is not None:
            with contextlib.suppress(ShmqError, OSError):  # they may be first
                self._roles.supervise(pid)

    def report_death(self, pid: int, receipt: int, reason: str) -> None:
        """Return the message of a dead process to its place, with the reason as its error.

        It counts as delivered, as without a report. A message whose lease is over stays as it is:
        it was settled, or another process was first to return it. Without a receipt there is none.
        """
        try:
            if receipt:
                self._return_failed(receipt, reason)
        finally:
            if self._roles is not None:
                self._roles.end_supervision(pid)

    def _return_failed(self, receipt: int, reason: str) -> None:
        if self._queue is None:
            return
        try:
            self._queue.nack(receipt, 0, error=reason)
        except (LeaseExpired, QueueDeleted):
            return
        except ShmqError as error:  # the queue returns it, without a reason
            log.warning("queue %r: why a process died is not stored: %s", self._plan.queue, error)


class OomKills:
    """How many processes of this cgroup the kernel has killed because it ran out of memory."""

    def __init__(self) -> None:
        self._path = _find_events()
        self._explained = 0

    def count(self) -> int:
        """Return how many there were, without those that have explained a death."""
        return (0 if self._path is None else _read_oom_kills(self._path)) - self._explained

    def explains_death(self, before: int) -> bool:
        """Whether there was another one since the count ``before``; each explains one death."""
        if self.count() <= before:
            return False
        self._explained += 1
        return True


def describe_death(code: int, *, timeout: float | None, after: float, out_of_memory: bool) -> str:
    """Return why a process died ``after`` so many seconds of its message.

    ``code`` is its exit code, negative for a signal; ``timeout`` is that of its handler.
    """
    if code < 0:
        why = " (out of memory)" if code == -signal.SIGKILL and out_of_memory else ""
        return f"killed by signal {-code}{why}"
    if code == _TIMED_OUT and timeout is not None and after >= timeout:
        return f"handler timeout ({timeout:g} s)"
    return f"exit code {code}"


def _find_events() -> Path | None:
    """The file with the counters of this process's cgroup; None without version 2 of cgroups."""
    found = re.search(r"^0::/(.*)$", _read(_OWN_CGROUP), re.MULTILINE)
    if found is None or ".." in found[1].split("/"):  # outside of the namespace of cgroups
        return None
    paths = (mount / found[1] / name for name in _EVENTS for mount in _MOUNTS)
    return next((path for path in paths if "oom_kill " in _read(path)), None)


def _read_oom_kills(path: Path) -> int:
    found = re.search(r"^oom_kill (\d{1,18})$", _read(path), re.MULTILINE | re.ASCII)
    return int(found[1]) if found else 0


def _read(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace")
    return ""
