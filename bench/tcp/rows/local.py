"""Local producers while a server idles in their namespace."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import shmq
from bench import bodies
from bench.machine import now, two_cores
from bench.row import SECONDS, Contestant, Figure, Role, Row, Turn, within
from bench.scratch import scratch
from bench.stage import Cast, Side, Stage
from bench.tcp.server import fresh
from bench.tcp.servers import Shmq

COST = Figure("cost", "ns a put", higher_is_better=False)


class Put(Contestant):
    """Puts in a namespace without a server, or with one that has the queue open."""

    most = 1000

    def __init__(self, served: bool) -> None:
        self.served = served
        self.label = f"shmq put, {'a server idle' if served else 'no server'}"
        self.role: Role = "shmq" if served else "harness"

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        with scratch() as broker, contextlib.ExitStack() as stack:
            broker.ensure_queue("q", capacity=2 * bodies.ROUND, dead_letter=None)
            if self.served:
                server = stack.enter_context(fresh(Shmq, broker.namespace))
                remote = stack.enter_context(shmq.connect(server.url))
                remote.queue("q").stats()
            side = Side(_put, broker.namespace, core=two_cores()[1])
            with Cast([side]) as cast:

                def turn(rounds: int) -> dict[str, float]:
                    (taken,) = cast.turn(rounds)
                    return {COST.key: taken / (rounds * bodies.ROUND), SECONDS: taken / 1e9}

                yield turn


def _put(stage: Stage, name: str) -> None:
    """Put rounds; every body is got and compared. It tells the time of the puts in ns."""
    sent = bodies.make(64)
    with shmq.connect(name) as broker:
        queue = broker.queue("q")
        put = queue.put
        for rounds in stage.turns():
            taken = 0
            for _ in range(rounds):
                begun = now()
                for body in sent:
                    put(body)
                taken += now() - begun
                batch = queue.get_batch(len(sent))
                bodies.check(batch.bodies, sent)
                batch.ack()
            stage.tell(taken)


def row() -> Row:
    """One process puts; the server has the queue open and gets no requests."""
    ours, alone = Put(served=True), Put(served=False)
    return Row(
        key="tcp-local",
        title="A local process puts, 64 B, while the server idles",
        contestants=[ours, alone],
        figures=[COST],
        bars=[within(ours.label, alone.label, 1.05, COST.key)],
        limit="the server is not involved in local operations",
    )
