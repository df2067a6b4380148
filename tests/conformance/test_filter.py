"""Filters: gets that select messages by headers and properties, and what other gets receive.

Other levels: c/test_filter.c, c/test_select.c, unit/expression/test_parse.py,
system/client/test_filters.py, system/wire/test_filters.py.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import shmq
from shmq import Broker, Queue
from tests.support.waiting import PATIENCE

from .conftest import Connect
from .tools import SOON, drain, getter_asleep, in_thread, outcome

EU = "header.region = 'eu'"


def put(queue: Queue, *regions: str) -> None:
    """A message for each region, with its place as the body."""
    for place, region in enumerate(regions):
        queue.put(str(place), headers={"region": region})


def test_what_is_meant_comes_in_its_order_and_the_others_stay_in_theirs(queue: Queue) -> None:
    put(queue, "us", "eu", "us", "eu", "us")

    assert [queue.get(where=EU).body, queue.get(where=EU).body] == ["1", "3"]
    assert drain(queue) == ["0", "2", "4"]


def test_many_that_are_meant_come_together(queue: Queue) -> None:
    put(queue, "us", "eu", "us", "eu", "eu")

    assert [message.body for message in queue.get_many(2, where=EU)] == ["1", "3"]
    assert [message.body for message in queue.get_many(9, where=EU)] == ["4"]
    assert queue.get_many(9, where=EU, block=False) == []
    assert queue.qsize() == 2


def test_an_iterator_gives_what_is_meant_alone(queue: Queue) -> None:
    put(queue, *["us", "eu"] * 10)

    with queue.consume(4, timeout=SOON, where=EU) as messages:
        bodies = []
        for message in messages:
            bodies.append(int(message.body))
            message.ack()

    assert bodies == list(range(1, 20, 2))
    assert drain(queue) == [str(place) for place in range(0, 20, 2)]
    assert queue.stats().in_flight == 0


def test_an_iterator_that_may_not_wait_ends_with_what_is_there(queue: Queue) -> None:
    put(queue, "us", "eu")

    with queue.consume(block=False, where=EU) as messages:
        assert [message.body for message in messages] == ["1"]


def test_tasks_ask_for_what_they_mean(queue: Queue) -> None:
    async def work() -> list[Any]:
        german = asyncio.ensure_future(queue.aget(PATIENCE, where="header.region = 'de'"))
        french = asyncio.ensure_future(queue.aget(PATIENCE, where="header.region = 'fr'"))
        await asyncio.sleep(0)
        for region in ("us", "fr", "de"):
            await queue.aput(region, headers={"region": region})
        found = [(await german).body, (await french).body]
        async for message in queue.aconsume(4, timeout=SOON, where="header.region like 'u%'"):
            found.append(message.body)
            message.ack()
        return found

    assert asyncio.run(work()) == ["de", "fr", "us"]


@pytest.mark.parametrize("timeout", [0, SOON])
def test_what_is_not_meant_is_not_there(queue: Queue, timeout: float) -> None:
    put(queue, "us")

    with pytest.raises(shmq.Empty):
        queue.get(timeout=timeout, where=EU)
    with pytest.raises(shmq.Empty):
        queue.get_nowait(where=EU)
    with pytest.raises(shmq.Empty):
        asyncio.run(queue.aget(timeout, where=EU))
    assert queue.get_many(3, timeout, where=EU) == []
    assert queue.stats().in_flight == 0


def test_a_wait_ends_with_the_first_that_is_meant(queue: Queue, other: Queue) -> None:
    put(queue, "us", "us")
    waiting = in_thread(queue.get, timeout=PATIENCE, where=EU)
    getter_asleep(other)

    put(other, "us", "eu")

    assert outcome(waiting).body == "1"
    assert other.qsize() == 3


def test_a_filtered_wait_takes_no_wakeup_of_another_message(connect: Connect, queue: Queue) -> None:
    filtered = [connect().queue("q") for _ in range(2)]
    waiting = [in_thread(each.get, timeout=PATIENCE, where=EU) for each in filtered]
    getter_asleep(queue)
    plain = in_thread(connect().queue("q").get, timeout=PATIENCE)

    put(queue, "us")
    assert outcome(plain).headers == {"region": "us"}
    put(queue, "eu", "us", "eu")

    assert sorted(outcome(each).body for each in waiting) == ["0", "2"]
    assert drain(queue) == ["1"]


def test_a_returned_message_wakes_a_filtered_wait_that_selects_it(
    queue: Queue, other: Queue
) -> None:
    put(queue, "us", "eu")
    message = other.get(where=EU)
    waiting = in_thread(queue.get, timeout=PATIENCE, where=EU)
    getter_asleep(other)

    message.nack(delay=0)

    assert outcome(waiting).delivery_count == 2


def test_the_front_of_a_group_that_is_not_meant_holds_its_group(queue: Queue) -> None:
    queue.put("first", group="g", headers={"region": "us"})
    queue.put("second", group="g", headers={"region": "eu"})
    queue.put("other", group="h", headers={"region": "eu"})

    assert [message.body for message in queue.get_many(9, where=EU)] == ["other"]
    front = queue.get()
    assert queue.get_many(9, where=EU, block=False) == []
    front.ack()
    assert queue.get(where=EU).body == "second"


def test_a_higher_priority_comes_first_and_one_that_came_back_has_its_place(queue: Queue) -> None:
    put(queue, "eu", "eu")
    queue.put("high", priority=2, headers={"region": "eu"})
    put(queue, "us")

    assert queue.get(where=EU).body == "high"
    queue.get(where=EU).nack(delay=0)
    assert [message.body for message in queue.get_many(3, where=EU)] == ["0", "1"]


@pytest.mark.parametrize(
    ("where", "bodies"),
    [
        ("group = 'g'", ["grouped"]),
        ("group = null and correlation = null", ["plain", "coded"]),
        ("correlation like 'c-%'", ["correlated"]),
        ("priority > 1", ["grouped"]),
        ("codec = 'json' or codec = 'pb'", ["coded"]),
        ("size = 5", ["plain"]),
        ("sequence in (1, 3)", ["plain", "correlated"]),
        ("header.n >= 2.5 and not header.n = null", ["correlated"]),
        ("reason = null", ["grouped", "plain", "correlated", "coded"]),
    ],
)
def test_what_may_be_asked(queue: Queue, where: str, bodies: list[str]) -> None:
    queue.put("plain", headers={"n": 2})
    queue.put("grouped", priority=2, group="g", correlation="x")
    queue.put("correlated", correlation="c-7", headers={"n": 3})
    queue.put("coded", codec="json")

    assert [message.body for message in queue.get_many(9, where=where)] == bodies


def test_dead_letters_are_asked_why_they_are_dead(broker: Broker, queue: Queue) -> None:
    for body in ("first", "second"):
        queue.put(body, headers={"body": body})
    queue.get().reject()
    where = "reason = 'rejected' and queue = 'q' and deliveries = 1 and age < 1h"

    dead_letter_queue = broker.queue("q.dlq")

    assert dead_letter_queue.get(where=where, timeout=PATIENCE).body == "first"
    assert queue.get_many(9, where="reason != null", block=False) == []


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("", "a field"),
        ("region = 'eu'", "region"),
        ("header.region = ", "the end"),
        ("body.region = 'eu'", "body"),
        ("shape = '{}'", "shape"),
        ("size = 1 or " * 6000 + "size = 1", "at most"),
    ],
)
def test_an_expression_that_cannot_be_asked_is_refused(
    queue: Queue, where: str, names: str
) -> None:
    for call in (
        lambda: queue.get(False, where=where),
        lambda: queue.get_many(1, where=where),
        lambda: queue.consume(where=where),
        lambda: queue.aconsume(where=where),
        lambda: asyncio.run(queue.aget(0, where=where)),
    ):
        with pytest.raises(shmq.InvalidOption, match=names):
            call()


def test_what_is_no_text_is_refused(queue: Queue) -> None:
    with pytest.raises(TypeError, match="where=7"):
        queue.get(False, where=7)  # type: ignore[arg-type]


def test_a_wait_for_what_is_meant_ends_with_the_queue(broker: Broker, queue: Queue) -> None:
    put(queue, "us")
    waiting = in_thread(queue.get, timeout=PATIENCE, where=EU)
    getter_asleep(broker.queue("q"))

    broker.delete_queue("q")

    with pytest.raises(shmq.QueueDeleted):
        outcome(waiting)


def test_those_that_are_meant_can_be_looked_at_by_their_bodies_too(queue: Queue) -> None:
    for total in (1, 5, 9, 7):
        queue.put({"total": total}, headers={"region": "eu" if total > 1 else "us"})

    shown = queue.peek(2, where="header.region = 'eu' and body.total > 5")

    assert [message.body["total"] for message in shown] == [9, 7]
    assert queue.peek(where="body.total = 2") == []
    assert queue.stats().in_flight == 0
    with pytest.raises(shmq.InvalidOption, match="a field"):
        queue.peek(where="")
