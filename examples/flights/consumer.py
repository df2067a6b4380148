"""A consumer: leases flights, adds them up, hands the sums over, and only then acks."""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from typing import Final

import shmq
from examples.flights.producer import PUT_AGAIN
from examples.flights.queues import FLIGHTS, PATIENCE, RESULTS
from examples.flights.tally import Tally

__all__ = ["OVER_TCP", "Batch", "consume", "consume_over_tcp", "is_wanted", "spell"]

#: Messages leased ahead of the one at hand.
PREFETCH: Final = 256
#: With nothing new for so long, in seconds, what is at hand is settled.
IDLE: Final = 0.005
#: The header of a result that came over TCP.
OVER_TCP: Final = "over tcp"


class Batch:
    """Messages at hand and what they add up to.

    Flights delivered for the first time share one tally: no other tally can hold them.
    One delivered again may have been counted from a batch that its consumer handed over
    and did not live to acknowledge, so it gets a tally of its own.

    With ``apart``, each flight gets one of its own, whenever it is delivered. So it must be
    where a lease can end while its holder lives and hands over: over TCP, with the
    connection.

    So does one of which its delivery count does not tell, as the memory was lost since: those
    that came back from the disk, which are the messages up to the number ``doubted``, and
    those that their producer has put again.
    """

    def __init__(self, *, apart: bool = False, doubted: int = 0) -> None:
        self._apart = apart
        self._doubted = doubted
        self._messages: list[shmq.Message] = []
        self._first = Tally()
        self._alone: list[Tally] = []

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, message: shmq.Message) -> None:
        """Add one flight's message up."""
        number, carrier, hour, departure, arrival = message.body
        tally = self._first
        again = message.delivery_count > 1
        if again or self._apart or self._is_doubtful(message):
            tally = Tally(again=again)
            self._alone.append(tally)
        tally.count(number, carrier, hour, message.priority == shmq.HIGH, departure, arrival)
        self._messages.append(message)

    def _is_doubtful(self, message: shmq.Message) -> bool:
        return message.sequence <= self._doubted or PUT_AGAIN in message.headers

    def settle(self, flights: shmq.Queue, results: shmq.Queue) -> None:
        """Hand the tallies over, and then acknowledge their messages.

        The order is what makes the job exact: a consumer killed at any point leaves
        each of its flights handed over, or to be delivered again, or both. Where the
        results have a journal, they are on disk by then.
        """
        self.hand_over(results)
        flights.ack_many(self._messages)

    def hand_over(self, results: shmq.Queue) -> None:
        """Put the tallies as one message: all of them arrive, or none does."""
        tallies = [tally for tally in (self._first, *self._alone) if tally.numbers]
        headers = {OVER_TCP: True} if self._apart else None
        results.put([tally.packed() for tally in tallies], timeout=PATIENCE, headers=headers)


def consume(namespace: str, batch_size: int, remote_first: bool, doubted: int = 0) -> None:
    """Work until the queue of flights is deleted, which raises ``QueueDeleted``.

    Messages up to the number ``doubted`` may have been delivered before the memory was lost.

    With ``remote_first`` it begins when there is a first result, which is then that of a
    consumer over TCP. A consumer whose parent is gone has nobody to work for, and returns.
    """
    with shmq.connect(namespace) as broker:
        flights, results = broker.queue(FLIGHTS), broker.queue(RESULTS)
        while remote_first and is_wanted() and not results.stats().put:
            time.sleep(IDLE)
        while is_wanted():
            spell(flights, results, batch_size, doubted=doubted)


def consume_over_tcp(url: str, batch_size: int) -> None:
    """The same over TCP, on another connection whenever one is lost."""
    while is_wanted():
        with contextlib.suppress(shmq.ConnectionLost), shmq.connect(url) as broker:
            flights, results = broker.queue(FLIGHTS), broker.queue(RESULTS)
            while is_wanted():
                spell(flights, results, batch_size, apart=True)


def is_wanted() -> bool:
    """Whether who started this process still lives."""
    parent = multiprocessing.parent_process()
    return parent is None or parent.is_alive()


def spell(
    flights: shmq.Queue,
    results: shmq.Queue,
    batch_size: int,
    *,
    apart: bool = False,
    doubted: int = 0,
) -> None:
    """Work in batches until no message came for :data:`IDLE` seconds.

    A batch that has to wait is settled as it is: the messages that it waits for may be
    of aircraft whose last flight it holds.
    """
    batch = Batch(apart=apart, doubted=doubted)
    with flights.consume(prefetch=PREFETCH, timeout=IDLE) as messages:
        for message in messages:
            batch.add(message)
            if len(batch) >= batch_size:
                batch.settle(flights, results)
                batch = Batch(apart=apart, doubted=doubted)
        if batch:
            batch.settle(flights, results)
