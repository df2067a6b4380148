"""Put and get: waiting or not, full and empty, and what a message carries.

Other levels: c/test_put.c, c/test_put_ring.c, conformance/models/test_model.py,
system/wire/test_produce.py, prove/crash/scenarios.py.
"""

from __future__ import annotations

import queue as stdlib_queue
import time

import pytest

import shmq
from shmq import Broker, Queue
from shmq.api.options import Overflow
from tests.support.waiting import PATIENCE

from .conftest import Connect
from .tools import (
    SOON,
    bodies,
    drain,
    getter_asleep,
    in_thread,
    lease_all,
    next_message,
    outcome,
    putter_asleep,
)


def test_what_is_put_is_got(queue: Queue) -> None:
    queue.put(b"hello")

    assert queue.get().body == b"hello"


def test_a_put_returns_a_sequence_that_rises_from_one(queue: Queue) -> None:
    first, second = queue.put(b"1"), queue.put(b"2")

    assert first.sequence == 1
    assert second.sequence > 1
    assert not first.duplicate
    assert [message.sequence for message in lease_all(queue)] == [1, second.sequence]


def test_sequences_are_never_used_again(queue: Queue) -> None:
    seen = [queue.put(b"x").sequence]
    for _ in range(5):
        queue.get().ack()
        seen.append(queue.put(b"x").sequence)

    assert seen == sorted(set(seen))


def test_a_plain_message_carries_the_defaults(queue: Queue) -> None:
    queue.put(b"x")
    message = queue.get()

    assert message.priority == shmq.NORMAL
    assert message.group is None
    assert dict(message.headers) == {}
    assert message.codec == "bytes"
    assert message.delivery_count == 1
    assert message.dead is None
    assert not message.settled


def test_a_message_carries_what_its_put_gave(queue: Queue) -> None:
    queue.put(
        b"x", priority=shmq.HIGH, group="g", headers={"k": 1}, reply_to="answers", correlation="c-1"
    )
    message = queue.get()

    assert (message.priority, message.group) == (shmq.HIGH, "g")
    assert dict(message.headers) == {"k": 1}
    assert message.properties["reply_to"] == message.reply_to == "answers"
    assert message.properties["corr"] == "c-1"


@pytest.mark.parametrize("priorities", [1, 2, 3, 16])
def test_the_priority_is_by_default_the_middle_one(broker: Broker, priorities: int) -> None:
    queue = broker.create_queue("jobs", priorities=priorities)
    queue.put(b"x")

    assert queue.get().priority == priorities // 2


def test_getting_from_an_empty_queue_without_waiting_raises_empty(queue: Queue) -> None:
    with pytest.raises(shmq.Empty):
        queue.get_nowait()
    with pytest.raises(shmq.Empty):
        queue.get(block=False)
    with pytest.raises(shmq.Empty):
        queue.get(timeout=0)


def test_empty_and_full_are_those_of_the_queue_module(broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=1)
    with pytest.raises(stdlib_queue.Empty):
        queue.get_nowait()
    queue.put(b"x")
    with pytest.raises(stdlib_queue.Full):
        queue.put_nowait(b"y")


def test_a_get_waits_as_long_as_its_timeout(queue: Queue) -> None:
    began = time.monotonic()

    with pytest.raises(shmq.Empty):
        queue.get(timeout=SOON)

    assert time.monotonic() - began >= SOON


def test_a_get_that_may_not_block_ignores_its_timeout(queue: Queue) -> None:
    with pytest.raises(shmq.Empty):
        queue.get(False, 1e6)


def test_a_put_wakes_a_waiting_get(queue: Queue, other: Queue) -> None:
    waiter = in_thread(lambda: other.get().body)
    getter_asleep(queue)

    queue.put(b"at last")

    assert outcome(waiter) == b"at last"


def test_each_put_wakes_one_more_of_many_waiting_gets(connect: Connect) -> None:
    queue = connect().create_queue("jobs")
    clients = [connect().queue("jobs") for _ in range(4)]
    waiters = [in_thread(client.get) for client in clients]
    getter_asleep(queue)

    for number in range(4):
        queue.put(number)

    assert sorted(outcome(waiter).body for waiter in waiters) == [0, 1, 2, 3]


def test_threads_may_share_a_handle(queue: Queue) -> None:
    waiters = [in_thread(lambda: queue.get().body) for _ in range(4)]

    for number in range(4):
        queue.put(number)

    assert sorted(outcome(waiter) for waiter in waiters) == [0, 1, 2, 3]


def test_a_put_into_a_full_queue_raises_at_once_with_the_count(broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=2)
    queue.put_many([b"1", b"2"])

    with pytest.raises(shmq.Full, match="2"):
        queue.put(b"3")
    with pytest.raises(shmq.Full):
        queue.put_nowait(b"3")

    assert queue.full()
    assert drain(queue) == [b"1", b"2"]


def test_a_put_with_a_timeout_waits_that_long_for_room(broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=1)
    queue.put(b"1")
    began = time.monotonic()

    with pytest.raises(shmq.Full):
        queue.put(b"2", timeout=SOON)

    assert time.monotonic() - began >= SOON
    assert drain(queue) == [b"1"]


@pytest.mark.parametrize("asked", ["block", "timeout", "overflow"])
def test_a_put_that_may_block_goes_on_when_there_is_room(connect: Connect, asked: str) -> None:
    overflow: Overflow = "block" if asked == "overflow" else "reject"
    queue = connect().create_queue("jobs", capacity=1, overflow=overflow)
    queue.put(b"1")
    other = connect().queue("jobs")
    block = True if asked == "block" else None
    timeout = PATIENCE if asked == "timeout" else None
    waiter = in_thread(other.put, b"2", block, timeout)
    putter_asleep(queue)

    queue.get().ack()

    outcome(waiter)
    assert drain(queue) == [b"2"]


def test_a_put_that_may_not_block_raises_on_a_queue_that_blocks(broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=1, overflow="block")
    queue.put(b"1")

    with pytest.raises(shmq.Full):
        queue.put_nowait(b"2")
    with pytest.raises(shmq.Full):
        queue.put(b"2", block=False)
    with pytest.raises(shmq.Full):
        queue.put(b"2", timeout=0)


@pytest.mark.parametrize("settle", ["ack", "reject"])
def test_a_leased_message_takes_its_place_until_it_is_settled(broker: Broker, settle: str) -> None:
    queue = broker.create_queue("jobs", capacity=1)
    queue.put(b"1")
    message = queue.get()

    with pytest.raises(shmq.Full):
        queue.put(b"2")

    getattr(message, settle)()
    queue.put(b"2")
    assert drain(queue) == [b"2"]


def test_a_small_queue_carries_many_messages_between_two_clients(connect: Connect) -> None:
    queue = connect().create_queue("jobs", capacity=8, overflow="block")
    other = connect().queue("jobs")

    def produce() -> None:
        for number in range(1000):
            other.put(number)

    producer = in_thread(produce)
    got = []
    for _ in range(1000):
        with next_message(queue) as message:
            got.append(message.body)

    outcome(producer)
    assert got == list(range(1000))


def test_competing_clients_share_the_messages_and_none_twice(connect: Connect) -> None:
    queue = connect().create_queue("jobs")
    queue.put_many(range(600))
    clients = [connect().queue("jobs") for _ in range(3)]

    shares = [outcome(share) for share in [in_thread(drain, client) for client in clients]]

    assert sorted(number for share in shares for number in share) == list(range(600))


def test_the_largest_message_fits_and_one_byte_more_never_does(broker: Broker) -> None:
    queue = broker.create_queue("jobs", max_message_bytes=1000)

    queue.put(bytes(1000))
    with pytest.raises(shmq.MessageTooLarge) as error:
        queue.put(bytes(1001), block=True)

    assert "1001" in str(error.value) and "1000" in str(error.value)
    assert queue.qsize() == 1


def test_what_can_never_fit_is_refused_even_when_the_queue_is_full(broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=1, max_message_bytes=10, overflow="block")
    queue.put(b"x")

    with pytest.raises(shmq.MessageTooLarge):
        queue.put(bytes(11))


def test_a_message_as_context_manager_acks_on_success(queue: Queue) -> None:
    queue.put(b"x")

    with queue.get() as message:
        assert message.body == b"x"

    assert message.settled
    assert queue.stats().acked == 1


def test_a_message_as_context_manager_nacks_on_an_exception(broker: Broker) -> None:
    queue = broker.create_queue("jobs", retry_delay=0)
    queue.put(b"x")

    with pytest.raises(RuntimeError, match="failed"), queue.get() as message:
        raise RuntimeError("failed")

    assert message.settled
    assert queue.get().delivery_count == 2


def test_a_message_settled_inside_its_block_is_left_as_it_is(queue: Queue) -> None:
    queue.put(b"x")

    with queue.get() as message:
        message.nack(delay=0)

    assert queue.stats().acked == 0
    assert queue.get().delivery_count == 2


def test_peek_shows_what_comes_first_and_leases_nothing(queue: Queue) -> None:
    queue.put(b"low", priority=shmq.LOW)
    queue.put_many([b"1", b"2"])
    queue.put(b"high", priority=shmq.HIGH)

    assert bodies(queue.peek(3)) == [b"high", b"1", b"2"]
    assert bodies(queue.peek()) == [b"high", b"1", b"2", b"low"]
    assert queue.stats().in_flight == 0
    assert queue.get().delivery_count == 1


def test_peek_shows_ten_messages_unless_told_otherwise(queue: Queue) -> None:
    queue.put_many(range(20))

    assert bodies(queue.peek()) == list(range(10))


def test_peek_shows_neither_leased_nor_delayed_messages(queue: Queue) -> None:
    queue.put(b"leased")
    queue.get()
    queue.put(b"delayed", delay=PATIENCE)

    assert queue.peek() == []


def test_a_peeked_message_outlives_the_real_one(queue: Queue) -> None:
    queue.put(bytes(10_000), headers={"k": "v"})
    copy = queue.peek()[0]

    queue.get().ack()
    queue.put(b"\xff" * 10_000)

    assert copy.body == bytes(10_000)
    assert dict(copy.headers) == {"k": "v"}


@pytest.mark.parametrize("settle", ["ack", "nack", "reject"])
def test_a_peeked_message_cannot_be_settled(queue: Queue, settle: str) -> None:
    queue.put(b"x")
    copy = queue.peek()[0]

    with pytest.raises(shmq.LeaseExpired) as error:
        getattr(copy, settle)()
    assert not isinstance(error.value, shmq.AlreadySettled)

    assert queue.qsize() == 1


def test_qsize_counts_the_visible_messages(queue: Queue) -> None:
    queue.put_many([b"1", b"2", b"3"])
    queue.put(b"later", delay=PATIENCE)
    queue.get()

    assert queue.qsize() == 2
    assert not queue.empty()


def test_a_message_without_a_wish_for_an_answer_has_none(queue: Queue) -> None:
    queue.put(b"plain")
    queue.put(b"with headers", headers={"k": 1})

    for message in queue.get_many(2):
        assert message.reply_to is None
        assert message.correlation is None
