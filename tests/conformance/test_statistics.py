"""Statistics: depths, ages, rates, totals, and attached processes."""

from __future__ import annotations

import dataclasses
import time

import pytest

import shmq
from shmq import Broker, Queue
from tests.support.waiting import PATIENCE, eventually

from .conftest import Connect
from .tools import LATER, SOON, getter_asleep, in_thread, outcome, putter_asleep

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


def test_the_length_is_that_of_qsize_and_a_handle_is_true(queue: Queue) -> None:
    assert len(queue) == 0
    assert queue
    queue.put_many([b"a", b"b", b"c"])
    with queue.get():
        assert len(queue) == queue.qsize() == 2


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


def by_reason(queue: Queue) -> dict[str, int]:
    """The totals by reason that are not 0; they make up the whole."""
    stats = dataclasses.asdict(queue.stats())
    kinds = ("dead_lettered", "dropped")
    found = {name: stats[name] for name in stats for kind in kinds if name.startswith(f"{kind}_")}
    for kind in kinds:
        assert sum(found[name] for name in found if name.startswith(kind)) == stats[kind]
    return {name: number for name, number in found.items() if number}


def lose_three(queue: Queue) -> None:
    """Lose a message by a reject, one by its deliveries, and one by its ttl."""
    queue.put_many([1, 2])
    queue.get().reject()
    queue.get().nack(delay=0)
    queue.put(3, ttl=0.001)
    eventually(lambda: queue.stats().depth == queue.stats().dying == 0, "the ttl ends")


def test_dead_letters_are_counted_by_reason(broker: Broker) -> None:
    queue = broker.create_queue("jobs", max_deliveries=1)
    lose_three(queue)
    eventually(lambda: queue.stats().dead_lettered == 3, "all three are moved")

    assert by_reason(queue) == {
        "dead_lettered_rejected": 1,
        "dead_lettered_max_deliveries": 1,
        "dead_lettered_expired": 1,
    }


def test_what_is_dropped_is_counted_by_reason(broker: Broker) -> None:
    queue = broker.create_queue(
        "jobs", capacity=2, dead_letter=None, overflow="drop-oldest", max_deliveries=1
    )
    lose_three(queue)
    queue.put_many([4, 5, 6, 7])

    assert by_reason(queue) == {
        "dropped_rejected": 1,
        "dropped_max_deliveries": 1,
        "dropped_expired": 1,
        "dropped_overflow": 2,
    }


@pytest.mark.refused_by_clusters
def test_leases_say_who_holds_what_and_for_how_long(queue: Queue) -> None:
    queue.put_many([b"one", b"three", b"five!!"])
    queue.get().nack(delay=0)
    held = queue.get_many(2)

    first, second = queue.leases()

    assert [first.sequence, second.sequence] == sorted(each.sequence for each in held)
    (holder,) = [one for one in queue.attachments() if one.leases]
    for lease in (first, second):
        assert (lease.holder_pid, lease.holder_name) == (holder.pid, holder.name)
        assert 0 < lease.expires_in <= queue.options.visibility_timeout + 1
    assert {lease.sequence: (lease.deliveries, lease.size) for lease in (first, second)} == {
        each.sequence: (each.delivery_count, len(each.view)) for each in held
    }
    assert not hasattr(first, "receipt")


@pytest.mark.refused_by_clusters
def test_leases_are_shown_oldest_first_in_pieces(queue: Queue) -> None:
    queue.put_many(range(10))
    queue.get_many(9)

    pieces = [queue.leases(4), queue.leases(4, after=4), queue.leases(4, after=8)]

    assert [[one.sequence for one in piece] for piece in pieces] == [
        [1, 2, 3, 4],
        [5, 6, 7, 8],
        [9],
    ]
    assert queue.leases(after=9) == []


@pytest.mark.refused_by_clusters
def test_leases_are_all_shown_however_many_one_answer_holds(queue: Queue) -> None:
    queue.put_many([b""] * 5002)
    queue.get_many(5002)

    assert [one.sequence for one in queue.leases(10_000)] == [*range(1, 5003)]
    assert [one.sequence for one in queue.leases(5001)] == [*range(1, 5002)]


@pytest.mark.refused_by_clusters
def test_only_what_is_leased_now_is_among_the_leases(queue: Queue) -> None:
    queue.put_many(range(4))
    queue.put("delayed", delay=LATER)
    acked, back, ended, held = queue.get_many(4)
    acked.ack()
    back.nack(delay=0)
    ended.extend(0)

    assert [one.sequence for one in queue.leases()] == [held.sequence]


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": -1}, {"after": -1}, {"after": 1 << 64}])
def test_leases_refuse_a_number_out_of_range(queue: Queue, wrong: dict[str, int]) -> None:
    with pytest.raises(shmq.InvalidOption):
        queue.leases(**wrong)


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
