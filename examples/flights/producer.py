"""A producer: puts its share of the flights."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import shmq
from examples.flights.checkpoint import Checkpoint
from examples.flights.flights import Flight, read_flights
from examples.flights.plan import Plan
from examples.flights.queues import FLIGHTS, PATIENCE
from shmq.api.options import Confirm

#: The header of a flight that may have been put before.
PUT_AGAIN: Final = "put again"


def produce(plan: Plan, share: int, folder: Path | None = None) -> None:
    """Put every flight of the plan whose number is ``share`` modulo its producers.

    With a ``folder`` it continues from its :class:`~examples.flights.checkpoint.Checkpoint` there.
    """
    with shmq.connect(plan.namespace) as broker:
        queue = broker.queue(FLIGHTS)
        if folder is None:
            put_flights(queue, read_flights(plan.path, share, plan.producers, plan.flights))
            return
        with Checkpoint(folder, share) as checkpoint:
            first = share + checkpoint.flights * plan.producers
            rest = read_flights(plan.path, first, plan.producers, plan.flights)
            put_safely(queue, rest, checkpoint, plan.stride)


def put_flights(
    queue: shmq.Queue,
    flights: Iterable[Flight],
    *,
    confirm: Confirm | None = None,
    again: bool = False,
) -> None:
    """Put one message per flight, with its aircraft as group; late flights have priority.

    A flight without a known aircraft has no group. With ``again`` the messages have the header
    :data:`PUT_AGAIN`.
    """
    for flight in flights:
        queue.put(
            [flight.number, flight.carrier, flight.hour, *flight.delays],
            timeout=PATIENCE,
            priority=shmq.HIGH if flight.late else shmq.NORMAL,
            group=flight.aircraft,
            headers={PUT_AGAIN: True} if again else None,
            confirm=confirm,
        )


def put_safely(
    queue: shmq.Queue, flights: Iterable[Flight], checkpoint: Checkpoint, size: int
) -> None:
    """Put ``size`` flights at a time: they are on disk and noted before the next ones are put.

    So a producer that continues from the ``checkpoint`` may have put the next ``size`` flights
    before, but no later ones.
    """
    again = checkpoint.resumed
    checkpoint.begin()
    rest = iter(flights)
    while batch := list(itertools.islice(rest, size)):
        put_flights(queue, batch[:-1], again=again)
        # When a put is on disk, so are all puts before it.
        put_flights(queue, batch[-1:], confirm="disk", again=again)
        checkpoint.note(checkpoint.flights + len(batch))
        again = False
