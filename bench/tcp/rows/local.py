"""Local producers while a server idles in their namespace."""

from __future__ import annotations

import shmq
from bench import bodies
from bench.machine import now, two_cores
from bench.row import Contestant, Figure, Role, Row, at_most
from bench.scratch import scratch
from bench.stage import Side, Stage, together
from bench.tcp.server import fresh
from bench.tcp.servers import Shmq

COST = Figure("cost", "ns a put", higher_is_better=False)
ALONE = Figure("alone", "ns a put", higher_is_better=False)
RATIO = Figure("ratio", "x alone", higher_is_better=False)


class Beside(Contestant):
    """Puts without a server, with a server that has the queue open, and again without one."""

    role: Role = "shmq"
    label = "shmq put, a server idle"
    rounds = 4

    def calibrate(self, seconds: float) -> None:
        """See :class:`bench.row.Contestant`."""
        with scratch() as broker:
            self._make(broker)
            self.rounds = max(4, int(seconds * 1e9 / (self._cost(broker) * bodies.ROUND) / 3))

    def turn(self) -> dict[str, float]:
        """See :class:`bench.row.Contestant`."""
        with scratch() as broker:
            self._make(broker)
            before = self._cost(broker)
            with fresh(Shmq, broker.namespace) as server, shmq.connect(server.url) as remote:
                remote.queue("q").stats()
                beside = self._cost(broker)
                remote.queue("q").stats()
            self._make(broker)
            after = self._cost(broker)
        alone = (before + after) / 2
        return {COST.key: beside, ALONE.key: alone, RATIO.key: beside / alone}

    def _make(self, broker: shmq.Broker) -> None:
        broker.ensure_queue("q", capacity=2 * bodies.ROUND, dead_letter=None)

    def _cost(self, broker: shmq.Broker) -> float:
        side = Side(_put, broker.namespace, self.rounds, core=two_cores()[1])
        (taken,) = together([side])
        return float(taken)


def _put(stage: Stage, name: str, rounds: int) -> float:
    """The median time of a put over the rounds, in ns; every body is got and compared."""
    stage.meet()
    sent = bodies.make(64)
    taken = []
    with shmq.connect(name) as broker:
        queue = broker.queue("q")
        put = queue.put
        for _ in range(rounds):
            begun = now()
            for body in sent:
                put(body)
            taken.append(now() - begun)
            batch = queue.get_batch(len(sent))
            bodies.check(batch.bodies, sent)
            batch.ack()
    return sorted(taken)[len(taken) // 2] / len(sent)


def row() -> Row:
    """One process puts; the server has the queue open and gets no requests."""
    return Row(
        key="tcp-local",
        title="A local process puts, 64 B, while the server idles",
        contestants=[Beside()],
        figures=[COST, ALONE, RATIO],
        bars=[at_most(Beside.label, 1.05, "x alone", RATIO.key)],
        limit="nothing of the server is in a local process's way",
    )
