"""The cost of the measurement's own loops, which is part of every one-way rate."""

from __future__ import annotations

from itertools import cycle, repeat

from bench import bodies
from bench.machine import now
from bench.row import Contestant, Figure, Role, Row

COST = Figure("cost", "ns/message", higher_is_better=False)


class Loop(Contestant):
    """A loop of a one-way rate, with the cheapest Python call in place of the peer."""

    role: Role = "harness"
    rounds = 2

    def calibrate(self, seconds: float) -> None:
        """See :class:`bench.row.Contestant`."""
        self.rounds = max(2, int(seconds * 1e9 / (self.turn()["cost"] * bodies.ROUND)))

    def turn(self) -> dict[str, float]:
        """See :class:`bench.row.Contestant`."""
        begun = now()
        self.work()
        return {"cost": (now() - begun) / (self.rounds * bodies.ROUND)}

    def work(self) -> None:
        """Do all rounds."""
        raise NotImplementedError


class Sending(Loop):
    """A call for each body."""

    label = "sending: the loop and a call of len"

    def work(self) -> None:
        """See :class:`Loop`."""
        put = len
        sent = bodies.make(64)
        for _ in range(self.rounds):
            for body in sent:
                put(body)


class Receiving(Loop):
    """A call for each body; the list of bodies is compared at the end of the round."""

    label = "receiving: the loop, a call of next, a list, and the comparison of the bodies"

    def work(self) -> None:
        """See :class:`Loop`."""
        expected = bodies.make(64)
        copies = cycle([bytes(bytearray(body)) for body in expected])
        for _ in range(self.rounds):
            received: list[bytes] = []
            for _ in repeat(None, bodies.ROUND):
                received.append(next(copies))  # noqa: PERF401
            if received != expected:
                bodies.check(received, expected)


def row() -> Row:
    """The two loops of a stream of 64 B."""
    return Row(
        key="harness",
        title="What the measurement's own loops take, 64 B",
        contestants=[Sending(), Receiving()],
        figures=[COST],
    )
