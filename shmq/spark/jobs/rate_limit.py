"""At which rate rows go out."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

__all__ = ["RateLimit"]

#: How long it waits until it asks again whether to stop, in seconds.
_GLANCE: Final = 0.1


class RateLimit:
    """No more than ``rate`` rows a second; None: as fast as can be.

    What was too slow is not made up for.
    """

    def __init__(self, rate: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._due = clock()

    def wait(self, rows: int, stopping: Callable[[], bool]) -> bool:
        """Return True when so many rows may go, and False as soon as ``stopping()``."""
        while not stopping():
            now = self._clock()
            if self._rate is None or now >= self._due:
                if self._rate is not None:
                    self._due = max(self._due, now - _GLANCE) + rows / self._rate
                return True
            time.sleep(min(_GLANCE, self._due - now))
        return False
