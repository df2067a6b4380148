"""Moving messages to another queue.

Other levels: system/processes/test_move.py, system/cli/test_change.py.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import shmq
from shmq import Broker, Queue
from tests.support.waiting import eventually

from .tools import bodies, drain, lease_all


@pytest.fixture
def target(broker: Broker) -> Queue:
    return broker.create_queue("target")


def test_a_limit_may_be_more_than_there_can_be(queue: Queue, target: Queue) -> None:
    queue.put_many([1, 2])

    assert queue.move_to("target", 1 << 70) == 2


def test_all_visible_messages_move_in_order(queue: Queue, target: Queue) -> None:
    queue.put_many([1, "two", b"three", None, {"five": 5}])

    assert queue.move_to("target") == 5

    assert queue.qsize() == 0
    assert drain(target) == [1, "two", b"three", None, {"five": 5}]


def test_what_a_message_says_moves_with_it(queue: Queue, target: Queue) -> None:
    queue.put(
        b"x",
        priority=shmq.HIGH,
        group="g",
        headers={"k": [1, None]},
        codec="own",
        reply_to="answers",
        correlation="c",
        dedupe_id=None,
    )

    assert queue.move_to("target") == 1

    message = target.get_nowait()
    assert (bytes(message.view), message.codec, message.group) == (b"x", "own", "g")
    assert (message.reply_to, message.correlation) == ("answers", "c")
    assert (message.priority, message.headers) == (shmq.HIGH, {"k": [1, None]})


def test_a_moved_message_counts_its_deliveries_again(queue: Queue, target: Queue) -> None:
    queue.put("x")
    queue.get_nowait().nack(0.0, error="first")

    assert queue.move_to("target") == 1

    message = target.get_nowait()
    assert (message.delivery_count, message.last_error) == (1, None)


def test_a_priority_that_the_target_lacks_becomes_its_highest(broker: Broker, queue: Queue) -> None:
    target = broker.create_queue("two", priorities=2)
    for level in (0, 1, 2):
        queue.put(level, priority=level)

    assert queue.move_to("two") == 3

    assert sorted((m.priority, m.body) for m in lease_all(target)) == [(0, 0), (1, 1), (1, 2)]


def test_a_group_keeps_its_order(queue: Queue, target: Queue) -> None:
    for number in range(20):
        queue.put(number, group=f"g{number % 3}")

    assert queue.move_to("target") == 20

    found: dict[str | None, list[Any]] = {}
    for _ in range(20):
        message = target.get_nowait()
        found.setdefault(message.group, []).append(message.body)
        message.ack()
    assert found == {f"g{at}": list(range(at, 20, 3)) for at in range(3)}


def test_leased_and_delayed_messages_stay(queue: Queue, target: Queue) -> None:
    queue.put_many(["leased", "moves"])
    queue.put("delayed", delay=3600)
    message = queue.get_nowait()

    assert queue.move_to("target") == 1

    assert drain(target) == ["moves"]
    message.nack(0.0)
    assert queue.get_nowait().body == "leased"


@pytest.mark.parametrize(("limit", "moved"), [(1, 1), (2, 2), (3, 3), (4, 3), (1 << 40, 3)])
def test_at_most_the_limit_moves(queue: Queue, target: Queue, limit: int, moved: int) -> None:
    queue.put_many([1, 2, 3])

    assert queue.move_to("target", limit) == moved
    assert drain(target) == [1, 2, 3][:moved]


def test_only_matching_messages_move(queue: Queue, target: Queue) -> None:
    for number in range(6):
        queue.put(number, headers={"odd": number % 2})

    assert queue.move_to("target", where="header.odd = 1") == 3

    assert (drain(queue), drain(target)) == ([0, 2, 4], [1, 3, 5])


def test_as_many_move_as_fit(broker: Broker, queue: Queue) -> None:
    target = broker.create_queue("small", capacity=5)
    queue.put_many(list(range(8)))

    assert queue.move_to("small") == 5
    with pytest.raises(shmq.Full, match="small"):
        queue.move_to("small")

    assert drain(target) == [0, 1, 2, 3, 4]
    again = lease_all(queue)
    assert bodies(again) == [5, 6, 7]
    assert [message.delivery_count for message in again] == [1, 1, 1]


def test_dead_letters_move_with_their_history(broker: Broker, queue: Queue, target: Queue) -> None:
    queue.put("x")
    queue.get_nowait().reject("because")

    assert broker.queue("q.dlq").move_to("target") == 1

    dead = target.get_nowait().dead
    assert dead is not None
    assert (dead.queue, dead.reason, dead.error and dead.error.text) == ("q", "rejected", "because")


def test_an_empty_queue_moves_nothing(queue: Queue, target: Queue) -> None:
    assert (queue.move_to("target"), target.qsize()) == (0, 0)


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("q", shmq.InvalidOption),
        ("nowhere", shmq.NoSuchQueue),
        ("no/name", shmq.InvalidName),
        ("\ud800", shmq.InvalidName),
        ("", shmq.InvalidName),
        (7, TypeError),
        (None, TypeError),
    ],
)
def test_a_target_that_cannot_be_is_refused(
    queue: Queue, target: Any, error: type[Exception]
) -> None:
    queue.put("stays")
    with pytest.raises(error):
        queue.move_to(target)
    assert drain(queue) == ["stays"]


@pytest.mark.parametrize(
    ("limit", "error"),
    [(0, shmq.InvalidOption), (-1, shmq.InvalidOption), (1.5, TypeError), ("all", TypeError)],
)
def test_a_limit_that_cannot_be_is_refused(
    queue: Queue, target: Queue, limit: Any, error: type[Exception]
) -> None:
    queue.put("stays")
    with pytest.raises(error, match="limit"):
        queue.move_to("target", limit)
    assert drain(queue) == ["stays"]


@pytest.mark.usefixtures("target")
@pytest.mark.parametrize("bodies", [[], ["stays"]])
def test_an_expression_that_cannot_be_parsed_is_refused(queue: Queue, bodies: list[str]) -> None:
    queue.put_many(bodies)
    for where in ("header.a =", "garbage (("):
        with pytest.raises(shmq.InvalidOption, match="where"):
            queue.move_to("target", where=where)
        with pytest.raises(shmq.InvalidOption, match="where"):
            asyncio.run(queue.amove_to("target", where=where))
    assert drain(queue) == bodies


def test_a_message_that_can_never_fit_stays_and_is_named(broker: Broker, queue: Queue) -> None:
    target = broker.create_queue("narrow", max_message_bytes=1000)
    queue.put_many([b"1", b"2", bytes(2000), b"4"])

    with pytest.raises(shmq.MessageTooLarge, match="narrow"):
        queue.move_to("narrow")

    assert drain(target) == [b"1", b"2"]
    assert drain(queue) == [bytes(2000), b"4"]


def test_a_deleted_queue_moves_nothing(broker: Broker, queue: Queue, target: Queue) -> None:
    broker.delete_queue("q")
    with pytest.raises(shmq.QueueDeleted):
        queue.move_to("target")
    assert target.qsize() == 0


# ---- asyncio ----


def test_a_task_moves_messages(broker: Broker, queue: Queue, target: Queue) -> None:
    queue.put_many(range(5))

    assert asyncio.run(queue.amove_to("target", 2)) == 2

    assert (drain(target), drain(queue)) == ([0, 1], [2, 3, 4])
    with pytest.raises(shmq.NoSuchQueue, match="nowhere"):
        asyncio.run(queue.amove_to("nowhere"))
    with pytest.raises(shmq.InvalidOption, match="'q'"):
        asyncio.run(queue.amove_to("q"))
    broker.delete_queue("q")
    with pytest.raises(shmq.QueueDeleted):
        asyncio.run(queue.amove_to("target"))


def test_a_move_whose_task_is_cancelled_loses_nothing(queue: Queue, target: Queue) -> None:
    queue.put_many(range(500))

    async def main() -> None:
        moving = asyncio.create_task(queue.amove_to("target"))
        await asyncio.sleep(0.001)
        moving.cancel()
        await asyncio.gather(moving, return_exceptions=True)

    asyncio.run(main())
    found: list[int] = []

    def has_all() -> bool:
        found.extend(drain(target) + drain(queue))
        return len(found) >= 500

    eventually(has_all, "the move has ended")
    assert sorted(found) == list(range(500))
