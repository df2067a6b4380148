"""Publishing through a topic exchange, with few and with very many bindings."""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Callable

import shmq
from bench.machine import now
from bench.row import Contestant, Figure, Role, Row, within
from bench.scratch import scratch

COST = Figure("cost", "us/publish", higher_is_better=False)
BODY = bytes(64)
FEW, MANY = 10, 10_000
#: The queue is drained after this many publishes, outside the measured time.
_ROUND = 500


class Publish(Contestant):
    """One of the ``bindings`` routes to the queue; there is one key, or always a new one."""

    role: Role = "shmq"

    def __init__(self, bindings: int, anew: bool, rounds: int = 20) -> None:
        self.bindings = bindings
        self.anew = anew
        self.rounds = rounds
        self.label = f"shmq, {bindings:,} bindings, {'keys anew' if anew else 'one key'}"

    def tiny(self) -> Contestant:
        """See :class:`bench.row.Contestant`."""
        return type(self)(self.bindings, self.anew, 1)

    def turn(self) -> dict[str, float]:
        """See :class:`bench.row.Contestant`."""
        with scratch() as broker:
            queue = broker.create_queue("q", dead_letter=None)
            exchange = broker.create_exchange("x", "topic")
            for number in range(self.bindings):
                exchange.bind("q", f"orders.{number}.*")
            publish = self.publisher(queue, exchange)
            numbers = itertools.count()
            spent = 0
            for _ in range(self.rounds):
                keys = ["orders.7.one"] * _ROUND
                if self.anew:
                    keys = [f"orders.{n % FEW}.{n}" for n in itertools.islice(numbers, _ROUND)]
                begun = now()
                for key in keys:
                    publish(key)
                spent += now() - begun
                assert queue.purge() == _ROUND
            broker.delete_exchange("x")
        return {"cost": spent / (self.rounds * _ROUND) / 1e3}

    def publisher(self, queue: shmq.Queue, exchange: shmq.Exchange) -> Callable[[str], object]:  # noqa: ARG002
        """The function that publishes a body with a key."""
        return lambda key: exchange.publish(BODY, key)


class Loop(Publish):
    """A loop that tries every pattern in turn: the work that an exchange avoids."""

    role: Role = "harness"

    def __init__(self, bindings: int, anew: bool = True, rounds: int = 1) -> None:
        super().__init__(bindings, anew, rounds)
        self.label = f"a loop over {bindings:,} compiled patterns, and a put"

    def publisher(self, queue: shmq.Queue, exchange: shmq.Exchange) -> Callable[[str], object]:
        """See :class:`Publish`."""
        patterns = [
            re.compile(re.escape(binding.key).replace(r"\*", "[^.]*"))
            for binding in exchange.bindings()
        ]

        def publish(key: str) -> None:
            if any(map(operator.methodcaller("fullmatch", key), patterns)):
                queue.put(BODY)

        return publish


def row() -> Row:
    """64 B, into one queue."""
    few, many = (
        {anew: Publish(bindings, anew) for anew in (False, True)} for bindings in (FEW, MANY)
    )
    return Row(
        key="routing",
        title="64 B published through a topic exchange, into one queue",
        contestants=[few[False], many[False], few[True], many[True], Loop(MANY)],
        figures=[COST],
        bars=[within(many[anew].label, few[anew].label, 2, COST.key) for anew in (False, True)],
        limit="Python, from the call to the put; a key is resolved once, by the words it has",
    )
