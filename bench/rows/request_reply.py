"""Requests and replies, compared with the bare semaphores that two sleeping processes need."""

from __future__ import annotations

import shmq
from bench import bodies
from bench.machine import now, two_cores
from bench.row import Contestant, Role, Row, within
from bench.scratch import unique_name
from bench.stage import PATIENCE, Side, Stage, together
from bench.trip import LEAST, MEDIAN, MOST, TAIL, WARM, TripLimit

LABEL = "shmq request, serve"
LIMIT = "C sem_post, sem_wait, two cores"


class Requests(Contestant):
    """A client that sends requests, and a server that sends the body back, on two cores."""

    label = LABEL
    role: Role = "shmq"

    def __init__(self, cores: tuple[int, int]) -> None:
        self.cores = cores
        self.trips = LEAST

    def calibrate(self, seconds: float) -> None:
        """See :class:`bench.row.Contestant`."""
        self.trips = LEAST
        trip = self.turn()[MEDIAN.key] / 1e6
        self.trips = max(LEAST, min(MOST, int(seconds / trip)))

    def turn(self) -> dict[str, float]:
        """See :class:`bench.row.Contestant`."""
        name = unique_name()
        with shmq.connect(name) as broker:
            broker.create_queue("q", dead_letter=None)
            try:
                sides = [
                    Side(_ask, name, self.trips, core=self.cores[0]),
                    Side(_serve, name, core=self.cores[1]),
                ]
                taken = sorted(together(sides, PATIENCE)[0])
            finally:
                for each in broker.list_queues():
                    broker.delete_queue(each.name)
        return {
            MEDIAN.key: taken[len(taken) // 2] / 1000,
            TAIL.key: taken[len(taken) * 99 // 100] / 1000,
        }


def _ask(stage: Stage, name: str, trips: int) -> list[int]:
    sent = bodies.make(64)
    taken = []
    with shmq.connect(name) as broker:
        queue = broker.queue("q")
        stage.meet()
        for trip in range(WARM + trips):
            body = sent[trip % len(sent)]
            begun = now()
            found = broker.request(queue, body, PATIENCE).body
            taken.append(now() - begun)
            if found != body:
                bodies.check([found], [body])
        broker.delete_queue("q")
    return taken[WARM:]


def _serve(stage: Stage, name: str) -> None:
    with shmq.connect(name) as broker:
        queue = broker.queue("q")
        stage.meet()
        try:
            broker.serve(queue, lambda message: message.body)
        except shmq.QueueDeleted:
            return


def row() -> Row:
    """One request after the other, like the bare semaphores."""
    cores = two_cores()
    return Row(
        key="request-reply",
        title="Request and reply, 64 B",
        contestants=[Requests(cores), TripLimit(LIMIT, "sleep", cores)],
        figures=[MEDIAN, TAIL],
        bars=[within(LABEL, LIMIT, 2.5, MEDIAN.key)],
        limit="two messages with their properties, each a put, a get and an ack",
    )
