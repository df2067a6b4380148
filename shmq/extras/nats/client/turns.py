"""Turns: concurrent tasks take one step each in the order in which they entered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator


class Turn:
    """The place of one task among others."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._event = asyncio.Event()

    async def wait(self) -> None:
        """Return once each task that entered before has ended its turn."""
        await self._event.wait()

    def end(self) -> None:
        """Let the next task take its step; again, it does nothing."""
        self._turns.remove(self)

    def come(self) -> None:
        """It is the first of those that have not ended."""
        self._event.set()


class Turns:
    """The order in which the tasks of one call entered; in one loop."""

    def __init__(self) -> None:
        self._open: dict[Turn, None] = {}

    @contextlib.contextmanager
    def enter(self) -> Iterator[Turn]:
        """The turn of this task, which ends with the block at the latest."""
        turn = Turn(self)
        self._open[turn] = None
        self._call_first()
        try:
            yield turn
        finally:
            turn.end()

    def remove(self, turn: Turn) -> None:
        """The turn has ended."""
        self._open.pop(turn, None)
        self._call_first()

    def _call_first(self) -> None:
        for first in self._open:
            first.come()
            return
