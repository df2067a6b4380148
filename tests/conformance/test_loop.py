"""A loop over bodies: a step acknowledges, an exception returns, the rest is not counted.

Other levels: system/client/test_asyncio.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
from typing import Any

import pytest

import shmq
from shmq import Broker, Queue
from tests.support.waiting import PATIENCE, eventually

from .conftest import Connect
from .tools import LATER, MOMENT, SOON, getter_asleep, in_thread, in_time, lease_all, outcome


class Failure(Exception):
    """What goes wrong in a loop."""


@pytest.fixture
def queue(broker: Broker) -> Queue:
    """A queue whose returned messages are visible at once."""
    return broker.create_queue("q", retry_delay=0)


def deliveries(queue: Queue) -> dict[Any, int]:
    """Take and acknowledge all visible messages; returns their delivery counts by body."""
    leased = lease_all(queue)
    queue.ack_many(leased)
    return {message.body: message.delivery_count for message in leased}


def test_a_loop_has_every_body_in_order_and_acknowledges_it(queue: Queue) -> None:
    queue.put_many(range(200))

    got = list(queue.bodies(block=False))

    assert got == list(range(200))
    stats = queue.stats()
    assert (stats.acked, stats.in_flight, stats.depth) == (200, 0, 0)


@pytest.mark.parametrize("prefetch", [1, 2, 7, 64, 1000])
def test_the_prefetch_changes_nothing_but_how_many_are_leased_ahead(
    queue: Queue, prefetch: int
) -> None:
    queue.put_many(range(100))

    with queue.bodies(prefetch, block=False) as bodies:
        assert list(bodies) == list(range(100))

    assert queue.stats().acked == 100


@pytest.mark.parametrize(
    "body", [b"", b"x", bytes(100_000), "text", None, {"a": [1, 2.5, None]}, "ö" * 5000]
)
def test_each_kind_of_body_comes_as_its_message_has_it(queue: Queue, body: Any) -> None:
    queue.put(body)

    assert list(queue.bodies(block=False)) == [body]


def test_only_the_next_step_acknowledges(queue: Queue) -> None:
    queue.put_many(range(3))
    with queue.bodies(prefetch=3) as bodies:
        for acked in range(3):
            assert next(bodies) == acked
            bodies.flush()

            assert queue.stats().acked == acked


def test_leaving_by_an_exception_returns_the_body_in_hand_counted_and_the_rest_uncounted(
    queue: Queue, other: Queue
) -> None:
    queue.put_many(range(10))

    with pytest.raises(Failure), queue.bodies(prefetch=10) as bodies:
        for body in bodies:
            if body == 3:
                raise Failure

    assert queue.stats().acked == 3
    assert deliveries(other) == {3: 2} | dict.fromkeys(range(4, 10), 1)


def test_leaving_the_block_acknowledges_the_body_in_hand_and_returns_the_rest_uncounted(
    queue: Queue, other: Queue
) -> None:
    queue.put_many(range(10))

    with queue.bodies(prefetch=10) as bodies:
        for body in bodies:
            if body == 3:
                break

    assert queue.stats().acked == 4
    assert deliveries(other) == dict.fromkeys(range(4, 10), 1)


def leave_by_break(queue: Queue) -> None:
    for body in queue.bodies(prefetch=10):
        if body == 3:
            break


def leave_by_exception(queue: Queue) -> None:
    with contextlib.suppress(Failure):
        for body in queue.bodies(prefetch=10):
            if body == 3:
                raise Failure


def leave_by_close(queue: Queue) -> None:
    bodies = queue.bodies(prefetch=10)
    assert [next(bodies) for _ in range(4)] == [0, 1, 2, 3]
    bodies.close()
    bodies.close()
    assert list(bodies) == []


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("leave", [leave_by_break, leave_by_exception, leave_by_close])
def test_without_a_block_leaving_returns_the_body_in_hand_counted_and_the_rest_uncounted(
    queue: Queue, other: Queue, leave: Any
) -> None:
    queue.put_many(range(10))

    leave(queue)
    gc.collect()

    eventually(lambda: queue.stats().in_flight == 0, "all is back")
    assert queue.stats().acked == 3
    assert deliveries(other) == {3: 2} | dict.fromkeys(range(4, 10), 1)


def test_a_body_that_fails_again_and_again_becomes_a_dead_letter(broker: Broker) -> None:
    queue = broker.create_queue("jobs", max_deliveries=3, retry_delay=0)
    queue.put_many([b"poison", b"good"])

    failed = 0
    for _ in range(3):
        with contextlib.suppress(Failure), queue.bodies(block=False) as bodies:
            for body in bodies:
                if body == b"poison":
                    failed += 1
                    raise Failure

    assert list(queue.bodies(block=False)) == [b"good"]
    (letter,) = broker.queue("jobs.dlq").peek()
    assert letter.dead is not None
    assert (failed, letter.body, letter.dead.deliveries) == (3, b"poison", 3)


def test_the_queues_back_off_holds_for_a_body_that_failed(broker: Broker) -> None:
    queue = broker.create_queue("jobs", retry_delay=LATER, retry_delay_max=LATER)
    queue.put(1)

    with pytest.raises(Failure), queue.bodies() as bodies:
        next(bodies)
        raise Failure

    assert (queue.stats().delayed, queue.stats().nacked) == (1, 1)


def test_a_body_that_cannot_be_decoded_raises_and_goes_back(broker: Broker) -> None:
    queue = broker.create_queue("jobs", retry_delay=0, max_deliveries=1)
    with queue.loan(1, codec="msgpack") as view:
        view[:] = b"\xc1"
    queue.put(b"good")

    with queue.bodies(block=False) as bodies:
        with pytest.raises(shmq.ShmqError, match="not msgpack"):
            next(bodies)
        assert list(bodies) == [b"good"]

    assert (queue.stats().acked, broker.queue("jobs.dlq").qsize()) == (1, 1)


def test_a_lease_that_ends_in_hand_is_reported_by_the_next_step_and_the_loop_may_go_on(
    broker: Broker,
) -> None:
    queue = broker.create_queue("jobs", visibility_timeout=MOMENT)

    def work() -> None:
        queue.purge()
        queue.put_many([1, 2])
        with queue.bodies(prefetch=1, block=False) as bodies:
            assert next(bodies) == 1
            eventually(lambda: queue.qsize() == 2, "the lease is over")

            with pytest.raises(shmq.LeaseExpired):
                next(bodies)

            assert next(bodies) == 1

    in_time(work, shmq.LeaseExpired)
    assert (queue.stats().acked, queue.qsize()) == (1, 1)


def test_a_lease_that_ends_in_hand_is_reported_at_the_end_of_the_block(broker: Broker) -> None:
    queue = broker.create_queue("jobs", visibility_timeout=SOON)
    queue.put(1)

    def work(error: Exception | None) -> None:
        with queue.bodies(block=False) as bodies:
            next(bodies)
            eventually(lambda: queue.qsize() == 1, "the lease is over")
            if error is not None:
                raise error

    with pytest.raises(shmq.LeaseExpired):
        work(None)
    with pytest.raises(Failure):
        work(Failure())


def test_the_loop_ends_when_none_came_for_its_timeout(queue: Queue) -> None:
    queue.put_many([1, 2])

    assert list(queue.bodies(timeout=SOON)) == [1, 2]
    assert queue.stats().acked == 2


def test_the_loop_waits_and_has_acknowledged_what_came_before(queue: Queue, other: Queue) -> None:
    queue.put("before")

    def work() -> list[str]:
        bodies = other.bodies(timeout=LATER)
        return [next(bodies), next(bodies)]

    waiter = in_thread(work)
    getter_asleep(queue)
    eventually(lambda: queue.stats().acked == 1, "the first is acknowledged")

    queue.put("at last")

    assert outcome(waiter) == ["before", "at last"]


def test_a_loop_has_the_bodies_that_its_filter_means(queue: Queue) -> None:
    for number in range(10):
        queue.put(number, headers={"even": number % 2 == 0})

    with queue.bodies(prefetch=3, block=False, where="header.even = true") as bodies:
        assert list(bodies) == [0, 2, 4, 6, 8]

    assert list(queue.bodies(block=False)) == [1, 3, 5, 7, 9]


def test_two_loops_share_a_queue_and_none_twice(connect: Connect) -> None:
    queue = connect().create_queue("jobs")
    ends = ["one", "two"]
    queue.put_many([*range(1000), *ends])

    def work(client: Queue) -> list[int]:
        with client.bodies(prefetch=16, timeout=PATIENCE) as bodies:
            return list(itertools.takewhile(lambda body: body not in ends, bodies))

    workers = [in_thread(work, connect().queue("jobs")) for _ in ends]

    assert sorted(outcome(workers[0]) + outcome(workers[1])) == list(range(1000))
    assert queue.stats().acked == 1002


def test_each_step_frees_its_group_for_the_next(queue: Queue) -> None:
    queue.put_many(range(20), group="g")

    assert list(queue.bodies(block=False)) == list(range(20))


def test_closing_a_queue_returns_what_its_loop_has(connect: Connect) -> None:
    queue = connect().create_queue("jobs", retry_delay=0)
    queue.put_many(range(5))
    with connect() as leaver:
        bodies = leaver.queue("jobs").bodies(prefetch=5)
        next(bodies)
        next(bodies)

    eventually(lambda: queue.qsize() == 4, "the client is gone")

    assert queue.stats().acked == 1
    assert deliveries(queue) == {1: 2, 2: 1, 3: 1, 4: 1}
    bodies.close()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"prefetch": 0}, shmq.InvalidOption),
        ({"prefetch": 1 << 21}, shmq.InvalidOption),
        ({"prefetch": "1"}, TypeError),
        ({"timeout": "1"}, TypeError),
        ({"where": "header."}, shmq.InvalidOption),
    ],
)
def test_arguments_are_refused_as_those_of_consume(
    queue: Queue, options: dict[str, Any], error: type[Exception]
) -> None:
    for call in (queue.consume, queue.bodies):
        with pytest.raises(error):
            call(**options)


def test_a_loop_says_what_it_is_and_holds(queue: Queue) -> None:
    queue.put_many([1, 2, 3])
    bodies = queue.bodies(prefetch=3)
    next(bodies)

    assert repr(bodies) == "<Bodies of 'q': 2 leased ahead>"
    bodies.close()
    assert repr(bodies) == "<Bodies of 'q': closed>"


# ---- asyncio ----


def test_tasks_loop_over_bodies(queue: Queue) -> None:
    queue.put_many(range(100))

    async def work() -> list[int]:
        async with queue.abodies(prefetch=7, timeout=SOON) as bodies:
            return [body async for body in bodies]

    assert asyncio.run(work()) == list(range(100))
    assert queue.stats().acked == 100


def test_a_task_that_leaves_its_block_acknowledges_the_body_in_hand(
    queue: Queue, other: Queue
) -> None:
    queue.put_many(range(5))

    async def work() -> None:
        async with queue.abodies(prefetch=5) as bodies:
            async for body in bodies:
                if body == 1:
                    break

    asyncio.run(work())

    assert queue.stats().acked == 2
    assert deliveries(other) == dict.fromkeys(range(2, 5), 1)


def test_a_task_that_fails_or_is_cancelled_returns_the_body_in_hand_counted(
    queue: Queue, other: Queue
) -> None:
    queue.put_many(range(4))

    async def work(error: BaseException) -> None:
        async with queue.abodies(prefetch=5) as bodies:
            await anext(bodies)
            raise error

    async def main() -> None:
        with pytest.raises(Failure):
            await work(Failure())
        with pytest.raises(asyncio.CancelledError):
            await work(asyncio.CancelledError())

    asyncio.run(main())

    assert queue.stats().acked == 0
    assert deliveries(other) == {0: 3, 1: 1, 2: 1, 3: 1}


@pytest.mark.filterwarnings("error")
def test_a_task_that_breaks_without_a_block_returns_the_body_in_hand_counted(
    queue: Queue, other: Queue
) -> None:
    queue.put_many(range(4))

    async def work() -> None:
        async for body in queue.abodies(prefetch=5):
            if body == 1:
                break

    asyncio.run(work())
    gc.collect()

    eventually(lambda: queue.stats().in_flight == 0, "all is back")
    assert deliveries(other) == {1: 2, 2: 1, 3: 1}


def test_a_task_that_is_cancelled_while_it_waits_has_nothing_and_goes_on(queue: Queue) -> None:
    queue.put(1)

    async def work() -> list[int]:
        async with queue.abodies() as bodies:
            got = [await anext(bodies)]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(bodies), SOON)
            queue.put(2)
            return [*got, await anext(bodies)]

    assert asyncio.run(work()) == [1, 2]
    assert queue.stats().acked == 2
