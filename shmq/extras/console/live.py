"""Connections that stay open: how many there may be, and why the console ends one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Final, Literal

from shmq.extras.console.access import Caller
from shmq.extras.console.context import Console
from shmq.extras.console.problem import Problem

#: Why a connection is ended: the console ends, or its caller is no longer let in.
End = Literal["ending", "unauthorized"]

#: How often the connections are looked at, in seconds.
_INTERVAL: Final = 0.25


class LiveConnections:
    """The open connections of one kind, at most ``most`` of them. For one event loop.

    One task watches over all of them, as long as there are any.
    """

    def __init__(self, console: Console, most: int, what: str) -> None:
        self._console = console
        self._most = most
        self._what = what
        self._open: dict[object, tuple[Caller, Callable[[End], None]]] = {}
        self._watch: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._open)

    @contextlib.contextmanager
    def enter(self, caller: Caller, end: Callable[[End], None]) -> Iterator[None]:
        """One connection, for the length of the block; ``end`` is called when it must end.

        Raises :class:`Problem` 503 at the limit, and while the console ends.
        """
        if self._console.ending.is_set():
            raise Problem(503, "shutting-down", "this console is ending")
        if len(self._open) >= self._most:
            raise Problem(
                503,
                "too-many",
                f"{self._most} {self._what} are open, as many as may be: close one of them",
            )
        key = object()
        self._open[key] = (caller, end)
        if self._watch is None:
            self._watch = asyncio.get_running_loop().create_task(self._look_after())
        try:
            yield
        finally:
            del self._open[key]

    async def _look_after(self) -> None:
        try:
            while self._open:
                await asyncio.sleep(_INTERVAL)
                ending = self._console.ending.is_set()
                for caller, end in list(self._open.values()):
                    if ending:
                        end("ending")
                    elif not self._is_let_in(caller):
                        end("unauthorized")
        finally:
            self._watch = None

    def _is_let_in(self, caller: Caller) -> bool:
        """Whether the caller's token is still accepted, and its login lasts."""
        if caller.token is None:
            return True
        if caller.session is not None and self._console.sessions.find(caller.session) is None:
            return False
        return self._console.access.still(caller.token)
