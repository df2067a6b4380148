"""A Python client that puts, gets and acknowledges, one message or many at a time."""

from __future__ import annotations

import abc
import contextlib
import importlib.util
from collections.abc import Iterator
from typing import ClassVar

from bench import bodies
from bench.machine import Place, now
from bench.row import SECONDS, Contestant, Role, Turn
from bench.scratch import unique_name
from bench.stage import Cast, Side, Stage
from bench.tcp.server import Server, no_place, placed, running

#: Messages of a request or of a pipeline, if there are several.
BATCH = 64
#: Bytes of a body.
SIZE = 64


class Client(abc.ABC):
    """One way of using a broker's client; the process that uses it opens it."""

    label: ClassVar[str]
    server: ClassVar[type[Server]]
    #: The module that it needs.
    needs: ClassVar[str | None] = None
    note: ClassVar[str] = ""

    def __init__(self, port: int, name: str) -> None:
        self.port = port
        self.name = name

    @abc.abstractmethod
    def open(self) -> None:
        """Connect, and make the queue called ``name``."""

    @abc.abstractmethod
    def cycle(self, sent: list[bytes]) -> list[bytes]:
        """Put, get and acknowledge all bodies; returns the received ones."""

    @abc.abstractmethod
    def close(self) -> None:
        """Clean up the broker, and disconnect."""


def batches(sent: list[bytes]) -> list[list[bytes]]:
    """The bodies in lists of :data:`BATCH`; the last one may be shorter."""
    return [sent[at : at + BATCH] for at in range(0, len(sent), BATCH)]


class Cycle(Contestant):
    """A client's rate of messages put, got and acknowledged, ``count`` of them in a cycle.

    ``place``: where the client and the server run; None: wherever the kernel puts them.
    """

    most = 1000

    def __init__(self, kind: type[Client], place: Place | None = None, count: int = BATCH) -> None:
        self.kind = kind
        self.count = count
        self.place = place
        self.label = kind.label
        self.note = kind.note
        self.role: Role = "shmq" if kind.label.startswith("shmq") else "peer"

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        if self.kind.needs is not None and importlib.util.find_spec(self.kind.needs) is None:
            return f"{self.kind.needs} is not installed"
        return self.kind.server.missing() or no_place(self.place)

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        server = running(self.kind.server)
        with placed(self.place, server) as core:
            side = Side(_go_on, self.kind, server.port, unique_name(), self.count, core=core)
            with Cast([side]) as cast:

                def turn(rounds: int) -> dict[str, float]:
                    (taken,) = cast.turn(rounds)
                    seconds = taken / 1e9
                    return {"rate": rounds * self.count / seconds, SECONDS: seconds}

                yield turn


def _go_on(stage: Stage, kind: type[Client], port: int, name: str, count: int) -> None:
    """Run rounds; it tells the time of a turn in ns."""
    sent = bodies.make(SIZE, count)
    client = kind(port, name)
    client.open()
    try:
        bodies.check(client.cycle(sent), sent)
        for rounds in stage.turns():
            begun = now()
            for _ in range(rounds):
                received = client.cycle(sent)
                if received != sent:
                    bodies.check(received, sent)
            stage.tell(now() - begun)
    finally:
        client.close()
