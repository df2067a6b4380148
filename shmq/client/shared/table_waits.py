"""The task that waits for the keys of a table on behalf of all tasks of an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from shmq.client.shared import loop_timer
from shmq.model.table.entry import Stored

#: The first pause between two lookups, in seconds; doubled each time.
FIRST_PAUSE: Final = 0.001

#: Looks keys up, see `TableHandle._look`.
Look = Callable[[list[str], object], Awaitable[tuple[Mapping[str, Stored], object]]]


class TableWaits:
    """Looks up the keys that tasks of the running loop wait for, all of them in one task.

    It ends, for good, when no task waits any more, or by an error, which each of them raises.
    """

    def __init__(
        self, current: dict[asyncio.AbstractEventLoop, TableWaits], look: Look, longest_pause: float
    ) -> None:
        #: The table's waits by their loops, from which these remove themselves at their end.
        self._current = current
        self._loop = asyncio.get_running_loop()
        current[self._loop] = self
        self._look = look
        self._longest_pause = longest_pause
        self._waiters: dict[asyncio.Future[Stored], str] = {}
        self._joined: asyncio.Future[None] | None = None
        self._task = self._loop.create_task(self._run())

    async def wait(self, key: str, timeout: float | None) -> Stored | None:
        """Return the value of the key once it is set; None after ``timeout`` seconds without it.

        Raises what a lookup raises.
        """
        waiter: asyncio.Future[Stored] = self._loop.create_future()
        self._waiters[waiter] = key
        if self._joined is not None and not self._joined.done():
            self._joined.set_result(None)
        try:
            await loop_timer.wait(waiter, timeout)
            return waiter.result() if waiter.done() else None
        finally:
            self._leave(waiter)

    def _leave(self, waiter: asyncio.Future[Stored]) -> None:
        self._waiters.pop(waiter, None)
        if not waiter.cancel() and not waiter.cancelled():
            waiter.exception()  # has been raised, unless the task was cancelled
        if not self._waiters:
            self._end()
            self._task.cancel()

    def _end(self) -> None:
        if self._current.get(self._loop) is self:
            del self._current[self._loop]

    # ---- the task ----

    async def _run(self) -> None:
        try:
            await self._look_repeatedly()
        except Exception as error:  # noqa: BLE001 - each waiter raises it
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_exception(error)
        finally:
            self._end()
            for waiter in self._waiters:  # the loop is ending
                waiter.cancel()

    async def _look_repeatedly(self) -> None:
        keys: list[str] = []
        state: object = None
        pause = FIRST_PAUSE
        joined = True
        while True:
            if joined:
                state, pause = None, FIRST_PAUSE
            if joined or len(keys) > len(self._waiters):
                keys = list({*self._waiters.values()})
            self._joined = self._loop.create_future()
            found, state = await self._look(keys, state)
            if found:
                self._resolve(found)
            joined = await loop_timer.wait(self._joined, pause)
            pause = min(2 * pause, self._longest_pause)

    def _resolve(self, found: Mapping[str, Stored]) -> None:
        for waiter, key in self._waiters.items():
            if key in found and not waiter.done():
                waiter.set_result(found[key])
