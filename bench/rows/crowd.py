"""Many processes on one queue: 16 producers and 16 consumers on two cores."""

from __future__ import annotations

import array
import collections
import contextlib
import struct
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import shmq
from bench.machine import now
from bench.row import RATE, SECONDS, Contestant, Role, Row, Turn, times
from bench.scratch import scratch
from bench.stage import Cast, Failed, Side, Stage

BODY = struct.Struct("<II56x")
#: The fewest messages of a producer, and the most of all producers together.
LEAST, MOST = 64, 1_000_000
#: Seconds of a turn: long enough that the processes' staggered start does not matter.
SECONDS_OF_TURN = 0.1


class Crowd(Contestant):
    """As many producers as consumers, on all cores."""

    role: Role = "shmq"

    def __init__(self, pairs: int, label: str | None = None) -> None:
        self.pairs = pairs
        self.least, self.most = LEAST, MOST // pairs
        self.label = label or f"shmq, {pairs} x {pairs} processes"

    def tiny(self) -> Contestant:
        """See :class:`bench.row.Contestant`."""
        return Crowd(min(self.pairs, 3), self.label)

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        with scratch() as broker:
            name = broker.namespace
            broker.create_queue("q", dead_letter=None, overflow="block")
            sides = [
                *[Side(_put, name, number, core=None) for number in range(self.pairs)],
                *[Side(_get, name, core=None) for _ in range(self.pairs)],
            ]
            with Cast(sides) as cast:
                yield lambda each: self._figures(cast.turn(each), each)

    def _figures(self, said: list[Any], each: int) -> dict[str, float]:
        begun = min(said[: self.pairs])
        ended = max(end for end, _ in said[self.pairs :])
        verify([taken for _, taken in said[self.pairs :]], self.pairs, each)
        seconds = (ended - begun) / 1e9
        return {RATE.key: self.pairs * each / seconds, SECONDS: seconds}


def verify(taken: list[bytes], producers: int, each: int) -> None:
    """Raise Failed unless every message was consumed once, in its producer's order.

    ``taken`` has for each consumer the producer and number of each message, in order.
    """
    seen: collections.Counter[tuple[int, int]] = collections.Counter()
    for consumer in taken:
        latest = dict.fromkeys(range(producers), -1)
        words = array.array("I", consumer)
        for producer, number in zip(words[::2], words[1::2], strict=True):
            if number <= latest[producer]:
                raise Failed(f"message {number} of producer {producer} came after a later one")
            latest[producer] = number
            seen[producer, number] += 1
    if len(seen) != producers * each or seen.total() != len(seen):
        raise Failed(
            f"{seen.total()} messages were taken, {len(seen)} different ones, "
            f"of {producers * each} that were put"
        )


def _put(stage: Stage, name: str, producer: int) -> None:
    put = shmq.connect(name).queue("q").put
    for count in stage.turns():
        made = [BODY.pack(producer, number) for number in range(count)]
        stage.meet()
        begun = now()
        for body in made:
            put(body)
        stage.tell(begun)


def _get(stage: Stage, name: str) -> None:
    get = shmq.connect(name).queue("q").get
    for count in stage.turns():
        received: list[bytes] = []
        stage.meet()
        for _ in repeat(None, count):
            message = get()
            received.append(message.body)
            message.ack()
        ended = now()
        stage.tell((ended, b"".join(body[:8] for body in received)))


def row() -> Row:
    """1 x 1 and 16 x 16."""
    one, many = Crowd(1), Crowd(16)
    return Row(
        key="growth-crowd",
        title="64 B, one call each, many producers and consumers on the same two cores",
        contestants=[one, many],
        bars=[times(many.label, one.label, 0.5)],
        limit="a process that the kernel stops inside a lock stops the others of its side",
        turn=SECONDS_OF_TURN,
        share=1.5,
    )
