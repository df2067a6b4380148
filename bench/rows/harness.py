"""The cost of the measurement's own loops, which is part of every one-way rate."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from itertools import cycle, repeat

from bench import bodies
from bench.machine import now
from bench.row import SECONDS, Contestant, Figure, Role, Row, Turn

COST = Figure("cost", "ns/message", higher_is_better=False)


class Loop(Contestant):
    """A loop of a one-way rate, with the cheapest Python call in place of the peer."""

    role: Role = "harness"
    most = 10_000

    def __init__(self, label: str, work: Callable[[int], None]) -> None:
        self.label = label
        self.work = work

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""

        def turn(rounds: int) -> dict[str, float]:
            begun = now()
            self.work(rounds)
            taken = now() - begun
            return {COST.key: taken / (rounds * bodies.ROUND), SECONDS: taken / 1e9}

        yield turn


def _send(rounds: int) -> None:
    """Call something with each body."""
    put = len
    sent = bodies.make(64)
    for _ in range(rounds):
        for body in sent:
            put(body)


def _receive(rounds: int) -> None:
    """Call something for each body; the list of bodies is compared at the end of the round."""
    expected = bodies.make(64)
    copies = cycle([bytes(bytearray(body)) for body in expected])
    for _ in range(rounds):
        received: list[bytes] = []
        for _ in repeat(None, bodies.ROUND):
            received.append(next(copies))  # noqa: PERF401
        if received != expected:
            bodies.check(received, expected)


def row() -> Row:
    """The two loops of a stream of 64 B."""
    return Row(
        key="harness",
        title="Overhead of the measurement loops, 64 B",
        contestants=[
            Loop("sending: the loop and a call of len", _send),
            Loop("receiving: the loop, a call of next, a list, and the comparison", _receive),
        ],
        figures=[COST],
        share=0.2,
    )
