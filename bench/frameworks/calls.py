"""A contestant whose turn is so many calls of one process, one after the other."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Final

from bench.frameworks.modules import absent
from bench.machine import now
from bench.row import SECONDS, Contestant, Figure, Role, Turn
from bench.tcp.server import Server

RATE: Final = Figure("rate", "calls/s")

#: Makes so many calls, and checks what each of them returned. Raises Failed.
Play = Callable[[int], None]


class Calls(Contestant):
    """Calls of what ``open_`` opens, which needs the ``modules`` and the ``server``."""

    def __init__(
        self,
        label: str,
        open_: Callable[[], AbstractContextManager[Play]],
        modules: tuple[str, ...],
        *,
        role: Role = "peer",
        server: type[Server] | None = None,
        least: int = 20,
        most: int = 100_000,
    ) -> None:
        self.label = label
        self.role = role
        self.least, self.most = least, most
        self._open = open_
        self._modules = modules
        self._server = server

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        return absent(*self._modules) or (self._server.missing() if self._server else None)

    def tiny(self) -> Contestant:
        """See :class:`bench.row.Contestant`."""
        return Calls(
            self.label,
            self._open,
            self._modules,
            role=self.role,
            server=self._server,
            least=2,
            most=2,
        )

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        with self._open() as play:
            play(self.least)  # processes and connections are there

            def turn(amount: int) -> dict[str, float]:
                begun = now()
                play(amount)
                seconds = (now() - begun) / 1e9
                return {RATE.key: amount / seconds, SECONDS: seconds}

            yield turn
