"""How long the next operation waits when the holder of the lock dies."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import shmq
from bench import bodies
from bench.compiled import no_compiler
from bench.deaths import die_inside
from bench.machine import now
from bench.row import Contestant, Figure, Role, Row, Turn, at_most
from bench.scratch import scratch
from bench.stage import Failed

TIME = Figure("time", "ms", higher_is_better=False)
#: Messages, so slots, of the queue.
SLOTS = 1_000_000


class Recovery(Contestant):
    """A queue full of messages, a death inside its lock, and the next operation."""

    role: Role = "shmq"

    def __init__(self, label: str, slots: int, groups: int) -> None:
        self.label = label
        self.slots = slots
        self.groups = groups

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        return no_compiler()

    def tiny(self) -> Contestant:
        """See :class:`bench.row.Contestant`."""
        return Recovery(self.label, 3000, min(self.groups, 10))

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        deaths = itertools.count(1)
        with scratch() as broker:
            queue = broker.create_queue(
                "q", capacity=self.slots, arena_bytes=self.slots * 128, max_deliveries=None
            )
            self._fill(queue)

            def turn(_: int) -> dict[str, float]:
                die_inside(broker.namespace, "q")
                begun = now()
                first = queue.get()
                taken = now() - begun
                self._poll(queue, first, next(deaths))
                return {TIME.key: taken / 1e6}

            yield turn

    def _fill(self, queue: shmq.Queue) -> None:
        sent = bodies.make(64)
        if self.groups:
            names = [f"group {number}" for number in range(self.groups)]
            for number in range(self.slots):
                queue.put(sent[number % len(sent)], group=names[number % self.groups])
            return
        left = self.slots
        while left:
            left -= queue.put_many(sent[:left])

    def _poll(self, queue: shmq.Queue, first: shmq.Message, deaths: int) -> None:
        """Check that each death was recovered from, all messages exist, the first in order."""
        stats = queue.stats()
        there = stats.depth + stats.in_flight
        if there != self.slots or stats.recoveries != deaths:
            raise Failed(
                f"{there} messages of {self.slots} are there, after {stats.recoveries} recoveries"
            )
        sent = bodies.make(64)
        count = min(len(sent), self.slots, self.groups or self.slots)
        found = [first.body, *(message.body for message in queue.peek(count - 1))]
        bodies.check(found, sent[:count])
        first.nack(0)


def row() -> Row:
    """A million slots."""
    contestants = [
        Recovery("shmq, 1,000,000 messages", SLOTS, 0),
        Recovery("shmq, 1,000,000 messages in 1,000 groups", SLOTS, 1000),
    ]
    return Row(
        key="recovery",
        title="The first operation after the lock's holder was killed",
        contestants=contestants,
        figures=[TIME],
        bars=[at_most(contestant.label, 50, "ms", TIME.key) for contestant in contestants],
        limit="reading every slot once: 64 MB",
        share=2.5,
    )
