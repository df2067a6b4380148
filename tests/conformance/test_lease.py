"""The lease: ack, nack, reject, extend, expiry, and receipts that fence.

Other levels: c/test_lease.c, c/test_receipt.c, system/wire/test_receipts.py,
system/workers/test_lease.py, prove/crash/scenarios.py.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable

import pytest

import shmq
from shmq import Broker, Message, Queue
from tests.support.waiting import eventually

from .conftest import Connect
from .tools import LATER, SOON, drain, in_thread, in_time, next_message, outcome

SETTLE: dict[str, Callable[[Message], None]] = {
    "ack": lambda message: message.ack(),
    "nack": lambda message: message.nack(delay=0),
    "reject": lambda message: message.reject(),
    "extend": lambda message: message.extend(1),
}

BY_RECEIPT: dict[str, Callable[[Queue, int], object]] = {
    "ack": lambda queue, receipt: queue.ack(receipt),
    "nack": lambda queue, receipt: queue.nack(receipt, delay=0),
    "reject": lambda queue, receipt: queue.reject(receipt),
    "extend": lambda queue, receipt: queue.extend(receipt, 1),
}


def let_pass(broker: Broker, seconds: float) -> None:
    """Return once ``seconds`` have passed for the queues, without touching any other."""
    with broker.create_queue("hourglass", visibility_timeout=seconds) as hourglass:
        hourglass.put(b"")
        hourglass.get()
        next_message(hourglass)


def test_a_leased_message_is_hidden_from_everyone(queue: Queue, other: Queue) -> None:
    queue.put(b"x")
    queue.get()

    with pytest.raises(shmq.Empty):
        queue.get_nowait()
    with pytest.raises(shmq.Empty):
        other.get_nowait()


def test_an_acked_message_never_comes_back(broker: Broker) -> None:
    queue = broker.create_queue("jobs", visibility_timeout=SOON, max_deliveries=None)
    queue.put(b"done")
    in_time(lambda: next_message(queue).ack(), shmq.LeaseExpired)
    expired = queue.stats().expired

    let_pass(broker, SOON)

    stats = queue.stats()
    assert (stats.depth, stats.in_flight, stats.acked, stats.expired) == (0, 0, 1, expired)


def test_a_nack_without_delay_returns_the_message_at_once(queue: Queue, other: Queue) -> None:
    queue.put(b"x")
    queue.get().nack(delay=0)

    again = other.get_nowait()

    assert (again.body, again.delivery_count) == (b"x", 2)


def test_a_nack_with_a_delay_hides_the_message_that_long(queue: Queue) -> None:
    queue.put_many([b"long", b"x"])
    queue.get().nack(delay=LATER)
    message = queue.get()

    with pytest.raises(shmq.Empty):
        queue.get_nowait()
    assert queue.stats().delayed == 1
    began = time.monotonic()
    message.nack(delay=SOON)
    again = next_message(queue)
    assert (again.body, again.delivery_count) == (b"x", 2)
    assert time.monotonic() - began >= SOON


def test_an_uncounted_nack_returns_the_message_to_its_place_as_if_it_had_not_been_delivered(
    broker: Broker,
) -> None:
    queue = broker.create_queue("jobs", max_deliveries=1)
    queue.put_many([b"1", b"2"])

    for _ in range(3):
        message = queue.get()
        assert (message.body, message.delivery_count) == (b"1", 1)
        message.nack(counted=False)

    stats = queue.stats()
    assert (stats.nacked, stats.redelivered, stats.dead_lettered) == (0, 0, 0)
    queue.get().nack(delay=0)
    assert queue.stats().dead_lettered_max_deliveries == 1


def test_an_uncounted_nack_keeps_the_deliveries_before(queue: Queue) -> None:
    queue.put(b"x")
    queue.get().nack(delay=0)

    queue.get().nack(0, counted=False)

    assert queue.get_nowait().delivery_count == 2


def test_an_uncounted_nack_with_a_delay_hides_the_message_that_long(queue: Queue) -> None:
    queue.put_many([b"long", b"x"])
    queue.get().nack(LATER, counted=False)
    assert queue.stats().delayed == 1
    began = time.monotonic()

    queue.get().nack(SOON, counted=False)

    again = next_message(queue)
    assert (again.body, again.delivery_count) == (b"x", 1)
    assert time.monotonic() - began >= SOON


def test_an_uncounted_nack_by_receipt_is_the_same(queue: Queue, other: Queue) -> None:
    queue.put(b"x")
    receipt = queue.get().receipt

    other.nack(receipt, counted=False)

    assert queue.get_nowait().delivery_count == 1
    with pytest.raises(shmq.LeaseExpired):
        other.nack(receipt, counted=False)


def test_an_uncounted_nack_holds_back_its_group_as_a_counted_one_does(queue: Queue) -> None:
    queue.put_many([b"1", b"2"], group="g")

    queue.get().nack(LATER, counted=False)

    with pytest.raises(shmq.Empty):
        queue.get_nowait()


def test_the_retry_delay_doubles_with_each_delivery(broker: Broker) -> None:
    queue = broker.create_queue("jobs", retry_delay=SOON, max_deliveries=None)
    queue.put(b"x")
    message = queue.get()

    for deliveries in (1, 2, 3):
        began = time.monotonic()
        message.nack()
        message = next_message(queue)
        least = SOON * 2 ** (deliveries - 1) * 0.5
        assert message.delivery_count == deliveries + 1
        assert time.monotonic() - began >= least


def test_the_retry_delay_goes_no_further_than_its_limit(broker: Broker) -> None:
    queue = broker.create_queue("jobs", retry_delay=LATER, retry_delay_max=SOON)
    queue.put(b"x")

    queue.get().nack()

    assert next_message(queue).delivery_count == 2


def test_a_retry_delay_of_zero_returns_the_message_at_once(broker: Broker) -> None:
    queue = broker.create_queue("jobs", retry_delay=0)
    queue.put(b"x")
    queue.get().nack()

    assert queue.get_nowait().delivery_count == 2


@pytest.mark.only_local("deliveries are counted in the queue's segment")
def test_the_retry_delay_survives_any_number_of_deliveries(broker: Broker) -> None:
    queue = broker.create_queue("jobs", max_deliveries=None, retry_delay=LATER)
    queue.put(b"x")
    for _ in range(1100):
        queue.get_nowait().nack(delay=0)

    queue.get().nack()

    assert queue.stats().delayed == 1


def test_a_nacked_message_wakes_a_waiting_get(queue: Queue, other: Queue) -> None:
    queue.put(b"x")
    message = queue.get()
    waiter = in_thread(lambda: other.get().delivery_count)

    message.nack(delay=SOON)

    assert outcome(waiter) == 2


def test_a_lease_that_ran_out_redelivers_the_message(broker: Broker) -> None:
    queue = broker.create_queue("jobs", visibility_timeout=SOON)
    queue.put(b"x")
    began = time.monotonic()
    first = queue.get()

    again = next_message(queue)

    assert time.monotonic() - began >= SOON
    assert (again.body, again.sequence) == (b"x", first.sequence)
    assert again.delivery_count == 2
    assert again.receipt != first.receipt
    assert queue.stats().expired >= 1


def test_a_waiting_get_is_served_when_a_lease_runs_out(broker: Broker) -> None:
    queue = broker.create_queue("jobs", visibility_timeout=SOON)
    queue.put(b"x")
    queue.get()

    assert outcome(in_thread(lambda: queue.get().delivery_count)) == 2


@pytest.mark.parametrize("settle", SETTLE)
def test_a_lease_ends_by_the_clock_even_before_it_is_noticed(broker: Broker, settle: str) -> None:
    queue = broker.create_queue("jobs", visibility_timeout=SOON)
    queue.put(b"x")
    late = queue.get()
    let_pass(broker, SOON)

    with pytest.raises(shmq.LeaseExpired):
        SETTLE[settle](late)

    assert queue.get_nowait().delivery_count == 2


@pytest.mark.parametrize("settle", SETTLE)
def test_an_old_receipt_settles_nothing_that_someone_else_holds(
    broker: Broker, settle: str
) -> None:
    queue = broker.create_queue("jobs")
    queue.put(b"x")
    late = queue.get()
    late.extend(0)
    current = queue.get()

    with pytest.raises(shmq.LeaseExpired):
        SETTLE[settle](late)

    assert queue.stats().in_flight == 1
    current.ack()


@pytest.mark.parametrize("again", SETTLE)
@pytest.mark.parametrize("first", ["ack", "nack", "reject"])
def test_a_message_is_settled_once(queue: Queue, first: str, again: str) -> None:
    queue.put(b"x")
    message = queue.get()
    SETTLE[first](message)
    assert message.settled

    with pytest.raises(shmq.AlreadySettled, match=rf"settled by {first}\(\)") as error:
        SETTLE[again](message)

    assert error.value.how == first
    assert 0 <= error.value.ago < 30
    same = pickle.loads(pickle.dumps(error.value))
    assert (str(same), same.how, same.ago) == (str(error.value), first, error.value.ago)


def test_a_consumer_and_an_ack_of_many_settle_once_too(queue: Queue) -> None:
    queue.put_many([1, 2, 3])
    with queue.consume() as messages:
        first = next(messages)
        first.ack()
    second, third = queue.get_many(2)
    assert queue.ack_many([second, third.receipt]) == []
    assert second.settled

    for message in (first, second):
        with pytest.raises(shmq.AlreadySettled, match=r"settled by ack\(\)"):
            message.nack()
    with pytest.raises(shmq.LeaseExpired) as error:
        third.ack()  # its receipt was settled, of which the message does not know
    assert not isinstance(error.value, shmq.AlreadySettled)


def test_a_lease_that_ended_was_not_settled(queue: Queue) -> None:
    queue.put(b"x")
    message = queue.get()
    message.extend(0)

    for _ in range(2):
        with pytest.raises(shmq.LeaseExpired) as error:
            message.ack()
        assert not isinstance(error.value, shmq.AlreadySettled)


def test_a_receipt_never_settles_a_later_message_in_the_same_place(broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=1)
    queue.put(b"old")
    old = queue.get()
    old.ack()
    queue.put(b"new")
    new = queue.get()

    assert queue.ack_many([old.receipt]) == [old.receipt]

    assert queue.stats().in_flight == 1
    new.ack()


def test_a_receipt_of_one_queue_settles_nothing_in_another(broker: Broker) -> None:
    one, two = broker.create_queue("one"), broker.create_queue("two")
    one.put(b"x")
    two.put(b"y")
    mine, theirs = one.get(), two.get()

    assert two.ack_many([mine.receipt]) == [mine.receipt]

    mine.ack()
    theirs.ack()


@pytest.mark.parametrize("receipt", [0, 1, 2**32, 2**63, 2**64 - 1])
def test_a_receipt_that_was_never_given_settles_nothing(queue: Queue, receipt: int) -> None:
    queue.put(b"x")
    message = queue.get()

    assert queue.ack_many([receipt]) == [receipt]
    for settle in BY_RECEIPT.values():
        with pytest.raises(shmq.LeaseExpired):
            settle(queue, receipt)

    message.ack()


def test_each_delivery_has_a_receipt_of_its_own(queue: Queue) -> None:
    queue.put_many(range(3))
    receipts = set()
    for _ in range(12):
        message = queue.get()
        receipts.add(message.receipt)
        message.nack(delay=0) if message.delivery_count < 4 else message.ack()

    assert len(receipts) == 12


def test_any_client_may_settle_by_receipt(queue: Queue, other: Queue) -> None:
    queue.put_many([b"one of many", b"acked", b"nacked", b"rejected", b"extended"])
    receipts = [queue.get().receipt for _ in range(5)]

    assert other.ack_many(receipts[:1]) == []
    other.ack(receipts[1])
    other.nack(receipts[2], delay=0)
    other.reject(receipts[3])
    other.extend(receipts[4], 0)

    assert drain(queue) == [b"nacked", b"extended"]
    stats = queue.stats()
    assert (stats.acked, stats.nacked, stats.dead_lettered) == (4, 1, 1)


def test_extending_a_lease_keeps_the_message_beyond_its_timeout(broker: Broker) -> None:
    queue = broker.create_queue("jobs", visibility_timeout=SOON, max_deliveries=None)
    queue.put(b"kept")

    def keep() -> Message:
        message = next_message(queue)
        message.extend(LATER)
        return message

    kept = in_time(keep, shmq.LeaseExpired)
    queue.put(b"lost")
    queue.get()

    assert next_message(queue).body == b"lost"
    kept.ack()


def test_extending_may_end_a_lease_earlier(queue: Queue) -> None:
    queue.put(b"x")

    queue.get().extend(SOON)

    assert next_message(queue).delivery_count == 2


def test_extending_by_nothing_ends_the_lease_at_once(queue: Queue) -> None:
    queue.put(b"x")
    message = queue.get()

    message.extend(0)

    assert queue.get_nowait().delivery_count == 2
    with pytest.raises(shmq.LeaseExpired):
        message.ack()


def test_a_lease_may_be_extended_again_and_again(broker: Broker) -> None:
    queue = broker.create_queue("jobs", visibility_timeout=LATER)
    queue.put(b"x")
    message = queue.get()

    for _ in range(5):
        message.extend(LATER)

    assert not message.settled
    message.ack()


def test_the_delivery_count_grows_with_each_delivery(broker: Broker) -> None:
    queue = broker.create_queue("jobs", max_deliveries=None)
    queue.put(b"x")

    for deliveries in range(1, 20):
        message = queue.get_nowait()
        assert message.delivery_count == deliveries
        message.nack(delay=0)


def test_a_returned_message_is_unchanged(queue: Queue) -> None:
    queue.put({"a": 1}, priority=2, group="g", headers={"k": "v"}, correlation="c")
    first = queue.get()
    first.nack(delay=0)

    again = queue.get()

    assert (again.body, again.codec, again.priority) == ({"a": 1}, "msgpack", 2)
    assert (again.group, dict(again.headers)) == ("g", {"k": "v"})
    assert dict(again.properties) == dict(first.properties)
    assert again.sequence == first.sequence


def test_a_client_that_closes_with_a_message_in_hand_gives_it_back(connect: Connect) -> None:
    queue = connect().create_queue("jobs")
    queue.put_many([b"1", b"2"])
    leaver = connect()
    leaver.queue("jobs").get()

    leaver.close()

    eventually(lambda: queue.qsize() == 2, "the message is back")
    assert [queue.get().delivery_count for _ in range(2)] == [2, 1]


def test_a_receipt_is_good_for_its_own_queue_alone(broker: Broker) -> None:
    first, second = broker.create_queue("first"), broker.create_queue("second")
    for queue in (first, second):
        queue.put("m")
    here, there = first.get(), second.get()
    for stranger in (here.receipt, here):
        assert second.ack_many([stranger]) == [here.receipt]
    there.ack()
    here.ack()


def test_a_later_queue_of_the_same_name_gives_other_receipts(broker: Broker) -> None:
    receipts = []
    for _ in range(2):
        queue = broker.create_queue("again")
        queue.put("m")
        receipts.append(queue.get().receipt)
        if len(receipts) == 1:
            broker.delete_queue("again")
    assert receipts[0] != receipts[1]
    assert queue.ack_many(receipts) == receipts[:1]
