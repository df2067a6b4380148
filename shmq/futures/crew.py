"""The worker processes of a pool."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any, Final

from shmq.client.local.queue import LocalQueue
from shmq.errors import LockTimeout, ShmqError
from shmq.futures.activity import Activities
from shmq.futures.worker import Assignment, work
from shmq.mp.store import Store
from shmq.native import _clock as time
from shmq.workers.deaths import OomKills

#: How often, and how many times, a process is asked for its exit code after its end: another
#: thread of this process may be about to store it.
_CODE_INTERVAL: Final = 0.001
_CODE_TRIES: Final = 1000


class Member:
    """A worker process, as the pool sees it."""

    def __init__(self, crew: Crew, slot: int, on_death: Callable[[Member], None]) -> None:
        self.slot = slot
        self.activity = crew.activities.slot(slot)
        self.activity.reset()
        #: The call for whose timeout the process was killed, or 0.
        self.timed_out = 0
        self.code: int | None = None
        self._oom_kills = crew.oom_kills
        self._oom_kills_before = crew.oom_kills.count()
        self.process = crew.context.Process(target=work, args=(crew.assignment(slot),))
        self.process.start()
        self.pid: int = self.process.pid
        self.thread = threading.Thread(
            target=self._watch, args=(crew.timeout, on_death), name="shmq pool's worker"
        )

    def _watch(self, timeout: float | None, on_death: Callable[[Member], None]) -> None:
        """Wait for the end of the process; end it if a call takes longer than the timeout."""
        if timeout is not None:
            self._limit_calls(timeout)
        self.process.join()
        for _ in range(_CODE_TRIES):
            self.code = self.process.exitcode
            if self.code is not None:
                break
            time.sleep(_CODE_INTERVAL)
        on_death(self)

    def _limit_calls(self, timeout: float) -> None:
        left = timeout
        while self.process.is_alive() and not wait([self.process.sentinel], left):
            call, seconds = self.activity.call, self.activity.seconds
            left = timeout - seconds if call and call == self.activity.call else timeout
            if left <= 0:
                self.timed_out = call
                self.process.kill()
                return

    def ran_out_of_memory(self) -> bool:
        """Whether the kernel killed it because there was no memory. To be asked once."""
        return self._oom_kills.explains_death(self._oom_kills_before)


class Crew:
    """All workers of a pool: at most ``size``, started when there are calls for them."""

    def __init__(
        self, context: Any, size: int, timeout: float | None, startup: tuple[Any, ...]
    ) -> None:
        self.context = context
        self.size = size
        self.timeout = timeout
        self.oom_kills = OomKills()
        self.activities = Activities.of(size)
        self.members: list[Member] = []
        self._startup = startup
        self._free = list(range(size))
        self._lock = threading.Lock()
        self._queues = ("", "", "")
        self._calls: LocalQueue | None = None

    def attach(self, calls: Store, results: Store) -> None:
        """Set the queues of the workers."""
        self._calls = calls.queue
        self._queues = (calls.namespace.name, calls.name, results.name)

    def assignment(self, slot: int) -> Assignment:
        """The parameters of the worker in that slot."""
        return Assignment(*self._queues, self.activities, slot, *self._startup)

    def grow(self, calls: int, on_death: Callable[[Member], None]) -> None:
        """Start workers until there are as many as calls, or ``size``. Raises what a start raises.

        ``on_death`` is called with each of them after its end, in a separate thread. With the start
        method "fork" all start at once: later there may be other threads.
        """
        if len(self.members) >= min(calls, self.size):
            return
        with self._lock:
            wanted = self.size if self.context.get_start_method() == "fork" else calls
            started = []
            try:
                while self._free and len(self.members) < wanted:
                    started.append(self._start(on_death))
            finally:
                for member in started:  # after the last fork
                    member.thread.start()

    def _start(self, on_death: Callable[[Member], None]) -> Member:
        member = Member(self, self._free[-1], on_death)
        self._free.pop()
        self.members.append(member)
        if self._calls is not None:
            with contextlib.suppress(ShmqError, OSError):  # others may return its call first
                self._calls.namespace.roles.supervise(member.pid)
        return member

    def remove(self, member: Member) -> None:
        """Forget a worker that has ended; others may return what it held."""
        with self._lock:
            self.members.remove(member)
            self._free.append(member.slot)
        if self._calls is not None:
            self._calls.namespace.roles.end_supervision(member.pid)
            with contextlib.suppress(LockTimeout):  # others do it later
                self._calls.look_for_dead()

    def kill(self) -> None:
        """Kill all workers."""
        for member in self.members:
            member.process.kill()

    def close(self) -> None:
        """Forget the workers, which have ended."""
        self.members.clear()
        self.activities.close()
