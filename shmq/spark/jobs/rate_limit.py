"""Limits the rate at which rows are written."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

__all__ = ["RateLimit"]

#: How often a wait checks whether to stop, in seconds.
_GLANCE: Final = 0.1


class RateLimit:
    """Allows at most ``rate`` rows per second; None: no limit.

    Time lost to slow batches is not made up for.
    """

    def __init__(self, rate: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._due = clock()

    def wait(self, rows: int, stopping: Callable[[], bool]) -> bool:
        """Return True when this many rows may go, or False as soon as ``stopping()`` is true."""
        while not stopping():
            now = self._clock()
            if self._rate is None or now >= self._due:
                if self._rate is not None:
                    self._due = max(self._due, now - _GLANCE) + rows / self._rate
                return True
            time.sleep(min(_GLANCE, self._due - now))
        return False
