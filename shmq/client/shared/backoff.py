"""Pauses between attempts, which grow."""

from __future__ import annotations

import random


class Backoff:
    """Pauses that grow from ``first`` to ``last`` seconds, each randomized to 50-100 %.

    The defaults are the pauses between reconnections.
    """

    def __init__(self, first: float = 0.02, last: float = 2.0) -> None:
        self._next = first
        self._last = last

    def pause(self, left: float | None = None) -> float:
        """The next pause, no longer than ``left``."""
        pause = self._next * random.uniform(0.5, 1.0)
        self._next = min(self._last, self._next * 2)
        return pause if left is None else max(0.0, min(pause, left))


class RoomBackoff(Backoff):
    """The pauses between attempts to put where there is not enough room."""

    def __init__(self) -> None:
        super().__init__(0.001, 0.05)
