"""Requests and replies, compared with the bare semaphores that two sleeping processes need."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import shmq
from bench import bodies
from bench.machine import now, two_cores
from bench.row import Contestant, Role, Row, Turn, within
from bench.scratch import scratch
from bench.stage import PATIENCE, Cast, Side, Stage
from bench.trip import LEAST, MEDIAN, MOST, TripLimit, figures

LABEL = "shmq request, serve"
LIMIT = "C sem_post, sem_wait, two cores"
#: The body of the last request of a turn.
LAST = b"last"


class Requests(Contestant):
    """A client that sends requests, and a server that sends the body back, on two cores."""

    label = LABEL
    role: Role = "shmq"
    least, most = LEAST, MOST

    def __init__(self, cores: tuple[int, int]) -> None:
        self.cores = cores

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        with scratch() as broker:
            broker.create_queue("q", dead_letter=None)
            sides = [
                Side(_ask, broker.namespace, core=self.cores[0]),
                Side(_serve, broker.namespace, core=self.cores[1]),
            ]
            with Cast(sides) as cast:
                yield lambda trips: figures(cast.turn(trips)[0])


def _ask(stage: Stage, name: str) -> None:
    sent = bodies.make(64)
    with shmq.connect(name) as broker:
        queue = broker.queue("q")
        for trips in stage.turns():
            taken = []
            for trip in range(trips):
                body = sent[trip % len(sent)]
                begun = now()
                found = broker.request(queue, body, PATIENCE).body
                taken.append(now() - begun)
                if found != body:
                    bodies.check([found], [body])
            broker.request(queue, LAST, PATIENCE)
            stage.tell(taken)


def _serve(stage: Stage, name: str) -> None:
    """Answer, in each turn until the last request comes."""
    last = threading.Event()

    def answer(message: shmq.Message) -> bytes:
        body: bytes = message.body
        if body == LAST:
            last.set()
        return body

    with shmq.connect(name) as broker:
        queue = broker.queue("q")
        for _ in stage.turns():
            last.clear()
            broker.serve(queue, answer, stop=last)


def row() -> Row:
    """One request after the other, like the bare semaphores."""
    cores = two_cores()
    return Row(
        key="request-reply",
        title="Request and reply, 64 B",
        contestants=[Requests(cores), TripLimit(LIMIT, "sleep", "two cores", cores)],
        figures=[MEDIAN],
        bars=[within(LABEL, LIMIT, 2.5, MEDIAN.key)],
        limit="two messages with their properties, each a put, a get and an ack",
    )
