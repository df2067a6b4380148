"""A producer: puts its share of the flights."""

from __future__ import annotations

from collections.abc import Iterable

import shmq
from shmq.demo.flights import Flight, read_flights
from shmq.demo.plan import Plan
from shmq.demo.queues import FLIGHTS, PATIENCE

__all__ = ["produce", "put_flights"]


def produce(plan: Plan, share: int) -> None:
    """Put every flight of the plan whose number is ``share`` modulo its producers."""
    flights = read_flights(plan.path, share, plan.producers, plan.flights)
    with shmq.connect(plan.namespace) as broker:
        put_flights(broker.queue(FLIGHTS), flights)


def put_flights(queue: shmq.Queue, flights: Iterable[Flight]) -> None:
    """Put one message per flight: its aircraft is its group, a late one goes first.

    Flights without a known aircraft are of no group: nothing says they share one.
    """
    for flight in flights:
        queue.put(
            [flight.number, flight.carrier, flight.departure_delay, flight.arrival_delay],
            timeout=PATIENCE,
            priority=shmq.HIGH if flight.late else shmq.NORMAL,
            group=flight.aircraft,
        )
