"""A consumer: leases flights, adds them up, hands the sums over, and only then acks."""

from __future__ import annotations

import multiprocessing
from typing import Final

import shmq
from shmq.demo.queues import FLIGHTS, PATIENCE, RESULTS
from shmq.demo.tally import Tally

__all__ = ["Batch", "consume", "spell"]

#: Messages leased ahead of the one at hand.
PREFETCH: Final = 256
#: With nothing new for so long, in seconds, what is at hand is settled.
IDLE: Final = 0.005


class Batch:
    """Messages at hand and what they add up to.

    Flights delivered for the first time share one tally: no other tally can hold them.
    One delivered again may have been counted from a batch that its consumer handed over
    and did not live to acknowledge, so it gets a tally of its own.
    """

    def __init__(self) -> None:
        self._messages: list[shmq.Message] = []
        self._first = Tally()
        self._again: list[Tally] = []

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, message: shmq.Message) -> None:
        """Add one flight's message up."""
        number, carrier, departure, arrival = message.body
        tally = self._first
        if message.delivery_count > 1:
            tally = Tally(again=True)
            self._again.append(tally)
        tally.count(number, carrier, message.priority == shmq.HIGH, departure, arrival)
        self._messages.append(message)

    def settle(self, flights: shmq.Queue, results: shmq.Queue) -> None:
        """Hand the tallies over, and then acknowledge their messages.

        The order is what makes the job exact: a consumer killed at any point leaves
        each of its flights handed over, or to be delivered again, or both.
        """
        self.hand_over(results)
        flights.ack_many(self._messages)

    def hand_over(self, results: shmq.Queue) -> None:
        """Put the tallies as one message: all of them arrive, or none does."""
        tallies = [tally for tally in (self._first, *self._again) if tally.numbers]
        results.put([tally.packed() for tally in tallies], timeout=PATIENCE)


def consume(namespace: str, batch_size: int) -> None:
    """Work until the queue of flights is deleted, which raises ``QueueDeleted``.

    A consumer whose parent is gone has nobody to work for, and returns.
    """
    parent = multiprocessing.parent_process()
    with shmq.connect(namespace) as broker:
        flights, results = broker.queue(FLIGHTS), broker.queue(RESULTS)
        while parent is None or parent.is_alive():
            spell(flights, results, batch_size)


def spell(flights: shmq.Queue, results: shmq.Queue, batch_size: int) -> None:
    """Work in batches until no message came for :data:`IDLE` seconds.

    A batch that has to wait is settled as it is: the messages that it waits for may be
    of aircraft whose last flight it holds.
    """
    batch = Batch()
    with flights.consume(prefetch=PREFETCH, timeout=IDLE) as messages:
        for message in messages:
            batch.add(message)
            if len(batch) >= batch_size:
                batch.settle(flights, results)
                batch = Batch()
        if batch:
            batch.settle(flights, results)
