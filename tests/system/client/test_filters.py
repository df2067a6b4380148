"""Filters compiled and run in the core: compared with the expressions they are made of."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shmq
from shmq.client.local.broker import LocalBroker
from shmq.client.local.queue import LocalQueue
from shmq.model.expression.compiler import compile_filter
from shmq.model.expression.parse import Where, quoted
from shmq.native import _core
from tests.support.loops import Loop

KEYS = ("a", "b", "ü")
TEXTS = st.text("ab%'ü", max_size=4)
NUMBERS = (
    st.integers(-3, 3)
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.sampled_from([2**53, 2**53 + 1, 2.0**53, 0.5, -0.0, 1e300, float("nan"), float("inf")])
    | st.floats(width=32)
)
VALUES = st.none() | st.booleans() | NUMBERS | TEXTS | st.binary(max_size=2) | st.just([1])
HEADERS = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=3)


def constants() -> st.SearchStrategy[str]:
    numbers = st.integers(-(10**18) + 1, 10**18 - 1) | st.integers(-3, 3)
    reals = st.integers(-99, 99).map(lambda number: f"{number / 4:.2f}")
    return st.sampled_from(["true", "false"]) | numbers.map(str) | reals | TEXTS.map(quoted)


def comparisons() -> st.SearchStrategy[str]:
    header = st.sampled_from(KEYS).map(lambda key: f"header.{quoted(key)}")
    ordered = st.tuples(header, st.sampled_from(["<", "<=", ">", ">="]), constants())
    equal = st.tuples(header, st.sampled_from(["=", "!="]), constants() | st.just("null"))
    like = st.tuples(header, st.sampled_from(["like", "not like"]), TEXTS.map(quoted))
    among = st.tuples(
        header,
        st.sampled_from(["in", "not in"]),
        st.lists(constants(), min_size=1, max_size=3).map(lambda found: f"({', '.join(found)})"),
    )
    return (ordered | equal | like | among).map(" ".join)


EXPRESSIONS = st.recursive(
    comparisons(),
    lambda inner: (
        inner.map(lambda each: f"not ({each})")
        | st.tuples(inner, st.sampled_from([" and ", " or "]), inner).map(
            lambda parts: f"({parts[0]}){parts[1]}{parts[2]}"
        )
    ),
    max_leaves=6,
)


class Copy:
    """What an expression asks of a message, made of its headers."""

    dead = None

    def __init__(self, headers: dict[str, Any]) -> None:
        self.headers = msgpack.unpackb(msgpack.packb(headers))


@pytest.fixture
def queue(namespace: str) -> Iterator[LocalQueue]:
    with LocalBroker(namespace) as broker:
        yield broker.create_queue("q")


@pytest.mark.prove
@given(HEADERS, EXPRESSIONS)
@settings(max_examples=400)
def test_a_filter_means_what_its_expression_does(headers: dict[str, Any], where: str) -> None:
    meant = Where(where).matches(Copy(headers))  # type: ignore[arg-type]

    properties = msgpack.packb({"corr": "x", "headers": headers, "own": [1, {"headers": 2}]})

    assert compile_filter(where).matches(properties) == meant


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_a_program_of_any_bytes_is_refused_or_runs(code: bytes, properties: bytes) -> None:
    try:
        found = _core.Filter(code)
    except ValueError as error:
        assert f"{len(code)} bytes" in str(error)
    else:
        assert found.matches(properties) in (True, False)


def test_an_expression_as_deep_and_as_long_as_may_be_is_run() -> None:
    deep = "size = 0"
    for _ in range(48):
        deep = f"size = 1 or size = 0 and ({deep})"
    assert compile_filter(deep).matches(b"")
    long = "header.k in (" + ", ".join(f"'{number}'" for number in range(5000)) + ")"
    assert compile_filter(long).matches(msgpack.packb({"headers": {"k": "4999"}}))
    assert not compile_filter(long).matches(msgpack.packb({"headers": {"k": "5000"}}))


def test_a_search_through_many_lets_others_work_and_finds_the_first(namespace: str) -> None:
    with LocalBroker(namespace) as broker:
        queue = broker.create_queue("long", capacity=20_000)
        queue.put_many([b""] * 15_000, headers={"n": 1})
        queue.put(b"first", headers={"n": 2})
        queue.put(b"second", headers={"n": 2})

        assert queue.get(False, where="header.n = 2").body == b"first"
        assert [each.body for each in queue.get_many(3, where="header.n = 2")] == [b"second"]
        assert queue.qsize() == 15_000
        queue.check()


def test_filtered_waits_for_other_messages_cost_no_consumer_its_turn(queue: LocalQueue) -> None:
    """Each message is meant by one of eight threads, and waited for by all."""
    found: list[tuple[int, int]] = []

    def work(mine: int) -> None:
        with shmq.connect(queue.namespace.name) as broker:
            own = broker.queue("q")
            for _ in range(20):
                message = own.get(timeout=30, where=f"header.n = {mine}")
                found.append((mine, message.headers["n"]))
                message.ack()

    threads = [threading.Thread(target=work, args=(mine,)) for mine in range(8)]
    for thread in threads:
        thread.start()
    for number in range(160):
        queue.put(b"", headers={"n": number * 3 % 8})
    for thread in threads:
        thread.join()

    assert len(found) == 160
    assert all(mine == number for mine, number in found)
    assert queue.qsize() == queue.stats().in_flight == 0
    queue.check()


def test_a_wait_leaves_nothing_armed(queue: LocalQueue) -> None:
    queue.put(b"x")
    with pytest.raises(shmq.Empty):
        queue.get(timeout=0.01, where="size = 9")
    assert queue.stats().waiting_get == 0


def test_a_task_that_is_cancelled_has_taken_nothing(queue: LocalQueue, run: Loop) -> None:
    async def work() -> None:
        task = asyncio.ensure_future(queue.aget(where="header.n = 1"))
        await asyncio.sleep(0)
        queue.put(b"x", headers={"n": 1})
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await queue.aget(30, where="header.n = 1")).body == b"x"

    run(work())


def test_a_hundred_tasks_each_get_what_they_mean(queue: LocalQueue, run: Loop) -> None:
    async def work() -> None:
        tasks = [
            asyncio.ensure_future(queue.aget(30, where=f"header.n = {number}"))
            for number in range(100)
        ]
        plain = asyncio.ensure_future(queue.aget(30))
        await asyncio.sleep(0)
        await queue.aput(b"", headers={"n": -1})
        assert (await plain).headers == {"n": -1}
        for number in reversed(range(100)):
            await queue.aput(b"", headers={"n": number})
        found = await asyncio.gather(*tasks)
        assert [message.headers["n"] for message in found] == list(range(100))

    run(work())


def test_a_consumer_with_a_filter_gives_back_what_it_did_not_hand_out(queue: LocalQueue) -> None:
    for number in range(8):
        queue.put(b"", headers={"n": number % 2})
    messages = queue.consume(64, where="header.n = 1")
    next(messages).ack()
    assert queue.stats().in_flight == 4

    messages.close()

    stats = queue.stats()
    assert (stats.in_flight, stats.depth, stats.redelivered) == (0, 7, 0)
