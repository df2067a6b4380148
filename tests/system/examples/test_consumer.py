"""What a consumer hands over, and what is left if it dies in between."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import shmq
from examples.flights.consumer import OVER_TCP, Batch, spell
from examples.flights.errors import DemoError
from examples.flights.flights import Flight
from examples.flights.ledger import Ledger
from examples.flights.producer import put_flights
from examples.flights.queues import FLIGHTS, RESULTS
from examples.flights.queues import Queues as Both
from examples.flights.tally import Sums, Tally

Queues = tuple[shmq.Queue, shmq.Queue]

FLOWN = [
    Flight(0, "UA", "N1", 5, 2, 3),
    Flight(1, "UA", "N1", 6, 40, 50),
    Flight(2, "DL", None, 6, None, None),
    Flight(3, "DL", "N2", 7, -5, None),
]
SUMS = {"UA": Sums(2, 1, 2, 42, 2, 53), "DL": Sums(2, 0, 1, -5, 0, 0)}


@pytest.fixture
def queues(namespace: str) -> Iterator[Queues]:
    with Both(namespace) as both:
        yield both.flights, both.results


def taken_in(results: shmq.Queue, ledger: Ledger) -> None:
    for message in results.get_many(100, block=False):
        for values in message.body:
            ledger.add(Tally.unpacked(values))
        message.ack()


def test_a_flight_is_put_with_its_aircraft_as_group_and_late_ones_go_first(queues: Queues) -> None:
    flights, _ = queues
    put_flights(flights, FLOWN)
    seen = [(m.body, m.group, m.priority) for m in flights.peek()]
    assert seen[0] == ([1, "UA", 6, 40, 50], "N1", shmq.HIGH)
    assert ([2, "DL", 6, None, None], None, shmq.NORMAL) in seen


@pytest.mark.parametrize("size", [1, 2, 100])
def test_spells_add_up_and_acknowledge_all_there_is(queues: Queues, size: int) -> None:
    flights, results = queues
    put_flights(flights, FLOWN)
    while flights.qsize():
        spell(flights, results, size)
    ledger = Ledger(len(FLOWN))
    taken_in(results, ledger)
    assert ledger.complete
    assert ledger.carriers == SUMS
    assert (ledger.again, ledger.torn) == (0, 0)
    assert (flights.stats().acked, flights.stats().in_flight) == (len(FLOWN), 0)


def test_flights_of_one_aircraft_follow_each_other_through_batches_that_wait(
    queues: Queues,
) -> None:
    flights, results = queues
    put_flights(flights, [Flight(n, "UA", "N1", 5, n, n) for n in range(10)])
    for _ in range(10):
        spell(flights, results, 100)
    ledger = Ledger(10)
    taken_in(results, ledger)
    assert ledger.complete


@pytest.mark.parametrize("handed_over", [False, True])
def test_flights_of_a_consumer_that_died_before_its_acks_are_counted_once(
    queues: Queues, namespace: str, handed_over: bool
) -> None:
    flights, results = queues
    put_flights(flights, FLOWN)
    ledger = Ledger(len(FLOWN))
    with shmq.connect(namespace) as other:
        theirs = other.queue(FLIGHTS)
        batch = Batch()
        for message in theirs.get_many(100):
            batch.add(message)
        held = len(batch)
        if handed_over:
            batch.hand_over(other.queue(RESULTS))
    while flights.qsize():
        spell(flights, results, 100)
    taken_in(results, ledger)
    assert ledger.complete
    assert ledger.carriers == SUMS
    assert (ledger.again, ledger.repeated) == (held, held if handed_over else 0)
    assert ledger.torn == 0


def test_a_flight_that_is_counted_apart_is_in_a_tally_of_its_own(queues: Queues) -> None:
    flights, results = queues
    put_flights(flights, FLOWN)
    while flights.qsize():
        spell(flights, results, 100, apart=True)
    ledger = Ledger(len(FLOWN))
    for message in results.get_many(100, block=False):
        assert OVER_TCP in message.headers
        tallies = [Tally.unpacked(values) for values in message.body]
        assert [len(tally.numbers) for tally in tallies] == [1] * len(tallies)
        for tally in tallies:
            ledger.add(tally)
    assert ledger.carriers == SUMS


def test_flights_that_are_counted_apart_can_be_handed_over_after_their_lease(
    queues: Queues,
) -> None:
    flights, results = queues
    put_flights(flights, FLOWN)
    late = Batch(apart=True)
    for message in flights.get_many(100):
        late.add(message)
        message.extend(0)
    held = len(late)
    while flights.qsize():
        spell(flights, results, 100)
    late.settle(flights, results)

    ledger = Ledger(len(FLOWN))
    taken_in(results, ledger)
    assert ledger.complete
    assert ledger.carriers == SUMS
    assert (ledger.repeated, ledger.torn) == (held, 0)


def test_what_came_back_from_disk_or_was_put_again_shares_no_tally(queues: Queues) -> None:
    flights, results = queues
    put_flights(flights, FLOWN[:1])
    put_flights(flights, FLOWN[1:2], again=True)
    put_flights(flights, FLOWN[2:])
    put_flights(flights, FLOWN[1:2], again=True)
    while flights.qsize():
        spell(flights, results, 100, doubted=1)
    handed = [Tally.unpacked(v) for message in results.get_many(100) for v in message.body]
    shared = [tally.numbers.tolist() for tally in handed if len(tally.numbers) > 1]
    alone = sorted(tally.numbers[0] for tally in handed if len(tally.numbers) == 1)
    assert (shared, alone) == ([[2, 3]], [0, 1, 1])
    ledger = Ledger(len(FLOWN))
    for tally in handed:
        ledger.add(tally)
    assert ledger.carriers == SUMS
    assert (ledger.again, ledger.repeated, ledger.torn) == (0, 1, 0)


def test_queues_that_may_lose_the_namespaces_memory_want_it_for_themselves(namespace: str) -> None:
    with shmq.connect(namespace) as broker:
        broker.create_queue("orders", dead_letter=None)
        with pytest.raises(DemoError, match="'orders' already"), Both(namespace, durable=True):
            pytest.fail("the memory of another's queue could be lost")
        assert [queue.name for queue in broker.list_queues()] == ["orders"]


def test_a_namespace_that_has_such_a_queue_is_refused_and_left_alone(namespace: str) -> None:
    with shmq.connect(namespace) as broker:
        broker.create_queue(RESULTS)
        with pytest.raises(DemoError, match="already"), Both(namespace):
            pytest.fail("the queue of another was taken")
        assert RESULTS in [queue.name for queue in broker.list_queues()]
