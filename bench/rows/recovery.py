"""How long the next operation waits when the holder of the lock dies."""

from __future__ import annotations

import shmq
from bench import bodies
from bench.compiled import no_compiler
from bench.deaths import die_inside
from bench.machine import now
from bench.row import Contestant, Figure, Role, Row, at_most
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

    def turn(self) -> dict[str, float]:
        """See :class:`bench.row.Contestant`."""
        with scratch() as broker:
            queue = broker.create_queue(
                "q", capacity=self.slots, arena_bytes=self.slots * 128, dead_letter=None
            )
            self._fill(queue)
            die_inside(broker.namespace, "q")
            begun = now()
            first = queue.get()
            taken = now() - begun
            self._look(queue, first)
        return {TIME.key: taken / 1e6}

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

    def _look(self, queue: shmq.Queue, first: shmq.Message) -> None:
        """Check that a recovery happened, all messages exist, and the first ones are in order."""
        stats = queue.stats()
        there = stats.depth + stats.in_flight
        if there != self.slots or stats.recoveries != 1:
            raise Failed(
                f"{there} messages of {self.slots} are there, after {stats.recoveries} recoveries"
            )
        sent = bodies.make(64)
        count = min(len(sent), self.slots, self.groups or self.slots)
        found = [first, *queue.get_many(count - 1)]
        bodies.check([message.body for message in found], sent[:count])


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
    )
