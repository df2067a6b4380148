"""Subscriptions: patterns of keys, history, many cursors, and subscribers that are too slow.

Other levels: system/processes/test_subscriptions.py.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterable
from typing import Any

import pytest

import shmq
from shmq import Broker, Record, Stream
from tests.support.waiting import PATIENCE, eventually

from .conftest import Connect
from .tools import SOON, in_thread, outcome


@pytest.fixture
def stream(broker: Broker) -> Stream:
    """A stream of four partitions."""
    return broker.create_stream("events", 4)


#: More records than any of these streams has room for.
ENDLESS = 200


def publish(stream: Stream, *keys: str) -> None:
    for key in keys:
        stream.append(key, key=key)


def keys(records: Iterable[Record]) -> list[str]:
    return [(record.key or b"").decode() for record in records]


def test_a_subscriber_gets_what_matches_from_now_on(stream: Stream) -> None:
    publish(stream, "orders.eu.created")
    with stream.subscribe("orders.*.created", timeout=SOON) as subscription:
        publish(stream, "orders.us.created", "orders.us.paid", "orders.created", "mails.us.created")
        publish(stream, "orders.us.created")

        assert keys(subscription) == ["orders.us.created"] * 2
    assert (subscription.pattern, subscription.policy) == ("orders.*.created", "drop-oldest")
    assert subscription.lost == 0


def test_every_subscriber_gets_everything_in_the_order_of_each_key(
    connect: Connect, stream: Stream
) -> None:
    subscriptions = [connect().subscribe("events", "#", timeout=PATIENCE) for _ in range(3)]
    for n in range(50):
        stream.append(n, key=f"key.{n % 7}")

    for subscription in subscriptions:
        got: dict[bytes | None, list[int]] = {}
        for _ in range(50):
            record = next(subscription)
            got.setdefault(record.key, []).append(record.body)
        assert sorted(n for some in got.values() for n in some) == list(range(50))
        assert all(some == sorted(some) for some in got.values())


def test_a_late_one_gets_the_newest_that_match_first(stream: Stream) -> None:
    for n in range(300):
        stream.append(n, key=f"orders.{n % 11}")
        stream.append(-n, key="noise")

    with stream.subscribe("orders.*", 100, timeout=SOON) as subscription:
        stream.append(300, key="orders.x")
        assert [record.body for record in subscription] == [*range(200, 300), 300]


@pytest.mark.parametrize(("history", "expected"), [(None, 5), (3, 3), (99, 5), (0, 0)])
def test_a_history_is_as_long_as_is_asked_for_and_there(
    stream: Stream, history: int | None, expected: int
) -> None:
    publish(stream, *(f"a.{n}" for n in range(5)), "b")

    with stream.subscribe("a.#", history) as subscription:
        assert len(subscription.poll()) == expected
        assert subscription.poll() == []


def test_a_history_of_nothing_that_matches_is_empty(stream: Stream) -> None:
    publish(stream, *["noise"] * 500)

    with stream.subscribe("a", 10) as subscription:
        assert subscription.poll() == []


def test_a_record_without_a_key_has_no_word(stream: Stream) -> None:
    with stream.subscribe("#", timeout=SOON) as everything, stream.subscribe("*") as words:
        stream.append(b"x")

        assert [record.value for record in everything] == [b"x"]
        assert words.poll() == []


def test_a_subscriber_waits_for_what_matches(connect: Connect, stream: Stream) -> None:
    subscription = connect().subscribe("events", "a.*", timeout=PATIENCE)
    waiting = in_thread(next, subscription)

    publish(stream, "b", "a.b.c", "a.b")

    assert outcome(waiting).key == b"a.b"


def test_a_slow_one_loses_the_oldest_and_is_told(broker: Broker) -> None:
    stream = broker.create_stream("small", 1, ring_bytes=64 << 10)
    told: list[int] = []
    with stream.subscribe("#", timeout=SOON, on_lost=told.append) as subscription:
        for _ in range(500):
            stream.append(bytes(1000), key="k")

        records = list(subscription)

    assert subscription.lost == sum(told) == 500 - len(records) > 0
    assert [record.offset for record in records] == list(range(500 - len(records), 500))


def test_one_that_blocks_holds_back_appends_until_it_goes_on(broker: Broker) -> None:
    stream = broker.create_stream("small", 1, ring_bytes=64 << 10, overflow="block")
    subscription = stream.subscribe("#", policy="block", timeout=PATIENCE)
    appended = 0
    with pytest.raises(shmq.Full):
        while True:
            stream.append(bytes(1000), key="k", block=False)
            appended += 1

    waiting = in_thread(stream.append, bytes(1000), key="k", block=True, timeout=PATIENCE)
    offsets = [next(subscription).offset for _ in range(appended + 1)]

    assert outcome(waiting).offset == appended
    assert offsets == list(range(appended + 1))
    assert subscription.lost == 0
    subscription.close()
    for _ in range(200):
        stream.append(bytes(1000), key="k", block=False)


def test_one_that_blocks_lets_go_of_what_it_has_handed_out_and_not_of_more(broker: Broker) -> None:
    stream = broker.create_stream("small", 1, ring_bytes=64 << 10, overflow="block")
    with stream.subscribe("#", policy="block", timeout=PATIENCE, limit=5) as subscription:
        filled = fill(stream)
        assert len(subscription.poll(PATIENCE)) == 5
        with pytest.raises(shmq.Full):  # these five are in its hands
            stream.append(bytes(1000), key="k", block=False)

        assert len(subscription.poll(PATIENCE)) == 5
        assert 1 <= fill(stream) <= 6
        assert subscription.position == {0: 10}
        assert (subscription.lost, filled > 20) == (0, True)


def fill(stream: Stream) -> int:
    """Append while there is room; returns how many: ENDLESS where no reader holds back."""
    for count in range(ENDLESS):
        try:
            stream.append(bytes(1000), key="k", block=False)
        except shmq.Full:
            return count
    return ENDLESS


def test_one_that_blocks_keeps_all_that_there_is_from_its_beginning(broker: Broker) -> None:
    stream = broker.create_stream("small", 2, ring_bytes=64 << 10, overflow="block")
    for n in range(200):
        stream.append(bytes(1000), partition=n % 2, block=False)
    earliest = [each.earliest for each in stream.offsets()]
    with stream.subscribe("#", None, policy="block", timeout=SOON) as subscription:
        with pytest.raises(shmq.Full):
            for _ in range(200):
                stream.append(bytes(1000), partition=1, block=False)
        ends = [each.latest for each in stream.offsets()]

        found = [(record.partition, record.offset) for record in subscription]

        assert min(earliest) > 0
        assert found[0][1] == earliest[found[0][0]]
        expected = [(p, at) for p in (0, 1) for at in range(earliest[p], ends[p])]
        assert sorted(found) == expected
        assert subscription.lost == 0


def test_the_slowest_of_those_that_block_holds_back(connect: Connect, broker: Broker) -> None:
    stream = broker.create_stream("small", 1, ring_bytes=64 << 10, overflow="block")
    quick, slow = (
        connect().subscribe("small", policy="block", timeout=PATIENCE, limit=4) for _ in range(2)
    )
    filled = fill(stream)
    for _ in range(filled):
        next(quick)
    assert fill(stream) == 0

    slow.close()

    assert fill(stream) > 0


def test_two_subscriptions_of_one_handle_hold_back_each_for_itself(broker: Broker) -> None:
    stream = broker.create_stream("small", 1, ring_bytes=64 << 10, overflow="block")
    one = stream.subscribe(policy="block")
    two = stream.subscribe(policy="block")
    filled = fill(stream)
    one.close()
    assert fill(stream) == 0

    assert len(two.poll(PATIENCE)) == filled
    assert two.poll(SOON) == []

    assert fill(stream) > 0


def test_a_forgotten_subscription_holds_back_no_append(connect: Connect, broker: Broker) -> None:
    stream = broker.create_stream("small", 1, ring_bytes=64 << 10, overflow="block")
    theirs = connect().stream("small")
    subscription = theirs.subscribe(policy="block")
    assert fill(stream) < ENDLESS

    del subscription
    gc.collect()

    eventually(lambda: fill(stream) == ENDLESS, "no reader holds it back")


def test_a_subscription_of_a_closed_handle_can_still_be_closed(broker: Broker) -> None:
    stream = broker.create_stream("small", 1, ring_bytes=64 << 10, overflow="block")
    other = broker.stream("small")
    subscription = other.subscribe(policy="block")
    assert fill(stream) < ENDLESS

    other.close()
    subscription.close()

    eventually(lambda: fill(stream) == ENDLESS, "no reader holds it back")


def test_one_that_blocks_goes_on_with_partitions_that_come(broker: Broker) -> None:
    stream = broker.create_stream("small", 1, ring_bytes=64 << 10, overflow="block")
    with stream.subscribe(policy="block", timeout=PATIENCE) as subscription:
        stream.append(b"0", partition=0)
        stream.repartition(2)
        assert next(subscription).partition == 0
        stream.append(b"1", partition=1)
        stream.append(b"2", partition=2)
        assert sorted(next(subscription).partition for _ in range(2)) == [1, 2]
        with pytest.raises(shmq.Full):
            for _ in range(200):
                stream.append(bytes(1000), partition=2, block=False)


def test_what_was_lost_of_one_partition_is_not_taken_for_that_of_another(broker: Broker) -> None:
    stream = broker.create_stream("small", 2, ring_bytes=64 << 10)
    with stream.subscribe(timeout=SOON) as subscription:
        stream.append(b"kept", partition=0)
        for _ in range(200):
            stream.append(bytes(1000), partition=1)

        found = [record.partition for record in subscription]

    assert found.count(0) == 1
    assert subscription.lost == 200 - found.count(1) > 0


def test_only_a_stream_that_blocks_can_be_held_back(stream: Stream) -> None:
    with pytest.raises(shmq.InvalidOption, match="overflow"):
        stream.subscribe("#", policy="block")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"pattern": "a*"}, shmq.InvalidOption),
        ({"pattern": 1}, TypeError),
        ({"history": -1}, shmq.InvalidOption),
        ({"history": "all"}, TypeError),
        ({"policy": "never"}, shmq.InvalidOption),
        ({"timeout": -1}, shmq.InvalidOption),
        ({"limit": 0}, shmq.InvalidOption),
    ],
)
def test_what_makes_no_sense_is_refused(
    stream: Stream, arguments: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        stream.subscribe(**arguments)  # type: ignore[arg-type]


def test_a_closed_one_ends(stream: Stream) -> None:
    subscription = stream.subscribe("#", history=10)
    publish(stream, "a")
    subscription.close()
    subscription.close()

    assert list(subscription) == []
    with pytest.raises(shmq.ShmqError, match="subscription is closed"):
        subscription.poll()


def test_a_closed_subscription_that_is_polled_holds_back_no_append(broker: Broker) -> None:
    stream = broker.create_stream("small", 1, ring_bytes=64 << 10, overflow="block")
    subscription = stream.subscribe(policy="block")
    subscription.close()

    for _ in range(2):
        with pytest.raises(shmq.ShmqError, match="subscription is closed"):
            subscription.poll()

    eventually(lambda: fill(stream) == ENDLESS, "no reader holds it back")


def test_a_position_goes_on_behind_what_was_read(stream: Stream) -> None:
    publish(stream, "a")
    with stream.subscribe("#") as subscription:
        before = subscription.position
        publish(stream, "a", "a")
        subscription.poll(PATIENCE)
        assert sum(subscription.position.values()) == sum(before.values()) + 2


# --- asyncio ---------------------------------------------------------------------------


def test_a_task_gets_what_matches_from_its_block_on(connect: Connect, stream: Stream) -> None:
    async def main() -> list[str]:
        subscription = connect().asubscribe("events", "orders.#", timeout=SOON)
        publish(stream, "orders.early")
        assert (subscription.position, subscription.lost) == ({}, 0)
        async with subscription:
            publish(stream, "orders.us", "mails.us", "orders.us")
            return keys([record async for record in subscription])

    assert asyncio.run(main()) == ["orders.us"] * 2


def test_a_task_gets_the_history_and_then_waits(stream: Stream) -> None:
    publish(stream, "orders.1", "mails.1", "orders.2", "orders.3")

    async def main() -> list[str]:
        subscription = stream.asubscribe("orders.*", 2, timeout=PATIENCE)
        found = [await anext(subscription), await anext(subscription)]
        waits = asyncio.create_task(anext(subscription))
        await asyncio.sleep(SOON)
        publish(stream, "mails.2", "orders.4")
        found.append(await waits)
        await subscription.aclose()
        assert [record async for record in subscription] == []
        return keys(found)

    assert asyncio.run(main()) == ["orders.2", "orders.3", "orders.4"]


def test_a_task_that_is_cancelled_loses_no_record(stream: Stream) -> None:
    async def append() -> None:
        for number in range(100):
            stream.append(number, key="k", partition=0)
            await asyncio.sleep(0.001)

    async def main() -> list[Any]:
        found: list[Any] = []
        async with stream.asubscribe("k") as subscription:
            appends = asyncio.create_task(append())
            while len(found) < 100:
                step = asyncio.ensure_future(anext(subscription))
                await asyncio.wait([step], timeout=0.0005)
                step.cancel()
                await asyncio.wait([step])
                if not step.cancelled():
                    found.append(step.result().body)
            await appends
        return found

    assert asyncio.run(main()) == list(range(100))


def test_a_task_that_blocks_holds_back_appends_until_it_closes(broker: Broker) -> None:
    stream = broker.create_stream("s", 1, ring_bytes=64 << 10, overflow="block")

    async def main() -> int:
        async with broker.asubscribe("s", policy="block", timeout=SOON) as subscription:
            with pytest.raises(shmq.Full):
                for _ in range(ENDLESS):
                    stream.append(b"x" * 1000, block=False)
            read = len([record async for record in subscription])
        for _ in range(ENDLESS):
            stream.append(b"x" * 1000, block=False)
        return read

    assert 0 < asyncio.run(main()) < ENDLESS


def test_a_task_that_subscribes_gets_the_errors_of_a_subscription(
    broker: Broker, connect: Connect, stream: Stream
) -> None:
    async def main() -> None:
        with pytest.raises(shmq.NoSuchStream):
            await anext(broker.asubscribe("absent"))
        waits = asyncio.create_task(anext(stream.asubscribe()))
        await asyncio.sleep(SOON)
        connect().delete_stream("events")
        with pytest.raises(shmq.StreamDeleted):
            await waits

    for wrong in ({"timeout": -1.0}, {"timeout": float("nan")}, {"limit": 0}, {"history": -1}):
        with pytest.raises(shmq.InvalidOption):
            broker.asubscribe("events", **wrong)
    with pytest.raises(shmq.InvalidName):
        broker.asubscribe("no such name")
    asyncio.run(main())


def test_a_task_that_waits_for_a_record_gets_the_error_of_a_closed_broker(
    connect: Connect, stream: Stream
) -> None:
    async def main() -> None:
        broker = connect()
        async with broker.asubscribe("events") as subscription:
            waits = asyncio.create_task(anext(subscription))
            await asyncio.sleep(SOON)
            broker.close()
            with pytest.raises(shmq.ShmqError, match="closed"):
                await waits

    asyncio.run(main())
