"""Publishing through a topic exchange, with few and with very many bindings."""

from __future__ import annotations

import contextlib
import itertools
import operator
import re
from collections.abc import Callable, Iterator

import shmq
from bench.machine import now
from bench.row import SECONDS, Contestant, Figure, Role, Row, Turn, within
from bench.scratch import scratch
from bench.stage import Failed

COST = Figure("cost", "us/publish", higher_is_better=False)
BODY = bytes(64)
FEW, MANY = 10, 10_000
#: The most publishes of a turn; the queue is drained after each.
_MOST = 10_000


class Publish(Contestant):
    """One of the ``bindings`` routes to the queue; there is one key, or always a new one."""

    role: Role = "shmq"
    most = _MOST

    def __init__(self, bindings: int, again: bool) -> None:
        self.bindings = bindings
        self.again = again
        self.label = f"shmq, {bindings:,} bindings, {'new keys' if again else 'one key'}"

    def tiny(self) -> Contestant:
        """See :class:`bench.row.Contestant`."""
        few = type(self)(min(self.bindings, 100), self.again)
        few.label = self.label
        return few

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        with scratch() as broker:
            queue = broker.create_queue("q", dead_letter=None)
            exchange = broker.create_exchange("x", "topic")
            for number in range(self.bindings):
                exchange.bind("q", f"orders.{number}.*")
            publish = self.publisher(queue, exchange)
            numbers = itertools.count()

            def turn(count: int) -> dict[str, float]:
                keys = ["orders.7.one"] * count
                if self.again:
                    keys = [f"orders.{n % FEW}.{n}" for n in itertools.islice(numbers, count)]
                begun = now()
                for key in keys:
                    publish(key)
                spent = now() - begun
                if (came := queue.purge()) != count:
                    raise Failed(f"{came} messages of {count} that were published are there")
                return {COST.key: spent / count / 1e3, SECONDS: spent / 1e9}

            try:
                yield turn
            finally:
                broker.delete_exchange("x")

    def publisher(self, queue: shmq.Queue, exchange: shmq.Exchange) -> Callable[[str], object]:  # noqa: ARG002
        """The function that publishes a body with a key."""
        return lambda key: exchange.publish(BODY, key)


class Loop(Publish):
    """A loop that tries every pattern in turn: the work that an exchange avoids."""

    role: Role = "harness"

    def __init__(self, bindings: int, again: bool = True) -> None:
        super().__init__(bindings, again)
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
        {again: Publish(bindings, again) for again in (False, True)} for bindings in (FEW, MANY)
    )
    return Row(
        key="routing",
        title="64 B published through a topic exchange, into one queue",
        contestants=[few[False], many[False], few[True], many[True], Loop(MANY)],
        figures=[COST],
        bars=[within(many[again].label, few[again].label, 2, COST.key) for again in (False, True)],
        limit="Python, from the call to the put; a key is resolved once, by the words it has",
        share=2.0,
    )
