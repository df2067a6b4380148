"""Sleeping on one bell for many queues."""

from __future__ import annotations

import math
import time

from shmq.errors import LockTimeout, ShmqError
from shmq.native import _core

__all__ = ["Watcher"]

_VERY_LONG = 3600.0


class Watcher:
    """Sleeps on a bell, and says in which of the watched queues something may have come.

    It is rung for what comes. Once in a slice it looks at every queue nevertheless, and
    at who is still alive: what a death has left undone is late by a slice. It is the
    timer of its queues: what becomes due in one of them is done by it.
    """

    def __init__(self, bell: _core.Bell) -> None:
        self.bell = bell
        #: When the sleep that is under way ends, on time.monotonic(); awake, inf.
        self.until = math.inf
        #: Whether the last look was at everything.
        self.closely = False
        self._pause = 0.0
        self._closely_at = 0.0

    def sleep(self, at_most: float, *, idle: bool = False) -> None:
        """Sleep until something may have come, or is due, or the slice ends.

        ``idle``: nothing is watched, so only until the bell is rung.
        """
        pause = _VERY_LONG if idle else min(self._pause, at_most)
        self.until = time.monotonic() + pause
        self.bell.sleep(pause)
        self.until = math.inf

    def look(self, watches: list[_core.Watch]) -> list[_core.Watch]:
        """Those whose event may have come; what is due in their queues is done."""
        now = time.monotonic()
        self.closely = now >= self._closely_at
        if self.closely:
            self._closely_at = now + _core.SLICE
            _notice_deaths(watches)
        stirring, due, self._pause = _core.scan(watches, self.closely)
        for watch in due:
            try:
                watch.catch_up()
                self._pause = 0.0
            except LockTimeout:
                continue  # it is due still
            except (ShmqError, OSError):
                stirring.append(watch)  # whoever waits for it is told
        return stirring


def _notice_deaths(watches: list[_core.Watch]) -> None:
    asked: dict[tuple[str, int], bool] = {}
    for watch in watches:
        watch.queue.notice_deaths(asked)
