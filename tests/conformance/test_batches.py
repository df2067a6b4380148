"""Batches: put_many, get_many, ack_many."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

import shmq
from shmq import Broker, Queue
from shmq.api.options import Overflow
from tests.support.processes import HOUR
from tests.support.waiting import PATIENCE

from .conftest import Connect
from .tools import LATER, SOON, bodies, drain, getter_asleep, in_thread, outcome, putter_asleep


def test_put_many_puts_all_in_order_and_counts_them(queue: Queue) -> None:
    assert queue.put_many([b"1", "two", {"three": 3}]) == 3

    assert drain(queue) == [b"1", "two", {"three": 3}]


def test_put_many_of_nothing_puts_nothing(queue: Queue) -> None:
    assert queue.put_many([]) == 0
    assert queue.empty()


def test_put_many_takes_any_iterable(queue: Queue) -> None:
    assert queue.put_many(number * number for number in range(4)) == 4

    assert drain(queue) == [0, 1, 4, 9]


def test_put_many_gives_its_properties_to_each(queue: Queue) -> None:
    queue.put_many([{"n": 1}, {"n": 2}], priority=shmq.HIGH, headers={"k": "v"}, codec="event")

    for message in queue.get_many(2):
        assert (message.priority, message.codec) == (shmq.HIGH, "event")
        assert dict(message.headers) == {"k": "v"}


def test_put_many_keeps_a_group_in_order(queue: Queue) -> None:
    queue.put_many(range(10), group="g")

    assert drain(queue) == list(range(10))


def test_put_many_with_a_delay_delays_each(queue: Queue) -> None:
    queue.put_many([1, 2], delay=LATER)

    assert queue.stats().delayed == 2


def test_put_many_with_a_ttl_gives_it_to_each(broker: Broker) -> None:
    queue = broker.create_queue("jobs", on_expired="drop", capacity=2)
    queue.put_many([1, 2], ttl=SOON)

    assert queue.put_many([3, 4], timeout=PATIENCE) == 2
    assert drain(queue) == [3, 4]


def test_put_many_into_too_little_room_puts_the_first_ones_and_counts_them(broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=3)
    queue.put(b"in the way")

    assert queue.put_many([b"1", b"2", b"3", b"4"]) == 2

    assert drain(queue) == [b"in the way", b"1", b"2"]


def test_put_many_into_a_full_queue_puts_none(broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=1)
    queue.put(b"in the way")

    assert queue.put_many([b"1"]) == 0


def test_put_many_counts_what_the_arena_holds(broker: Broker) -> None:
    queue = broker.create_queue("jobs", arena_bytes=65_536, max_message_bytes=16_384)

    put = queue.put_many([bytes(10_000)] * 20)

    assert 1 <= put < 20
    assert len(drain(queue)) == put


def test_put_many_returns_the_count_so_far_when_its_time_is_up(broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=2)
    began = time.monotonic()

    assert queue.put_many([1, 2, 3], timeout=SOON) == 2

    assert time.monotonic() - began >= SOON
    assert drain(queue) == [1, 2]


@pytest.mark.parametrize("overflow", ["reject", "block"])
def test_put_many_that_blocks_goes_on_as_room_comes(connect: Connect, overflow: Overflow) -> None:
    queue = connect().create_queue("jobs", capacity=2, overflow=overflow)
    waiter = in_thread(connect().queue("jobs").put_many, range(10), True)
    putter_asleep(queue)

    got: list[Any] = []
    while len(got) < 10:
        with queue.get(timeout=PATIENCE) as message:
            got.append(message.body)

    assert outcome(waiter) == 10
    assert got == list(range(10))


def test_put_many_drops_the_oldest_where_the_queue_says_so(broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=3, overflow="drop-oldest")

    assert queue.put_many(range(7)) == 7

    assert drain(queue) == [4, 5, 6]


def test_put_many_with_a_body_that_can_never_fit_puts_none(broker: Broker) -> None:
    queue = broker.create_queue("jobs", max_message_bytes=10)

    with pytest.raises(shmq.MessageTooLarge):
        queue.put_many([b"fits", bytes(11), b"fits"])

    assert queue.empty()


def test_put_many_with_a_body_that_no_codec_holds_puts_none(queue: Queue) -> None:
    with pytest.raises(TypeError, match="object"):
        queue.put_many([b"fine", object()])

    assert queue.empty()


def test_put_many_of_bodies_that_raise_puts_none(queue: Queue) -> None:
    def broken() -> Iterator[bytes]:
        yield b"fine"
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        queue.put_many(broken())

    assert queue.empty()


def test_put_many_wakes_waiting_gets(queue: Queue, other: Queue) -> None:
    waiter = in_thread(lambda: other.get().body)
    getter_asleep(queue)

    queue.put_many([b"1"])

    assert outcome(waiter) == b"1"


def test_get_many_takes_what_is_there_up_to_the_most(queue: Queue) -> None:
    queue.put_many(range(5))

    assert bodies(queue.get_many(3)) == [0, 1, 2]
    assert bodies(queue.get_many(3)) == [3, 4]


def test_get_many_serves_by_priority_first(queue: Queue) -> None:
    for priority in (shmq.LOW, shmq.HIGH, shmq.NORMAL, shmq.HIGH):
        queue.put(priority, priority=priority)

    assert bodies(queue.get_many(4)) == [shmq.HIGH, shmq.HIGH, shmq.NORMAL, shmq.LOW]


def test_get_many_returns_nothing_when_its_time_is_up(queue: Queue) -> None:
    began = time.monotonic()

    assert queue.get_many(5, timeout=SOON) == []

    assert time.monotonic() - began >= SOON


def test_get_many_that_may_not_block_returns_nothing_at_once(queue: Queue) -> None:
    assert queue.get_many(5, block=False) == []


def test_get_many_waits_for_the_first_message_only(queue: Queue, other: Queue) -> None:
    waiter = in_thread(lambda: bodies(other.get_many(5)))
    getter_asleep(queue)

    queue.put(b"1")

    assert outcome(waiter) == [b"1"]


def test_get_many_takes_more_than_any_buffer(broker: Broker) -> None:
    queue = broker.create_queue("many", visibility_timeout=HOUR)  # a cluster needs its time
    queue.put_many(range(10_000))

    assert bodies(queue.get_many(100_000)) == list(range(10_000))


def test_ack_many_settles_messages_and_receipts_alike(queue: Queue) -> None:
    queue.put_many(range(4))
    messages = queue.get_many(4)

    refused = queue.ack_many([*messages[:2], *(message.receipt for message in messages[2:])])

    assert refused == []
    stats = queue.stats()
    assert (stats.in_flight, stats.acked) == (0, 4)


def test_ack_many_settles_what_it_can_and_returns_the_rest(queue: Queue) -> None:
    queue.put_many(range(4))
    messages = queue.get_many(4)
    messages[1].ack()
    messages[2].extend(0)

    refused = queue.ack_many(messages)

    assert refused == [messages[1].receipt, messages[2].receipt]
    assert drain(queue) == [2]
    assert queue.stats().in_flight == 0


def test_ack_many_of_one_receipt_twice_settles_it_once(queue: Queue) -> None:
    queue.put(b"x")
    receipt = queue.get().receipt

    assert queue.ack_many([receipt, receipt]) == [receipt]
    assert queue.stats().acked == 1


def test_an_int_that_cannot_be_a_receipt_is_refused(queue: Queue) -> None:
    queue.put(b"x")
    receipt = queue.get().receipt
    never = [0, -1, 1 << 64, (1 << 64) - 1]
    assert queue.ack_many([*never, receipt]) == never
    assert queue.stats().acked == 1


def test_ack_many_of_nothing_does_nothing(queue: Queue) -> None:
    assert queue.ack_many([]) == []


def test_ack_many_of_an_iterator_settles_it(queue: Queue) -> None:
    queue.put_many(range(3))

    assert queue.ack_many(iter(queue.get_many(3))) == []
    assert queue.stats().in_flight == 0


def test_messages_acked_together_are_settled(queue: Queue) -> None:
    queue.put(b"x")
    message = queue.get()

    queue.ack_many([message])

    with pytest.raises(shmq.LeaseExpired):
        message.ack()


def test_ack_many_makes_room_for_waiting_puts(connect: Connect) -> None:
    queue = connect().create_queue("jobs", capacity=3)
    queue.put_many(range(3))
    messages = queue.get_many(3)
    waiter = in_thread(connect().queue("jobs").put_many, range(3), True)
    putter_asleep(queue)

    queue.ack_many(messages)

    assert outcome(waiter) == 3
