"""Consume: an iterator that leases ahead, gathers acks and stops cleanly.

Other levels: system/client/test_consumer.py, system/wire/test_consume.py,
system/server/test_waiting_consumers.py, system/cli/test_consume.py.
"""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest

import shmq
from shmq import Broker, Message, Queue
from tests.support.waiting import PATIENCE, eventually

from .conftest import Connect
from .tools import (
    LATER,
    MOMENT,
    SOON,
    bodies,
    drain,
    getter_asleep,
    in_thread,
    in_time,
    lease_all,
    next_message,
    outcome,
)


def test_consume_yields_every_message_in_order(queue: Queue) -> None:
    queue.put_many(range(200))
    got = []

    with queue.consume(block=False) as messages:
        for message in messages:
            got.append(message.body)
            message.ack()

    assert got == list(range(200))
    stats = queue.stats()
    assert (stats.acked, stats.in_flight, stats.depth) == (200, 0, 0)


@pytest.mark.parametrize("prefetch", [1, 2, 7, 64, 1000])
def test_the_prefetch_changes_nothing_but_how_many_are_leased_ahead(
    queue: Queue, prefetch: int
) -> None:
    queue.put_many(range(100))

    with queue.consume(prefetch, block=False) as messages:
        got = [message.body for message in messages if message.ack() is None]

    assert got == list(range(100))
    assert queue.stats().in_flight == 0


def test_consume_leases_no_more_than_the_prefetch_ahead(queue: Queue) -> None:
    queue.put_many(range(100))

    with queue.consume(prefetch=10) as messages:
        next(messages)

        assert 1 <= queue.stats().in_flight <= 11


def test_a_consumer_ends_when_none_came_for_its_timeout(queue: Queue) -> None:
    queue.put_many([1, 2])

    with queue.consume(timeout=SOON) as messages:
        assert [message.body for message in messages] == [1, 2]


def test_a_consumer_waits_for_messages_to_come(queue: Queue, other: Queue) -> None:
    waiter = in_thread(lambda: next(other.consume()).body)
    getter_asleep(queue)

    queue.put(b"at last")

    assert outcome(waiter) == b"at last"


def test_closing_returns_what_was_not_handed_out_at_once_and_uncounted(
    queue: Queue, other: Queue
) -> None:
    queue.put_many(range(10))
    with queue.consume(prefetch=10) as messages:
        for expected in range(3):
            message = next(messages)
            assert message.body == expected
            message.ack()

    rest = lease_all(other)

    assert bodies(rest) == list(range(3, 10))
    assert {message.delivery_count for message in rest} == {1}


def test_leaving_by_an_exception_returns_what_was_not_handed_out(
    queue: Queue, other: Queue
) -> None:
    queue.put_many(range(10))

    def fail() -> None:
        with queue.consume(prefetch=10) as messages:
            next(messages).ack()
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()

    assert bodies(lease_all(other)) == list(range(1, 10))


def test_returning_unseen_messages_again_and_again_never_kills_them(broker: Broker) -> None:
    queue = broker.create_queue("jobs", max_deliveries=1)
    queue.put_many(range(50))

    for number in range(10):
        with queue.consume(prefetch=50) as messages:
            message = next(messages)
            assert (message.body, message.delivery_count) == (number, 1)
            message.ack()

    assert queue.qsize() == 40
    assert queue.stats().dead_lettered == 0


def test_a_message_in_hand_stays_leased_when_its_consumer_closes(queue: Queue) -> None:
    queue.put_many([1, 2])
    with queue.consume(prefetch=2) as messages:
        held = next(messages)

    assert queue.stats().in_flight == 1
    held.ack()
    assert drain(queue) == [2]


def test_closing_carries_out_the_acks_that_were_gathered(queue: Queue) -> None:
    queue.put_many(range(5))
    messages = queue.consume(prefetch=64)
    for _ in range(5):
        next(messages).ack()

    messages.close()

    assert queue.stats().acked == 5


def test_flush_carries_out_the_acks_that_were_gathered(queue: Queue) -> None:
    queue.put_many(range(5))
    with queue.consume(prefetch=64) as messages:
        for _ in range(5):
            next(messages).ack()

        messages.flush()

        assert queue.stats().acked == 5


def test_the_next_call_carries_out_an_ack_after_long_work(queue: Queue) -> None:
    queue.put_many(range(3))
    with queue.consume(prefetch=64) as messages:
        first = next(messages)
        time.sleep(SOON)
        first.ack()

        next(messages)

        eventually(lambda: queue.stats().acked == 1, "the ack is carried out")


def test_waiting_carries_out_the_acks_that_were_gathered(queue: Queue, other: Queue) -> None:
    queue.put_many(range(5))

    def work() -> None:
        for message in other.consume(timeout=LATER):
            if message.body == "stop":
                return
            message.ack()

    worker = in_thread(work)
    eventually(lambda: queue.stats().acked == 5, "the acks are carried out")

    queue.put("stop")
    outcome(worker)


def test_a_gathered_ack_frees_its_group_when_there_is_nothing_else(queue: Queue) -> None:
    queue.put_many(range(20), group="g")

    with queue.consume(prefetch=64, block=False) as messages:
        got = [message.body for message in messages if message.ack() is None]

    assert got == list(range(20))


def test_an_ack_frees_its_group_while_the_consumer_waits_for_the_next(queue: Queue) -> None:
    queue.put_many(range(2), group="g")

    with queue.consume(prefetch=8, timeout=LATER) as messages:
        first = next(messages)
        second = in_thread(lambda: next(messages).body)
        eventually(lambda: queue.stats().waiting_get == 1, "the consumer waits")
        first.ack()

        assert outcome(second) == 1


def test_a_task_that_waits_gets_the_next_of_a_group_when_another_acks_the_first(
    queue: Queue,
) -> None:
    queue.put_many(range(2), group="g")

    async def work() -> int:
        async with queue.aconsume(prefetch=8, timeout=LATER) as messages:
            first = await anext(messages)
            second = asyncio.ensure_future(anext(messages))
            await asyncio.sleep(0)
            first.ack()
            return int((await second).body)

    assert asyncio.run(work()) == 1


def test_an_ack_leaves_nothing_in_flight_while_the_consumer_waits(queue: Queue) -> None:
    queue.put(0)

    with queue.consume(prefetch=8, timeout=LATER) as messages:
        first = next(messages)
        second = in_thread(lambda: next(messages).body)
        eventually(lambda: queue.stats().waiting_get == 1, "the consumer waits")
        first.ack()
        eventually(lambda: queue.stats().in_flight == 0, "nothing is in flight")
        queue.put(1)

        assert outcome(second) == 1


def test_a_gathered_ack_makes_room_when_the_consumer_waits(connect: Connect) -> None:
    queue = connect().create_queue("jobs", capacity=4, overflow="block")
    producer = in_thread(connect().queue("jobs").put_many, range(100))

    got: list[int] = []
    with queue.consume(prefetch=64) as messages:
        while len(got) < 100:
            message = next(messages)
            got.append(message.body)
            message.ack()

    assert outcome(producer) == 100
    assert got == list(range(100))


def test_a_consumed_message_can_be_nacked_rejected_and_extended(broker: Broker) -> None:
    queue = broker.create_queue("jobs", retry_delay=0)
    queue.put_many(["nack", "reject", "extend"])
    seen = []
    with queue.consume(prefetch=1, block=False) as messages:
        for message in messages:
            seen.append((message.body, message.delivery_count))
            if message.delivery_count > 1:
                message.ack()
            elif message.body == "extend":
                message.extend(LATER)
                message.ack()
            else:
                getattr(message, message.body)()

    assert sorted(seen) == [("extend", 1), ("nack", 1), ("nack", 2), ("reject", 1)]
    assert drain(broker.queue("jobs.dlq")) == ["reject"]


def test_a_consumed_message_is_a_context_manager(queue: Queue) -> None:
    queue.put_many(range(3))

    with queue.consume(block=False) as messages:
        for message in messages:
            with message:
                pass

    assert queue.stats().acked == 3


def test_a_consumed_message_is_settled_once(queue: Queue) -> None:
    queue.put(b"x")
    with queue.consume(block=False) as messages:
        message = next(messages)
        message.ack()

        with pytest.raises(shmq.LeaseExpired):
            message.nack()

    assert queue.stats().acked == 1


def test_a_gathered_ack_stands_though_its_lease_runs_out(broker: Broker) -> None:
    queue = broker.create_queue("jobs", visibility_timeout=MOMENT)
    queue.put(b"x")
    with queue.consume(prefetch=2) as messages:
        in_time(lambda: next(messages).ack(), shmq.LeaseExpired)
        expired = queue.stats().expired

        eventually(lambda: queue.stats().in_flight == 0, "the lease runs out")

    stats = queue.stats()
    assert (stats.acked, stats.expired, stats.depth) == (1, expired, 0)


def test_a_consumed_message_whose_lease_ended_cannot_be_acked(queue: Queue) -> None:
    queue.put(b"x")
    with queue.consume(block=False) as messages:
        message = next(messages)
        message.extend(0)

        with pytest.raises(shmq.LeaseExpired):
            message.ack()

    assert drain(queue) == [b"x"]


def test_a_message_leased_ahead_whose_lease_ran_out_is_not_handed_out(broker: Broker) -> None:
    queue = broker.create_queue("jobs", visibility_timeout=MOMENT)
    queue.put_many([1, 2])

    def keep() -> Message:
        message = next_message(queue)
        message.extend(LATER)
        return message

    with queue.consume(prefetch=2, block=False) as messages:
        in_time(lambda: next(messages).ack(), shmq.LeaseExpired)
        messages.flush()

        taken = in_time(keep, shmq.LeaseExpired)

        assert list(messages) == []
    assert taken.body == 2
    assert queue.stats().in_flight == 1
    taken.ack()


@pytest.mark.only_local("what a server has sent counts as delivered")
def test_a_message_leased_ahead_whose_lease_ran_out_was_not_delivered(broker: Broker) -> None:
    queue = broker.create_queue("jobs", visibility_timeout=MOMENT, max_deliveries=1)

    def work() -> None:
        queue.purge()
        queue.put_many([1, 2])
        with queue.consume(prefetch=2, block=False) as messages:
            message = next(messages)
            message.ack()
            messages.flush()

            again = next_message(queue)
            assert (again.body, again.delivery_count) == (2, 1)

    in_time(work, shmq.LeaseExpired)


def test_a_consumer_says_what_it_is_and_holds(queue: Queue) -> None:
    queue.put_many([1, 2, 3])
    messages = queue.consume(prefetch=3)
    next(messages).ack()

    assert repr(messages) == "<Consumer of 'q': 2 leased ahead>"
    messages.close()
    assert repr(messages) == "<Consumer of 'q': closed>"


def test_what_is_sent_ahead_while_the_application_has_all_its_prefetch_is_not_lost(
    connect: Connect,
) -> None:
    watched = connect().create_queue("jobs")
    queue = connect().queue("jobs")
    watched.put_many([0, 1])
    with queue.consume(prefetch=2, timeout=PATIENCE) as messages:
        queue.ack_many([next(messages), next(messages)])
        watched.put(2)
        time.sleep(SOON)  # a server sends it meanwhile

        assert next(messages).body == 2


def test_two_consumers_share_a_queue_and_none_twice(connect: Connect) -> None:
    queue = connect().create_queue("jobs")
    ends = ["one", "two"]
    queue.put_many([*range(1000), *ends])

    def work(client: Queue) -> list[int]:
        with client.consume(prefetch=16, timeout=PATIENCE) as messages:
            all_bodies = (message.body for message in messages if message.ack() is None)
            return list(itertools.takewhile(lambda body: body not in ends, all_bodies))

    workers = [in_thread(work, connect().queue("jobs")) for _ in ends]

    assert sorted(outcome(workers[0]) + outcome(workers[1])) == list(range(1000))
    assert queue.stats().acked == 1002


def test_a_closed_consumer_yields_no_more(queue: Queue) -> None:
    queue.put_many([1, 2])
    messages = queue.consume(prefetch=2)
    next(messages)
    messages.close()

    assert list(messages) == []


def test_a_consumer_that_waits_ends_when_it_is_closed(queue: Queue, other: Queue) -> None:
    messages = other.consume()
    waiter = in_thread(list, messages)
    getter_asleep(queue)

    messages.close()

    assert outcome(waiter) == []


def test_a_consumer_may_be_closed_again(queue: Queue) -> None:
    messages = queue.consume()

    messages.close()
    messages.close()

    assert queue.stats().in_flight == 0


def test_closing_a_client_carries_out_the_acks_its_consumers_gathered(connect: Connect) -> None:
    queue = connect().create_queue("jobs")
    queue.put_many(range(5))
    with connect() as leaver:
        messages = leaver.queue("jobs").consume(prefetch=5)
        for _ in range(3):
            next(messages).ack()

    eventually(lambda: queue.qsize() == 2, "the client is gone")

    assert drain(queue) == [3, 4]
    assert queue.stats().acked == 5
    messages.close()


def test_closing_a_queue_returns_what_its_consumers_leased_ahead(connect: Connect) -> None:
    queue = connect().create_queue("jobs", max_deliveries=1)
    queue.put_many(range(5))
    with connect() as leaver:
        next(leaver.queue("jobs").consume(prefetch=5)).ack()

    eventually(lambda: queue.qsize() == 4, "what was leased ahead is back")

    rest = lease_all(queue)
    assert {message.delivery_count for message in rest} == {1}


def test_a_consumer_serves_a_higher_priority_that_came_later(queue: Queue) -> None:
    queue.put_many(["normal"] * 3)
    with queue.consume(prefetch=1, block=False) as messages:
        assert next(messages).body == "normal"
        queue.put("high", priority=shmq.HIGH)

        later = [message.body for message in messages]

    assert sorted(later) == ["high", "normal", "normal"]
    assert later.index("high") <= 1
