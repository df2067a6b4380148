"""One-way rates: one process sends rounds of messages and another receives them."""

from __future__ import annotations

from bench import bodies
from bench.machine import now, two_cores
from bench.row import Contestant, Role
from bench.scratch import unique_name
from bench.stage import PATIENCE, Side, Stage, together
from bench.way import Way

#: Rounds before the clock starts, which touch the memory and start threads.
WARM = 2
#: How often the sides meet in a turn; at the last meeting all is received and still open.
MEETINGS = 5
#: The most rounds of a turn.
MOST_ROUNDS = 20_000


def rate(
    kind: type[Way], size: int, rounds: int, count: int = bodies.ROUND, patience: float = PATIENCE
) -> float:
    """Messages per second, from the first put to the last message received and settled.

    Every message is compared with the one sent, within the measured time. Raises
    :class:`bench.stage.Failed` if a message was lost, reordered or damaged.
    """
    way = kind(unique_name(), size)
    sender, receiver = two_cores()
    try:
        way.create()
        begun, ended = together(
            [
                Side(send, way, rounds, count, core=sender),
                Side(receive, way, rounds, count, core=receiver),
            ],
            patience,
        )
    finally:
        way.remove()
    return float(rounds * count / (ended - begun) * 1e9)


def send(stage: Stage, way: Way, rounds: int, count: int) -> int:
    """The sending side; returns the time of its first message."""
    send_round = way.sender(bodies.make(way.size, count))
    stage.meet()
    way.opened()
    stage.meet()
    for _ in range(WARM):
        send_round()
    stage.meet()
    begun = now()
    for _ in range(rounds):
        send_round()
    stage.meet()
    send_round()
    stage.meet()
    way.finish()
    return begun


def receive(stage: Stage, way: Way, rounds: int, count: int) -> int:
    """The receiving side; returns the time at which its last message was settled.

    The rounds before and after the timed ones are compared whole. The one after detects
    duplicates at the end.
    """
    sent = bodies.make(way.size, count)
    whole = way.expected(sent)
    way.whole = False
    expected = way.expected(sent)
    receive_round = way.receiver(count)
    stage.meet()
    way.opened()
    stage.meet()
    way.whole = True
    for _ in range(WARM):
        bodies.check(receive_round(), whole)
    way.whole = False
    stage.meet()
    for _ in range(rounds):
        received = receive_round()
        if received != expected:
            bodies.check(received, expected)
    ended = now()
    stage.meet()
    way.whole = True
    bodies.check(receive_round(), whole)
    stage.meet()
    way.finish()
    return ended


class Stream(Contestant):
    """The rate of a way with bodies of some size."""

    def __init__(self, kind: type[Way], size: int, count: int = bodies.ROUND) -> None:
        self.kind = kind
        self.size = size
        self.count = count
        self.rounds = 1
        self.label = kind.label
        self.note = kind.note
        self.role: Role = "shmq" if kind.label.startswith("shmq") else "peer"

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        return self.kind.missing()

    def calibrate(self, seconds: float) -> None:
        """See :class:`bench.row.Contestant`."""
        self.rounds = 1
        while True:
            taken = self.rounds * self.count / self.turn()["rate"]
            if taken >= seconds / 4 or self.rounds >= MOST_ROUNDS:
                break
            self.rounds = min(MOST_ROUNDS, self.rounds * max(2, min(16, int(seconds / taken))))
        self.rounds = max(1, min(MOST_ROUNDS, round(self.rounds * seconds / taken)))

    def turn(self) -> dict[str, float]:
        """See :class:`bench.row.Contestant`."""
        return {"rate": rate(self.kind, self.size, self.rounds, self.count)}
