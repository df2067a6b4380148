"""Statistics: depths, ages, rates, totals, and attached processes."""

from __future__ import annotations

import dataclasses
import time

import pytest

import shmq
from shmq import Broker, Queue

from .conftest import Connect
from .tools import (
    LATER,
    PATIENCE,
    SOON,
    eventually,
    getter_asleep,
    in_thread,
    outcome,
    putter_asleep,
)

TOTALS = [
    "put",
    "acked",
    "nacked",
    "expired",
    "redelivered",
    "dead_lettered",
    "dropped",
    "deduped",
    "recoveries",
]


def totals(queue: Queue) -> dict[str, int]:
    """The totals that are not 0."""
    stats = dataclasses.asdict(queue.stats())
    return {name: stats[name] for name in TOTALS if stats[name]}


def test_a_new_queue_has_nothing_to_tell(queue: Queue) -> None:
    stats = queue.stats()

    assert stats.name == "q"
    assert stats.capacity == queue.options.capacity
    assert (stats.depth, stats.delayed, stats.in_flight, stats.dying) == (0, 0, 0, 0)
    assert (stats.oldest_age, stats.rate_in, stats.rate_out) == (0, 0, 0)
    assert (stats.waiting_get, stats.waiting_put) == (0, 0)
    assert totals(queue) == {}


def test_each_message_is_counted_where_it_is(queue: Queue) -> None:
    queue.put_many(range(5))
    queue.put("delayed", delay=LATER)
    queue.get_many(2)

    stats = queue.stats()

    assert (stats.depth, stats.delayed, stats.in_flight) == (3, 1, 2)


def test_the_depth_counts_what_waits_behind_its_group(queue: Queue) -> None:
    queue.put_many(range(5), group="g")
    queue.get()

    stats = queue.stats()

    assert (stats.depth, stats.in_flight) == (4, 1)
    assert queue.qsize() == 4


def test_every_client_sees_the_same_numbers(queue: Queue, other: Queue) -> None:
    queue.put_many(range(5))
    queue.get().ack()

    assert totals(other) == totals(queue) == {"put": 5, "acked": 1}


def test_puts_count_each_message_and_no_refusal(broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=3, max_message_bytes=100)
    queue.put(b"1")
    queue.put_many([b"2", b"3", b"4"])
    with pytest.raises(shmq.Full):
        queue.put(b"5")
    with pytest.raises(shmq.MessageTooLarge):
        queue.put(bytes(101))

    assert totals(queue) == {"put": 3}


def test_a_nack_and_the_redelivery_it_leads_to_are_counted(queue: Queue) -> None:
    queue.put(b"x")
    queue.get().nack(delay=0)
    queue.get().ack()

    assert totals(queue) == {"put": 1, "nacked": 1, "redelivered": 1, "acked": 1}


def test_a_lease_that_ran_out_is_counted(queue: Queue) -> None:
    queue.put(b"x")
    queue.get().extend(0)
    queue.get().ack()

    assert totals(queue) == {"put": 1, "expired": 1, "redelivered": 1, "acked": 1}


def test_dead_letters_are_counted_where_they_came_from(queue: Queue) -> None:
    queue.put_many([1, 2])
    queue.get().reject()

    assert totals(queue) == {"put": 2, "dead_lettered": 1}


def test_duplicates_are_counted(broker: Broker) -> None:
    queue = broker.create_queue("jobs", dedupe_window=LATER)
    for _ in range(3):
        queue.put(b"x", dedupe_id="one")

    assert totals(queue) == {"put": 1, "deduped": 2}


def test_what_is_dropped_is_counted(broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=1, dead_letter=None, overflow="drop-oldest")
    queue.put_many([1, 2, 3])
    queue.get().reject()

    assert totals(queue) == {"put": 3, "dropped": 3}


def test_settling_with_an_old_receipt_counts_nothing(queue: Queue) -> None:
    queue.put(b"x")
    message = queue.get()
    message.ack()
    before = totals(queue)

    for settle in (message.ack, message.nack, message.reject):
        with pytest.raises(shmq.LeaseExpired):
            settle()

    assert totals(queue) == before


def test_the_age_is_that_of_the_oldest_visible_message(queue: Queue) -> None:
    queue.put(b"old")
    began = time.monotonic()
    eventually(lambda: queue.stats().oldest_age >= SOON, "the message ages")
    assert time.monotonic() - began >= SOON / 2

    queue.get().ack()

    assert queue.stats().oldest_age == 0


def test_leased_and_delayed_messages_have_no_part_in_the_age(queue: Queue) -> None:
    queue.put(b"leased")
    queue.get()
    queue.put(b"delayed", delay=LATER)

    assert queue.stats().oldest_age == 0


def test_the_rates_follow_what_goes_in_and_out(queue: Queue) -> None:
    def go_on() -> bool:
        queue.put_many(range(10))
        queue.ack_many(queue.get_many(10))
        stats = queue.stats()
        return stats.rate_in > 0 and stats.rate_out > 0

    eventually(go_on, "rates above zero")

    eventually(lambda: queue.stats().rate_in == 0, "the rate falls when nothing comes")


def test_a_waiting_get_is_counted(queue: Queue, other: Queue) -> None:
    waiter = in_thread(other.get, True, PATIENCE)
    getter_asleep(queue)
    assert queue.stats().waiting_put == 0

    queue.put(b"x")
    outcome(waiter)

    eventually(lambda: queue.stats().waiting_get == 0, "no process waits any more")


def test_a_waiting_put_is_counted(connect: Connect) -> None:
    queue = connect().create_queue("jobs", capacity=1, overflow="block")
    queue.put(b"1")
    waiter = in_thread(connect().queue("jobs").put, b"2")
    putter_asleep(queue)
    assert queue.stats().waiting_get == 0

    queue.purge()
    outcome(waiter)

    eventually(lambda: queue.stats().waiting_put == 0, "no process waits any more")


def test_a_wait_that_timed_out_is_no_longer_counted(queue: Queue) -> None:
    with pytest.raises(shmq.Empty):
        queue.get(timeout=SOON)

    eventually(lambda: queue.stats().waiting_get == 0, "no process waits any more")


@pytest.mark.only_local("a server is attached for its clients")
def test_attached_processes_are_told_with_the_leases_they_hold(connect: Connect) -> None:
    before = time.time()
    queue = connect().create_queue("jobs")
    idle = connect().queue("jobs")
    queue.put_many([1, 2, 3])
    queue.get_many(2)

    attached = queue.attachments()

    assert idle.attachments() == attached
    assert len(attached) >= 2
    assert sorted(entry.leases for entry in attached)[-2:] == [0, 2]
    for entry in attached:
        assert entry.alive
        assert entry.pid > 0
        assert entry.name
        assert before - 1 <= entry.since <= time.time() + 1


@pytest.mark.only_local("a server is attached for its clients")
def test_a_process_that_has_left_is_no_longer_attached(connect: Connect) -> None:
    queue = connect().create_queue("jobs")
    alone = len(queue.attachments())
    with connect() as leaver:
        left = leaver.queue("jobs")
        assert left.qsize() == 0
        assert len(queue.attachments()) == alone + 1

    eventually(lambda: len(queue.attachments()) == alone, "the client is gone")


def test_numbers_are_of_the_queue_not_of_its_handle(connect: Connect) -> None:
    with connect() as first:
        first.create_queue("jobs").put_many(range(7))

    assert totals(connect().queue("jobs")) == {"put": 7}
