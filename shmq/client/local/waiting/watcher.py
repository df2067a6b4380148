"""Sleeping on one semaphore for many queues."""

from __future__ import annotations

import math

from shmq.errors import LockTimeout, ShmqError
from shmq.native import _clock as time
from shmq.native import _core

_VERY_LONG = 3600.0


class Watcher:
    """Sleeps on a semaphore, and tells in which of the watched queues an event may have come.

    An event wakes it. In addition, it checks every queue, and which processes are alive, once in
    each slice: so the work that a dead process left is late by at most a slice. After the first
    one, slices are long as long as a process watches for deaths. It is also the timer of its
    queues: when something in one of them becomes due, it does it.
    """

    def __init__(self, wakeup: _core.Wakeup) -> None:
        self.wakeup = wakeup
        #: When the next look is due, on time.monotonic(); inf: the owner is awake, or idle.
        self.until = math.inf
        #: Whether the last check was of every queue.
        self.closely = False
        #: How long to sleep until then, as of the last look, in seconds.
        self.pause = 0.0
        self._closely_at = 0.0
        self._has_slept = False

    def sleep(self, at_most: float, *, idle: bool = False) -> None:
        """Sleep until an event may have come, something is due, or the slice ends.

        ``idle``: nothing is watched, so it sleeps until it is woken.
        """
        pause = _VERY_LONG if idle else min(self.pause, at_most)
        self.until = time.monotonic() + pause
        self.wakeup.sleep(pause)
        self.until = math.inf

    def look(self, watches: list[_core.Watch]) -> list[_core.Watch]:
        """The watches whose event may have come; does what is due in their queues."""
        now = time.monotonic()
        self.closely = now >= self._closely_at
        if self.closely:
            self._closely_at = now + self._compute_slice(watches)
            _find_deaths(watches)
        left = self._closely_at - now
        stirring, due, self.pause = _core.scan(watches, self.closely, left)
        for watch in due:
            try:
                watch.catch_up()
                self.pause = 0.0
            except LockTimeout:
                continue  # it is still due
            except (ShmqError, OSError):
                stirring.append(watch)  # the waiter gets the error
        return stirring

    def _compute_slice(self, watches: list[_core.Watch]) -> float:
        """How long to sleep until the next check of everything, in seconds."""
        has_slept, self._has_slept = self._has_slept, bool(watches)
        is_guarded = has_slept and watches and watches[0].queue.is_guarded()
        return _core.LONG_SLICE if is_guarded else _core.SLICE


def _find_deaths(watches: list[_core.Watch]) -> None:
    asked: dict[tuple[str, int], bool] = {}
    for watch in watches:
        watch.queue.notice_deaths(asked)
