"""A consumer: leases flights, adds them up, hands over the sums, and only then acknowledges."""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from typing import Final

import shmq
from examples.flights.producer import PUT_AGAIN
from examples.flights.queues import FLIGHTS, PATIENCE, RESULTS
from examples.flights.tally import Tally

#: Messages leased ahead of the current one.
PREFETCH: Final = 256
#: A batch is settled after this long without a new message, in seconds.
IDLE: Final = 0.005
#: The header of a result that came over TCP.
OVER_TCP: Final = "over tcp"


class Batch:
    """Unacknowledged messages and their tallies.

    Flights delivered for the first time share one tally: no other tally can hold them.
    A redelivered flight may have been counted already, if its consumer died between handing
    over a batch and acknowledging it. So it gets its own tally.

    With ``apart``, every flight gets its own tally. That is needed over TCP, where a lease ends
    with the connection while the consumer still lives and hands over.

    A flight also gets its own tally if its delivery count is unreliable because the memory was
    lost: a message recovered from disk, which is one up to the number ``doubted``, or one that
    its producer has put again.
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
        """Add one flight's message."""
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
        """Hand over the tallies, and then acknowledge their messages.

        This order makes the job exact: if a consumer is killed at any point, each of its flights
        is handed over, or delivered again, or both. If the results have a journal, they are on
        disk before the acknowledgement.
        """
        self.hand_over(results)
        flights.ack_many(self._messages)

    def hand_over(self, results: shmq.Queue) -> None:
        """Put the tallies as one message, so that all of them arrive or none."""
        tallies = [tally for tally in (self._first, *self._alone) if tally.numbers]
        headers = {OVER_TCP: True} if self._apart else None
        results.put([tally.packed() for tally in tallies], timeout=PATIENCE, headers=headers)


def consume(namespace: str, batch_size: int, remote_first: bool, doubted: int = 0) -> None:
    """Work until the queue of flights is deleted, which raises ``QueueDeleted``.

    Messages up to the number ``doubted`` may have been delivered before the memory was lost.

    With ``remote_first`` it begins after the first result, which is then from a consumer over
    TCP. It returns if its parent is gone.
    """
    with shmq.connect(namespace) as broker:
        flights, results = broker.queue(FLIGHTS), broker.queue(RESULTS)
        while remote_first and is_wanted() and not results.stats().put:
            time.sleep(IDLE)
        while is_wanted():
            spell(flights, results, batch_size, doubted=doubted)


def consume_over_tcp(url: str, batch_size: int) -> None:
    """Consume over TCP; reconnect whenever the connection is lost."""
    while is_wanted():
        with contextlib.suppress(shmq.ConnectionLost), shmq.connect(url) as broker:
            flights, results = broker.queue(FLIGHTS), broker.queue(RESULTS)
            while is_wanted():
                spell(flights, results, batch_size, apart=True)


def is_wanted() -> bool:
    """Whether the parent of this process still lives."""
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
    """Work in batches until no message has come for :data:`IDLE` seconds.

    A batch that would have to wait is settled early: the next messages may belong to aircraft
    whose previous flight the batch holds.
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
