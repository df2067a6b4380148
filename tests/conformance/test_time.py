"""Time: delay, deliver_at and ttl.

Other levels: c/test_timer.c, system/processes/test_clock.py.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from typing import Any

import pytest

import shmq
from shmq import Broker, Message, Queue
from tests.support.waiting import eventually

from .tools import LATER, SOON, drain, in_thread, in_time, next_message, outcome


def lease_that_expires(queue: Queue, **properties: Any) -> Message:
    """A leased message whose ttl passes soon; those before it were leased too late."""

    def lease() -> Message:
        queue.put(b"held", ttl=SOON, **properties)
        return queue.get_nowait()

    return in_time(lease, shmq.Empty)


def pass_ttl(queue: Queue) -> int:
    """Return once the ttl of all leased messages has passed; how many letters are dead now."""
    queue.put(b"probe", ttl=SOON, delay=LATER)
    sent = queue.stats().put
    eventually(lambda: queue.stats().dead_lettered == sent - 1, "the later ttl passes")
    return sent - 1


def test_a_delayed_message_is_hidden_until_it_is_due(queue: Queue) -> None:
    queue.put(b"later", delay=LATER)

    with pytest.raises(shmq.Empty):
        queue.get_nowait()
    assert (queue.qsize(), queue.stats().delayed) == (0, 1)

    began = time.monotonic()
    queue.put(b"x", delay=SOON)
    assert next_message(queue).body == b"x"
    assert time.monotonic() - began >= SOON


def test_a_delay_of_zero_is_none(queue: Queue) -> None:
    queue.put(b"x", delay=0)

    assert queue.get_nowait().body == b"x"


def test_a_message_may_be_delayed_for_years(queue: Queue) -> None:
    queue.put(b"x", delay=1e9)

    assert queue.stats().delayed == 1


def test_a_message_is_delivered_at_a_time_of_day(queue: Queue) -> None:
    queue.put(b"later", deliver_at=time.time() + LATER)
    assert queue.stats().delayed == 1
    due = time.time() + SOON
    queue.put(b"x", deliver_at=due)

    assert next_message(queue).body == b"x"

    assert time.time() >= due - 0.01


HOUR = dt.timedelta(hours=1)


def in_an_hour() -> dt.datetime:
    return dt.datetime.now(dt.timezone(dt.timedelta(hours=5))) + HOUR


def test_a_delay_may_be_a_timedelta_and_a_time_of_day_an_aware_datetime(queue: Queue) -> None:
    queue.put(b"x", delay=HOUR)
    queue.put("text", deliver_at=in_an_hour())
    queue.put_many([b"1", b"2"], delay=HOUR)

    assert (queue.qsize(), queue.stats().delayed) == (0, 4)

    queue.put(b"past", deliver_at=dt.datetime.now(dt.UTC) - HOUR)
    assert queue.get_nowait().body == b"past"


def test_every_call_takes_the_times_of_the_standard_library(broker: Broker, queue: Queue) -> None:
    queue.put_packed(b"1", 1, delay=HOUR)
    with queue.loan(1, deliver_at=in_an_hour()) as view:
        view[:] = b"2"
    with queue.pipeline() as pipeline:
        pipeline.put(b"3", deliver_at=in_an_hour(), priority="high")
    asyncio.run(queue.aput(b"4", delay=HOUR, ttl=2 * HOUR))
    exchange = broker.create_exchange("x", "fanout")
    exchange.bind(queue.name)
    exchange.publish(b"5", deliver_at=in_an_hour())
    exchange.publish_many([b"6", b"7"], delay=HOUR, priority="low")
    with pytest.raises(shmq.NoReply):
        broker.request(queue, b"8", 0.001, delay=HOUR)

    assert (queue.qsize(), queue.stats().delayed) == (0, 8)


def test_a_ttl_may_be_a_timedelta(queue: Queue) -> None:
    for ttl in (HOUR, 3600, 3600.0):
        queue.put(b"x", ttl=ttl)

    assert [queue.get().properties["ttl"] for _ in range(3)] == [3_600_000] * 3


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"deliver_at": in_an_hour().replace(tzinfo=None)}, "zone"),
        ({"deliver_at": dt.datetime(9999, 1, 1, tzinfo=dt.UTC)}, "out of range"),
        ({"delay": -HOUR}, "delay"),
        ({"delay": dt.timedelta.max}, "out of range"),
        ({"ttl": dt.timedelta()}, "out of range"),
        ({"ttl": dt.timedelta.max}, "out of range"),
        ({"delay": HOUR, "deliver_at": in_an_hour()}, "exclude each other"),
        ({"priority": "urgent"}, "low.*normal.*high"),
    ],
)
def test_a_time_or_a_word_that_no_put_takes_is_refused_with_the_reason(
    queue: Queue, properties: dict[str, Any], reason: str
) -> None:
    with pytest.raises(shmq.InvalidOption, match=reason):
        queue.put(b"x", **properties)

    assert queue.stats().put == 0


def test_a_time_of_day_that_has_passed_delivers_at_once(queue: Queue) -> None:
    queue.put(b"x", deliver_at=time.time() - 1000)

    assert queue.get_nowait().body == b"x"


def test_delayed_messages_come_when_they_are_due_not_as_they_were_put(queue: Queue) -> None:
    queue.put("late", delay=LATER)
    queue.put("early", delay=SOON)

    assert next_message(queue).body == "early"
    assert queue.stats().delayed == 1


def test_delayed_messages_that_are_due_take_their_place_by_sequence(queue: Queue) -> None:
    queue.put(1, delay=2 * SOON)
    queue.put(2, delay=SOON)
    queue.put(3)

    eventually(lambda: queue.qsize() == 3, "all are due")

    assert drain(queue) == [1, 2, 3]


def test_a_waiting_get_is_served_when_a_delay_is_over(queue: Queue) -> None:
    waiter = in_thread(lambda: queue.get().body)

    queue.put(b"x", delay=SOON)

    assert outcome(waiter) == b"x"


def test_a_delayed_put_is_not_a_delivery(queue: Queue) -> None:
    queue.put(b"x", delay=SOON)

    assert next_message(queue).delivery_count == 1


def test_a_message_past_its_ttl_becomes_a_dead_letter_never_delivered(broker: Broker) -> None:
    queue = broker.create_queue("jobs")
    queue.put(b"stale", ttl=SOON)

    eventually(lambda: queue.stats().dead_lettered == 1, "the ttl passes")

    with pytest.raises(shmq.Empty):
        queue.get_nowait()
    letter = broker.queue("jobs.dlq").get_nowait()
    assert letter.dead is not None
    assert (letter.body, letter.dead.reason, letter.dead.deliveries) == (b"stale", "expired", 0)


def test_a_message_within_its_ttl_is_delivered(queue: Queue) -> None:
    queue.put(b"fresh", ttl=LATER)

    assert queue.get_nowait().body == b"fresh"


def test_a_queues_ttl_is_that_of_every_message_without_one(broker: Broker) -> None:
    queue = broker.create_queue("jobs", ttl=SOON)
    queue.put("short")
    queue.put("long", ttl=LATER)

    eventually(lambda: queue.stats().dead_lettered == 1, "the ttl passes")

    assert drain(queue) == ["long"]


def test_expired_messages_are_dropped_and_counted_if_the_queue_says_so(broker: Broker) -> None:
    queue = broker.create_queue("jobs", on_expired="drop")
    queue.put(b"stale", ttl=SOON)

    eventually(lambda: queue.stats().dropped == 1, "the ttl passes")

    assert queue.empty()
    assert queue.stats().dead_lettered == 0
    assert broker.queue("jobs.dlq").empty()


def test_expired_messages_are_dropped_where_there_are_no_dead_letters(broker: Broker) -> None:
    queue = broker.create_queue("jobs", dead_letter=None)
    queue.put(b"stale", ttl=SOON)

    eventually(lambda: queue.stats().dropped == 1, "the ttl passes")

    assert queue.empty()


def test_a_ttl_passes_while_a_message_is_delayed(queue: Queue) -> None:
    queue.put(b"never", delay=LATER, ttl=SOON)

    eventually(lambda: queue.stats().dead_lettered == 1, "the ttl passes")

    assert queue.stats().delayed == 0


def test_a_ttl_counts_from_the_put_not_from_when_the_message_is_due(queue: Queue) -> None:
    queue.put(b"never", delay=2 * SOON, ttl=SOON)
    queue.put(b"probe", delay=3 * SOON)

    assert next_message(queue).body == b"probe"
    assert queue.stats().dead_lettered == 1


def test_a_leased_message_past_its_ttl_is_its_holders_to_finish(broker: Broker) -> None:
    queue = broker.create_queue("jobs")
    held = lease_that_expires(queue)
    pass_ttl(queue)

    held.ack()

    assert queue.stats().acked == 1


@pytest.mark.parametrize("delay", [0, LATER])
def test_a_leased_message_past_its_ttl_dies_when_it_comes_back(
    broker: Broker, delay: float
) -> None:
    queue = broker.create_queue("jobs")
    held = lease_that_expires(queue)
    dead = pass_ttl(queue)

    held.nack(delay=delay)

    assert queue.stats().dead_lettered == dead + 1
    letters = broker.queue("jobs.dlq").get_many(dead + 1)
    reasons = {letter.body: letter.dead for letter in letters}
    assert reasons[b"held"] is not None
    assert (reasons[b"held"].reason, reasons[b"held"].deliveries) == ("expired", 1)


def test_a_group_goes_on_when_its_delayed_nack_is_past_its_ttl(queue: Queue) -> None:
    held = lease_that_expires(queue, group="g")
    queue.put(2, group="g")

    held.nack(delay=LATER)

    assert next_message(queue).body == 2


def test_an_expired_message_makes_room(broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=1, on_expired="drop")
    queue.put(b"stale", ttl=SOON)

    queue.put(b"fresh", block=True)

    assert drain(queue) == [b"fresh"]


def test_thousands_of_messages_expire_together(broker: Broker) -> None:
    queue = broker.create_queue("jobs")
    queue.put_many(range(3000), ttl=SOON)
    queue.put("kept")

    eventually(lambda: queue.stats().dead_lettered == 3000, "the ttl passes")

    assert drain(queue) == ["kept"]
    assert sorted(drain(broker.queue("jobs.dlq"))) == list(range(3000))
