"""The cost of a message with growing backlog, groups, delayed messages and queues."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, repeat
from typing import Any

import shmq
from bench import bodies
from bench.machine import now, two_cores
from bench.row import SECONDS, Bar, Contestant, Figure, Role, Row, Turn, within
from bench.scratch import scratch
from bench.stage import Cast, Side, Stage

COST = Figure("cost", "ns for put, get, ack", higher_is_better=False)
SIZE = 64
HOUR = 3600.0
#: Messages in a round, after which the bodies are compared.
ROUND = 256


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
    most = 10_000

    def __init__(self, label: str, setting: Setting) -> None:
        self.label = label
        self.setting = setting

    def tiny(self) -> Contestant:
        """See :class:`bench.row.Contestant`."""
        few = {
            field.name: min(getattr(self.setting, field.name), 20)
            for field in dataclasses.fields(Setting)
        }
        return Cycle(self.label, Setting(**few))

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        with scratch() as broker:
            side = Side(_go_on, broker.namespace, self.setting, core=two_cores()[1])
            with Cast([side]) as cast:

                def turn(rounds: int) -> dict[str, float]:
                    (taken,) = cast.turn(rounds)
                    return {COST.key: taken / (rounds * ROUND), SECONDS: taken / 1e9}

                yield turn


def _go_on(stage: Stage, name: str, setting: Setting) -> None:
    """Fill the queue as the setting says, then run rounds; it tells the time of a turn in ns."""
    sent = bodies.make(SIZE)
    with shmq.connect(name) as broker:
        for other in range(1, setting.queues):
            broker.create_queue(f"other-{other}", dead_letter=None).close()
        queue = broker.create_queue("q", **setting.options())
        _delay(queue, setting.delayed, sent)
        groups = cycle([f"group {n}" for n in range(setting.groups)])
        arrivals, departures = cycle(sent), cycle(sent)
        _fill(queue, setting, arrivals, groups)
        one_round = _grouped_round if setting.groups else _plain_round
        for rounds in stage.turns():
            _verified(one_round, queue, arrivals, departures, groups)
            begun = now()
            for _ in range(rounds):
                _verified(one_round, queue, arrivals, departures, groups)
            stage.tell(now() - begun)


def _delay(queue: Any, count: int, sent: list[bytes]) -> None:
    while count > 0:
        count -= queue.put_many(sent[:count], delay=HOUR)


def _fill(queue: Any, setting: Setting, arrivals: Iterator[bytes], groups: Iterator[str]) -> None:
    if setting.groups:
        for _ in repeat(None, setting.backlog):
            queue.put(next(arrivals), group=next(groups))
        return
    left = setting.backlog
    while left:
        batch = [next(arrivals) for _ in range(min(left, bodies.ROUND))]
        if queue.put_many(batch) != len(batch):
            raise AssertionError("a batch was cut short")
        left -= len(batch)


def _verified(
    one_round: Callable[..., list[bytes]],
    queue: Any,
    arrivals: Iterator[bytes],
    departures: Iterator[bytes],
    groups: Iterator[str],
) -> None:
    expected = [next(departures) for _ in range(ROUND)]
    received = one_round(queue, arrivals, groups)
    if received != expected:
        bodies.check(received, expected)


def _plain_round(queue: Any, arrivals: Iterator[bytes], groups: Iterator[str]) -> list[bytes]:
    del groups
    put, get = queue.put, queue.get
    received: list[bytes] = []
    for _ in range(ROUND):
        put(next(arrivals))
        message = get()
        received.append(message.body)
        message.ack()
    return received


def _grouped_round(queue: Any, arrivals: Iterator[bytes], groups: Iterator[str]) -> list[bytes]:
    put, get = queue.put, queue.get
    received: list[bytes] = []
    for _ in range(ROUND):
        put(next(arrivals), group=next(groups))
        message = get()
        received.append(message.body)
        message.ack()
    return received


def _cycles(what: str, settings: dict[int, Setting]) -> list[Cycle]:
    return [Cycle(f"shmq, {count:,} {what}", setting) for count, setting in settings.items()]


def _flat(cycles: Sequence[Cycle]) -> list[Bar]:
    """Each costs at most a fifth more than the first."""
    first, *others = cycles
    return [within(each.label, first.label, 1.2, COST.key) for each in others]


def backlog_row() -> Row:
    """1,000 to 1,000,000 messages wait."""
    cycles = _cycles("waiting", {n: Setting(backlog=n) for n in (1_000, 100_000, 1_000_000)})
    return Row(
        key="growth-backlog",
        title="One process puts, gets and acknowledges, with a backlog",
        contestants=cycles,
        figures=[COST],
        bars=_flat(cycles),
        limit="caches: a message that has waited long is read from memory",
    )


def groups_row() -> Row:
    """100,000 messages wait in 1 to 100,000 groups, or in none."""
    waiting = 100_000
    plain = Cycle("shmq, no groups", Setting(backlog=waiting))
    counts = (1, 1_000, 10_000, 100_000)
    cycles = _cycles("groups", {n: Setting(backlog=waiting, groups=n) for n in counts})
    return Row(
        key="growth-groups",
        title="The same with a group for each message, 100,000 waiting",
        contestants=[plain, *cycles],
        figures=[COST],
        bars=[*[within(each.label, plain.label, 2, COST.key) for each in cycles], *_flat(cycles)],
        limit="the lock of the general path, and the record of a group and its bucket",
        share=2.5,
    )


def delayed_row() -> Row:
    """No message and 100,000 messages are delayed."""
    cycles = _cycles("delayed", {n: Setting(delayed=n) for n in (0, 100_000)})
    return Row(
        key="growth-delayed",
        title="The same while others are delayed",
        contestants=cycles,
        figures=[COST],
        bars=_flat(cycles),
        limit="",
        share=0.7,
    )


def queues_row() -> Row:
    """One queue and 1,000 in the namespace."""
    cycles = _cycles("queues", {n: Setting(queues=n) for n in (1, 1_000)})
    return Row(
        key="growth-queues",
        title="The same with other queues in the namespace",
        contestants=cycles,
        figures=[COST],
        bars=_flat(cycles),
        share=2.0,
    )
