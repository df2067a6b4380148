"""Dead letters: why, when and from where, what they keep, and the way back.

Other levels: c/test_transfer.c, system/client/test_dead_letters.py,
system/persistence/test_transfers.py, prove/crash/scenarios.py.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest

import shmq
from shmq import Broker, Message, Queue
from tests.support.waiting import eventually

from .tools import LATER, SOON, bodies, drain, in_thread, in_time, lease_all, next_message, outcome


def deliver_and_nack(queue: Queue, times: int) -> None:
    for _ in range(times):
        next_message(queue).nack(delay=0)


def make_dead_letter_queue(broker: Broker, capacity: int) -> Queue:
    """A dead-letter queue that was there before the queues that name it."""
    return broker.create_queue(
        "graveyard",
        capacity=capacity,
        dead_letter=None,
        max_deliveries=None,
        arena_bytes=32 * 1024 * 1024,
    )


@pytest.fixture
def dead(broker: Broker, queue: Queue) -> Queue:
    """The dead-letter queue of ``queue``."""
    return broker.queue("q.dlq")


def test_a_rejected_message_becomes_a_dead_letter_at_once(queue: Queue, dead: Queue) -> None:
    queue.put(b"poison")
    before = time.time()
    queue.get().reject()
    after = time.time()

    letter = dead.get_nowait()

    assert letter.body == b"poison"
    assert letter.dead is not None
    assert (letter.dead.reason, letter.dead.queue, letter.dead.deliveries) == ("rejected", "q", 1)
    assert before - 0.001 <= letter.dead.at <= after + 0.001


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_a_message_nacked_at_the_delivery_limit_becomes_a_dead_letter(
    broker: Broker, limit: int
) -> None:
    queue = broker.create_queue("jobs", max_deliveries=limit)
    queue.put(b"x")

    deliver_and_nack(queue, limit)

    assert queue.empty()
    letter = broker.queue("jobs.dlq").get_nowait()
    assert letter.dead is not None
    assert (letter.dead.reason, letter.dead.deliveries) == ("max_deliveries", limit)


def test_the_limit_acts_at_once_even_on_a_nack_with_a_delay(broker: Broker) -> None:
    queue = broker.create_queue("jobs", max_deliveries=1)
    queue.put(b"x")

    queue.get().nack(delay=LATER)

    assert broker.queue("jobs.dlq").qsize() == 1


def test_a_message_whose_last_lease_ran_out_becomes_a_dead_letter(broker: Broker) -> None:
    queue = broker.create_queue("jobs", max_deliveries=1, visibility_timeout=SOON)
    queue.put(b"x")
    queue.get()

    eventually(lambda: queue.stats().dead_lettered == 1, "the lease runs out")

    letter = broker.queue("jobs.dlq").get_nowait()
    assert letter.dead is not None
    assert letter.dead.reason == "max_deliveries"


def test_a_message_acked_at_the_delivery_limit_is_done(broker: Broker) -> None:
    queue = broker.create_queue("jobs", max_deliveries=2)
    queue.put(b"x")
    deliver_and_nack(queue, 1)

    queue.get().ack()

    assert broker.queue("jobs.dlq").empty()


def test_without_a_delivery_limit_a_message_always_comes_back(broker: Broker) -> None:
    queue = broker.create_queue("jobs", max_deliveries=None)
    queue.put(b"x")

    deliver_and_nack(queue, 50)

    assert queue.get_nowait().delivery_count == 51


def test_a_dead_letter_keeps_its_original_properties(queue: Queue, dead: Queue) -> None:
    queue.put(
        {"a": 1},
        priority=shmq.HIGH,
        group="g",
        headers={"k": [1, 2]},
        reply_to="answers",
        correlation="c-1",
        codec="event",
    )
    queue.get().reject()

    letter = dead.get()

    assert (letter.body, letter.codec) == ({"a": 1}, "event")
    assert (letter.priority, letter.group) == (shmq.HIGH, "g")
    assert dict(letter.headers) == {"k": [1, 2]}
    assert (letter.properties["reply_to"], letter.properties["corr"]) == ("answers", "c-1")
    assert (letter.reply_to, letter.correlation) == ("answers", "c-1")
    assert letter.delivery_count == 1


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, 1_000_000])
def test_a_body_of_any_size_becomes_a_dead_letter(queue: Queue, dead: Queue, size: int) -> None:
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    queue.put(body)

    queue.get().reject()

    assert dead.get().body == body


def test_a_dead_letters_group_no_longer_acts(queue: Queue, dead: Queue) -> None:
    queue.put_many([b"1", b"2"], group="g")
    for _ in range(2):
        queue.get().reject()

    assert bodies(lease_all(dead)) == [b"1", b"2"]


def test_a_dead_letters_ttl_delay_and_dedupe_no_longer_act(broker: Broker) -> None:
    queue = broker.create_queue("jobs", dedupe_window=LATER)
    dead = broker.queue("jobs.dlq")
    queue.put(b"1", dedupe_id="one", delay=SOON)
    next_message(queue).reject()
    queue.put(b"2", ttl=SOON, delay=LATER)

    eventually(lambda: queue.stats().dead_lettered == 2, "the ttl passes")

    assert drain(dead) == [b"1", b"2"]


def test_dead_letters_are_served_by_their_priority(queue: Queue, dead: Queue) -> None:
    for priority in (shmq.LOW, shmq.HIGH, shmq.NORMAL):
        queue.put(priority, priority=priority)
    for _ in range(3):
        queue.get().reject()

    assert drain(dead) == [shmq.HIGH, shmq.NORMAL, shmq.LOW]


def test_the_dead_letter_queue_has_no_delivery_limit(queue: Queue, dead: Queue) -> None:
    queue.put(b"x")
    queue.get().reject()

    deliver_and_nack(dead, 50)

    assert dead.get_nowait().delivery_count == 51


def test_rejecting_a_dead_letter_drops_it_and_counts_it(queue: Queue, dead: Queue) -> None:
    queue.put(b"x")
    queue.get().reject()

    dead.get().reject()

    assert dead.empty()
    assert dead.stats().dropped == 1


@pytest.mark.parametrize("how", ["reject", "nack"])
def test_without_a_dead_letter_queue_messages_are_dropped_and_counted(
    broker: Broker, how: str
) -> None:
    queue = broker.create_queue("jobs", dead_letter=None, max_deliveries=1)
    queue.put(b"x")

    getattr(queue.get(), how)()

    stats = queue.stats()
    assert (stats.depth, stats.in_flight, stats.dying) == (0, 0, 0)
    assert (stats.dropped, stats.dead_lettered) == (1, 0)


def test_a_dead_letter_wakes_a_waiting_get(queue: Queue, dead: Queue) -> None:
    waiter = in_thread(lambda: dead.get().body)
    queue.put(b"x")

    queue.get().reject()

    assert outcome(waiter) == b"x"


def test_a_dead_letter_has_left_its_queue(queue: Queue) -> None:
    queue.put(b"x")

    queue.get().reject()

    stats = queue.stats()
    assert (stats.depth, stats.in_flight, stats.dying, stats.dead_lettered) == (0, 0, 0, 1)
    assert stats.arena_used == 0


def test_dead_letters_wait_in_their_queue_while_the_other_is_full(broker: Broker) -> None:
    dead_letter_queue = make_dead_letter_queue(broker, capacity=1)
    queue = broker.create_queue("jobs", dead_letter="graveyard")
    queue.put_many([b"1", b"2"])
    for _ in range(2):
        queue.get().reject()
    assert queue.stats().dying == 1

    assert drain(dead_letter_queue) == [b"1"]

    eventually(lambda: queue.stats().dying == 0, "the second one has moved")
    assert drain(dead_letter_queue) == [b"2"]


@pytest.mark.parametrize("options", [{"dead_letter": None}, {"max_deliveries": None}])
def test_a_queue_that_limits_deliveries_or_has_dead_letters_cannot_take_any(
    broker: Broker, options: dict[str, Any]
) -> None:
    broker.create_queue("ordinary", **options)

    with pytest.raises(shmq.InvalidOption, match="ordinary"):
        broker.create_queue("jobs", dead_letter="ordinary")

    assert "jobs" not in [line.name for line in broker.list_queues()]


def test_messages_that_die_are_none_that_can_be_got(broker: Broker) -> None:
    make_dead_letter_queue(broker, capacity=1).put(b"full")
    queue = broker.create_queue("jobs", dead_letter="graveyard")
    queue.put(b"x")
    queue.get().reject()

    with pytest.raises(shmq.Empty):
        queue.get_nowait()
    assert queue.qsize() == 0


def test_redrive_sends_dead_letters_back_with_a_new_count(queue: Queue, dead: Queue) -> None:
    queue.put_many([b"1", b"2"])
    for _ in range(2):
        queue.get().reject()

    assert queue.redrive() == 2

    assert dead.empty()
    again = lease_all(queue)
    assert bodies(again) == [b"1", b"2"]
    assert [message.delivery_count for message in again] == [1, 1]
    assert [message.dead for message in again] == [None, None]


def test_redrive_goes_no_further_than_its_limit(queue: Queue, dead: Queue) -> None:
    queue.put_many(range(5))
    for _ in range(5):
        queue.get().reject()

    assert queue.redrive(limit=2) == 2

    assert drain(queue) == [0, 1]
    assert drain(dead) == [2, 3, 4]


def test_a_dead_letter_is_dropped_and_counted_when_its_time_is_over(broker: Broker) -> None:
    queue = broker.create_queue("jobs", dead_letter_ttl=SOON)
    queue.put(b"x")
    queue.get().reject()
    dead = broker.queue("jobs.dlq")

    eventually(lambda: dead.stats().dropped_expired == 1, "the dead letter is dropped")

    assert dead.stats().depth == 0
    assert queue.stats().dead_lettered_rejected == 1


def test_in_a_shared_dead_letter_queue_each_source_says_how_long_its_letters_stay(
    broker: Broker,
) -> None:
    dead = make_dead_letter_queue(broker, capacity=10)
    given = {"short": SOON, "long": LATER, "ever": None}
    for name, ttl in given.items():
        queue = broker.create_queue(name, dead_letter="graveyard", dead_letter_ttl=ttl)
        queue.put(name)
        queue.get().reject()

    eventually(lambda: dead.stats().dropped_expired == 1, "the first dead letter is dropped")

    assert sorted(bodies(dead.peek(10))) == ["ever", "long"]


def test_a_redriven_dead_letter_has_no_end_any_more(broker: Broker) -> None:
    queue = broker.create_queue("jobs", dead_letter_ttl=SOON)
    clock = broker.create_queue("clock", dead_letter=None)

    def redrive() -> bool:
        queue.put(b"x")
        queue.get().reject()
        return queue.redrive() == 1

    eventually(redrive, "the dead letter is redriven before its end")
    clock.put(b"", ttl=SOON)

    eventually(lambda: clock.stats().dropped_expired == 1, "the time has passed")
    assert bodies([queue.get_nowait()]) == [b"x"]


def test_a_dead_letter_that_is_got_and_returned_keeps_its_end(broker: Broker) -> None:
    queue = broker.create_queue("jobs", dead_letter_ttl=SOON)
    dead = broker.queue("jobs.dlq")

    def get() -> Message:
        queue.put(b"x")
        queue.get().reject()
        return dead.get_nowait()

    letter = in_time(get, shmq.Empty)
    dropped = dead.stats().dropped_expired
    letter.nack(delay=0)

    eventually(lambda: dead.stats().dropped_expired == dropped + 1, "the dead letter is dropped")


def test_redrive_gives_priority_group_and_headers_their_effect_again(
    queue: Queue, dead: Queue
) -> None:
    queue.put(b"1", group="g", headers={"k": 1})
    queue.put(b"2", group="g")
    queue.put(b"3", priority=shmq.HIGH)
    for _ in range(3):
        queue.get().reject()

    queue.redrive()

    again = lease_all(queue)
    assert bodies(again) == [b"3", b"1"]
    assert (again[1].group, dict(again[1].headers)) == ("g", {"k": 1})
    again[1].ack()
    assert drain(queue) == [b"2"]


def test_redrive_forgets_ttl_delay_and_dedupe(broker: Broker) -> None:
    queue = broker.create_queue("jobs", dedupe_window=LATER)
    queue.put(b"old", dedupe_id="one", delay=LATER, ttl=SOON)
    eventually(lambda: queue.stats().dead_lettered == 1, "the ttl passes")

    assert queue.redrive() == 1

    queue.put(b"probe", ttl=SOON)
    eventually(lambda: queue.stats().dead_lettered == 2, "a ttl passes once more")
    assert drain(queue) == [b"old"]


def test_redrive_takes_only_the_dead_letters_that_came_from_this_queue(broker: Broker) -> None:
    one = broker.create_queue("one", dead_letter="graveyard")
    two = broker.create_queue("two", dead_letter="graveyard")
    for queue in (one, two, one):
        queue.put(queue.name)
        queue.get().reject()

    assert one.redrive() == 2

    assert drain(one) == ["one", "one"]
    assert drain(broker.queue("graveyard")) == ["two"]


def test_redrive_on_a_dead_letter_queue_sends_each_where_it_came_from(broker: Broker) -> None:
    names = ["one", "two", "three"]
    for name in names:
        queue = broker.create_queue(name, dead_letter="graveyard")
        queue.put(name)
        queue.get().reject()

    assert broker.queue("graveyard").redrive() == 3

    for name in names:
        assert drain(broker.queue(name)) == [name]


def test_redrive_into_a_full_queue_leaves_the_rest_where_it_is(broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=2)
    queue.put_many([b"1", b"2"])
    for _ in range(2):
        queue.get().reject()
    queue.put(b"in the way")

    assert queue.redrive() == 1

    assert broker.queue("jobs.dlq").qsize() == 1
    assert drain(queue) == [b"in the way", b"1"]


def test_redrive_leaves_leased_dead_letters(queue: Queue, dead: Queue) -> None:
    queue.put_many([b"1", b"2"])
    for _ in range(2):
        queue.get().reject()
    held = dead.get()

    assert queue.redrive() == 1

    assert drain(queue) == [b"2"]
    held.nack(delay=0)
    assert drain(dead) == [b"1"]


def test_redrive_of_a_deleted_queues_letters_loses_none(broker: Broker) -> None:
    queue = broker.create_queue("jobs")
    queue.put(b"x")
    queue.get().reject()
    broker.delete_queue("jobs")
    dead = broker.queue("jobs.dlq")

    with contextlib.suppress(shmq.NoSuchQueue):
        assert dead.redrive() == 0

    assert drain(dead) == [b"x"]


def test_redrive_without_dead_letters_does_nothing(queue: Queue) -> None:
    assert queue.redrive() == 0


def test_a_message_may_die_and_come_back_again_and_again(queue: Queue, dead: Queue) -> None:
    queue.put({"a": 1}, headers={"k": "v"}, group="g")
    for _ in range(10):
        queue.get().reject()
        assert queue.redrive() == 1

    message = queue.get()
    assert (message.body, dict(message.headers), message.group) == ({"a": 1}, {"k": "v"}, "g")
    assert message.dead is None


def test_a_waiting_get_gets_a_redriven_message(queue: Queue, dead: Queue) -> None:
    queue.put(b"x")
    queue.get().reject()
    waiter: Any = in_thread(lambda: queue.get().body)

    queue.redrive()

    assert outcome(waiter) == b"x"


def make_dead_letter(queue: Queue, body: Any, **properties: Any) -> None:
    queue.put(body, **properties)
    next_message(queue).reject()


def test_redrive_with_an_expression_sends_back_what_is_meant_alone(
    queue: Queue, dead: Queue
) -> None:
    make_dead_letter(queue, {"id": 1}, headers={"source": "web"})
    make_dead_letter(queue, {"id": 2}, headers={"source": "till"})
    make_dead_letter(queue, {"id": "3"}, headers={"source": "web"})
    make_dead_letter(queue, b"4", headers={"source": "web"})

    assert queue.redrive(where="header.source = 'web' and shape = '{id: int}'") == 1
    assert drain(queue) == [{"id": 1}]
    assert queue.redrive(where="shape = '{id: int}' or codec = 'bytes'") == 2
    assert drain(queue) == [{"id": 2}, b"4"]
    assert queue.redrive(where="reason = 'expired'") == 0
    assert drain(dead) == [{"id": "3"}]


def test_the_limit_of_a_redrive_counts_those_that_are_meant(queue: Queue, dead: Queue) -> None:
    for number in range(6):
        make_dead_letter(queue, number, headers={"odd": bool(number % 2)})

    assert queue.redrive(2, where="header.odd = true") == 2

    assert drain(queue) == [1, 3]
    assert drain(dead) == [0, 2, 4, 5]


def test_redrive_chooses_by_the_queue_that_a_letter_came_from(broker: Broker) -> None:
    for name in ("one", "two"):
        make_dead_letter(broker.create_queue(name, dead_letter="graveyard"), name)

    assert broker.queue("graveyard").redrive(where="queue = 'two'") == 1

    assert drain(broker.queue("one")) == []
    assert drain(broker.queue("two")) == ["two"]


def test_redrive_refuses_an_expression_that_it_cannot_read(queue: Queue, dead: Queue) -> None:
    make_dead_letter(queue, b"x")

    with pytest.raises(shmq.InvalidOption, match="character 1: field 'reson' does not exist"):
        queue.redrive(where="reson = 'rejected'")

    assert drain(dead) == [b"x"]
