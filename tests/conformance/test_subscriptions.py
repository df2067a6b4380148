"""Subscriptions: patterns of keys, history, many cursors, and subscribers that are too slow."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

import shmq
from shmq import Broker, Record, Stream

from .conftest import Connect
from .tools import PATIENCE, SOON, in_thread, outcome


@pytest.fixture
def stream(broker: Broker) -> Stream:
    """A stream of four partitions."""
    return broker.create_stream("events", 4)


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


@pytest.mark.only_local("a stream is held back on its own host alone")
def test_one_that_blocks_holds_back_who_appends_until_it_goes_on(broker: Broker) -> None:
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


@pytest.mark.only_local("a stream is held back on its own host alone")
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


def test_a_position_goes_on_behind_what_was_read(stream: Stream) -> None:
    publish(stream, "a")
    with stream.subscribe("#") as subscription:
        before = subscription.position
        publish(stream, "a", "a")
        subscription.poll(PATIENCE)
        assert sum(subscription.position.values()) == sum(before.values()) + 2
