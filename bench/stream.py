"""One-way rates: one process sends rounds of messages and others receive them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from bench import bodies
from bench.machine import now, two_cores
from bench.row import SECONDS, Contestant, Role, Turn
from bench.scratch import unique_name
from bench.stage import PATIENCE, Cast, Side, Stage
from bench.way import Way


def send(stage: Stage, way: Way, count: int) -> None:
    """The sending side; it tells when it put the first message of a turn."""
    send_round = way.sender(bodies.make(way.size, count))
    stage.meet()
    way.opened()
    stage.meet()
    for rounds in stage.turns():
        send_round()
        stage.meet()
        begun = now()
        for _ in range(rounds):
            send_round()
        stage.tell(begun)
        way.settle()
    send_round()
    stage.meet()
    way.finish()


def receive(stage: Stage, way: Way, count: int) -> None:
    """A receiving side; it tells when the last message of a turn was settled.

    The first round of a turn, before the clock starts, is compared whole, and so is one after
    all turns. They find what is doubled at the end of a turn.
    """
    sent = bodies.make(way.size, count)
    whole = way.expected(sent)
    way.whole = False
    expected = way.expected(sent)
    receive_round = way.receiver(count)
    stage.meet()
    way.opened()
    stage.meet()
    for rounds in stage.turns():
        way.whole = True
        bodies.check(receive_round(), whole)
        way.whole = False
        stage.meet()
        for _ in range(rounds):
            received = receive_round()
            if received != expected:
                bodies.check(received, expected)
        stage.tell(now())
        way.settle()
    way.whole = True
    bodies.check(receive_round(), whole)
    stage.meet()
    way.finish()


class Stream(Contestant):
    """The rate of a way with bodies of some size, and ``count`` of them in a round.

    Every message is compared with the one sent, within the measured time. A lost, reordered or
    damaged message ends a turn with :class:`bench.stage.Failed`.
    """

    most = 20_000

    def __init__(
        self,
        kind: type[Way],
        size: int,
        count: int = bodies.ROUND,
        receivers: int = 1,
        patience: float = PATIENCE,
    ) -> None:
        self.kind = kind
        self.size = size
        self.count = count
        self.receivers = receivers
        self.patience = patience
        self.label = kind.label
        self.note = kind.note
        self.role: Role = "shmq" if kind.label.startswith("shmq") else "peer"

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        return self.kind.missing()

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        way = self.kind(unique_name(), self.size)
        sender, receiver = two_cores()
        try:
            way.create()
            sides = [
                Side(send, way, self.count, core=sender),
                *[Side(receive, way, self.count, core=receiver) for _ in range(self.receivers)],
            ]
            with Cast(sides, self.patience) as cast:

                def turn(rounds: int) -> dict[str, float]:
                    begun, *ended = cast.turn(rounds)
                    seconds = (max(ended) - begun) / 1e9
                    return {"rate": rounds * self.count / seconds, SECONDS: seconds}

                yield turn
        finally:
            way.remove()
