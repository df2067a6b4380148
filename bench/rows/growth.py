"""The cost of a message with growing backlog, groups, delayed messages and queues."""

from __future__ import annotations

import dataclasses
from itertools import cycle
from typing import Any

import shmq
from bench import bodies
from bench.machine import now, two_cores
from bench.row import Contestant, Figure, Role, Row, flat
from bench.scratch import scratch
from bench.stage import Side, Stage, together

COST = Figure("cost", "ns for put, get, ack", higher_is_better=False)
SIZE = 64
HOUR = 3600.0


@dataclasses.dataclass(frozen=True)
class Setting:
    """What the namespace holds while one process puts, gets and acknowledges.

    ``groups`` is the number of groups that the messages are spread over; 0: no groups.
    """

    backlog: int = 1_000
    groups: int = 0
    delayed: int = 0
    queues: int = 1

    def options(self) -> dict[str, Any]:
        """The options of the queue; two units of the arena for each message."""
        capacity = self.backlog + self.delayed + 1_000
        return {
            "capacity": capacity,
            "arena_bytes": capacity * 128 + (1 << 20),
            "dead_letter": None,
            "overflow": "block",
        }


class Cycle(Contestant):
    """One process puts, gets and acknowledges, one call each, repeatedly."""

    role: Role = "shmq"

    def __init__(self, label: str, setting: Setting) -> None:
        self.label = label
        self.setting = setting
        self.rounds = 1

    def calibrate(self, seconds: float) -> None:
        """See :class:`bench.row.Contestant`."""
        self.rounds = 4
        self.rounds = max(1, int(seconds * 1e9 / (self.turn()[COST.key] * bodies.ROUND)))

    def tiny(self) -> Contestant:
        """See :class:`bench.row.Contestant`."""
        few = {
            field.name: min(getattr(self.setting, field.name), 20)
            for field in dataclasses.fields(Setting)
        }
        return Cycle(self.label, Setting(**few))

    def turn(self) -> dict[str, float]:
        """See :class:`bench.row.Contestant`."""
        with scratch() as broker:
            side = Side(_go_on, broker.namespace, self.setting, self.rounds, core=two_cores()[1])
            (taken,) = together([side])
        return {COST.key: taken / (self.rounds * bodies.ROUND)}


def _go_on(stage: Stage, name: str, setting: Setting, rounds: int) -> int:
    """Fill the queue as the setting says, then run that many rounds; the time in ns."""
    stage.meet()
    sent = bodies.make(SIZE)
    with shmq.connect(name) as broker:
        for other in range(1, setting.queues):
            broker.create_queue(f"other-{other}", dead_letter=None).close()
        queue = broker.create_queue("q", **setting.options())
        _delay(queue, setting.delayed, sent)
        groups = cycle([f"group {n}" for n in range(setting.groups)] or [None])
        arrivals, departures = cycle(sent), cycle(sent)
        for _ in range(setting.backlog):
            queue.put(next(arrivals), group=next(groups))
        one_round = _grouped_round if setting.groups else _plain_round
        _verified(one_round, queue, arrivals, departures, groups)
        begun = now()
        for _ in range(rounds):
            _verified(one_round, queue, arrivals, departures, groups)
        return now() - begun


def _delay(queue: Any, count: int, sent: list[bytes]) -> None:
    while count > 0:
        count -= queue.put_many(sent[:count], delay=HOUR)


def _verified(one_round: Any, queue: Any, arrivals: Any, departures: Any, groups: Any) -> None:
    expected = [next(departures) for _ in range(bodies.ROUND)]
    received = one_round(queue, arrivals, groups)
    if received != expected:
        bodies.check(received, expected)


def _plain_round(queue: Any, arrivals: Any, groups: Any) -> list[bytes]:
    del groups
    put, get = queue.put, queue.get
    received: list[bytes] = []
    for _ in range(bodies.ROUND):
        put(next(arrivals))
        message = get()
        received.append(message.body)
        message.ack()
    return received


def _grouped_round(queue: Any, arrivals: Any, groups: Any) -> list[bytes]:
    put, get = queue.put, queue.get
    received: list[bytes] = []
    for _ in range(bodies.ROUND):
        put(next(arrivals), group=next(groups))
        message = get()
        received.append(message.body)
        message.ack()
    return received


def _row(key: str, title: str, limit: str, settings: dict[str, Setting]) -> Row:
    labels = [f"shmq, {what}" for what in settings]
    return Row(
        key=key,
        title=title,
        contestants=[
            Cycle(label, setting) for label, setting in zip(labels, settings.values(), strict=True)
        ],
        figures=[COST],
        bars=[flat(labels, 0.2, COST.key)],
        limit=limit,
    )


def _counted(count: int) -> str:
    return f"{count:,}"


def backlog_row() -> Row:
    """1,000 to 1,000,000 messages wait."""
    return _row(
        "growth-backlog",
        "One process puts, gets and acknowledges while others wait in front",
        "caches: a message that has waited long is read from memory",
        {f"{_counted(n)} waiting": Setting(backlog=n) for n in (1_000, 10_000, 100_000, 1_000_000)},
    )


def groups_row() -> Row:
    """100,000 messages wait in 1 to 100,000 groups."""
    return _row(
        "growth-groups",
        "The same with a group for each message, 100,000 waiting",
        "caches: the record of a group and its bucket are touched with each message",
        {
            f"{_counted(n)} groups": Setting(backlog=100_000, groups=n)
            for n in (1, 100, 10_000, 100_000)
        },
    )


def delayed_row() -> Row:
    """No message and 100,000 messages are delayed."""
    return _row(
        "growth-delayed",
        "The same while others are delayed",
        "",
        {f"{_counted(n)} delayed": Setting(delayed=n) for n in (0, 100_000)},
    )


def queues_row() -> Row:
    """One queue and 1,000 in the namespace."""
    return _row(
        "growth-queues",
        "The same with other queues in the namespace",
        "",
        {f"{_counted(n)} in all": Setting(queues=n) for n in (1, 1_000)},
    )
