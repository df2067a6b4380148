"""10,000 idle connections: their memory, and their cost for active connections."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from bench.row import RATE, Contestant, Figure, Role, Row, Turn, at_most, times
from bench.tcp.load import Load, idle
from bench.tcp.server import fresh
from bench.tcp.servers import Shmq

CONNECTIONS = 10_000

MEMORY = Figure("memory", "KiB a connection", higher_is_better=False)


class Beside(Contestant):
    """A load on a server of its own, with idle connections or without."""

    def __init__(self, label: str, load: Load, connections: int) -> None:
        self.label = label
        self.load = load
        self.connections = connections
        self.role: Role = "shmq" if connections else "harness"
        self.least, self.most = load.least, load.most

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        return self.load.missing()

    def tiny(self) -> Contestant:
        """See :class:`bench.row.Contestant`."""
        return Beside(self.label, self.load, min(self.connections, 50))

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        with fresh(Shmq) as server, contextlib.ExitStack() as stack:
            self.load.measure(server.port, self.least)
            before = server.memory()
            more: dict[str, float] = {}
            if self.connections:
                stack.enter_context(idle(server.port, self.connections))
                grown = max(server.memory() - before, 1)
                more[MEMORY.key] = grown / self.connections / 1024
            yield lambda messages: self.load.measure(server.port, messages) | more


def _row(key: str, what: str, load: Load) -> Row:
    ours = Beside(f"shmq {what}, {CONNECTIONS:,} idle connections", load, CONNECTIONS)
    alone = Beside(f"shmq {what}, no idle connection", load, 0)
    return Row(
        key=key,
        title=f"{CONNECTIONS:,} idle connections and one that {what}",
        contestants=[ours, alone],
        figures=[RATE, MEMORY],
        bars=[
            at_most(ours.label, 20, MEMORY.unit, MEMORY.key),
            times(ours.label, alone.label, 0.8),
        ],
        limit="a session, a socket object and a place in the event loop",
        share=1.5,
        visits=3,
    )


def put_row() -> Row:
    """The connection puts."""
    return _row("tcp-idle-put", "puts", Load("put", Shmq, "produce"))


def got_row() -> Row:
    """The connection gets and acknowledges."""
    load = Load("got", Shmq, "subscribe", window=256, batch=64)
    return _row("tcp-idle-got", "gets", load)
