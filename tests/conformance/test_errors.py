"""Bad input of every kind: a clear refusal with the values in it, and nothing half-done."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import shmq
from shmq import Broker, Queue, QueueStats, suggestions
from shmq.api.properties import PROPERTIES

from .tools import LATER, drain

BAD_NAMES: list[Any] = ["", " ", "a b", "a/b", "../a", "é", "a\n", "\x00", "a*", "x" * 101]

#: What a put refuses because it is out of range: the property and its value.
OUT_OF_RANGE: list[tuple[str, Any]] = [
    ("priority", -1),
    ("priority", 3),
    ("priority", 10**9),
    ("delay", -0.5),
    ("delay", 1e10),
    ("delay", math.nan),
    ("delay", math.inf),
    ("deliver_at", math.nan),
    ("deliver_at", math.inf),
    ("ttl", -1),
    ("ttl", 1e10),
    ("ttl", math.nan),
]

#: What a put refuses because it is of the wrong type.
WRONG_TYPE: list[tuple[str, Any]] = [
    ("priority", ["high"]),
    ("priority", 1.0),
    ("delay", "soon"),
    ("deliver_at", "tomorrow"),
    ("deliver_at", dt.timedelta(1)),
    ("deliver_at", dt.date(2100, 1, 1)),
    ("ttl", "1h"),
    ("ttl", dt.datetime(2100, 1, 1, tzinfo=dt.UTC)),
    ("group", b"g"),
    ("dedupe_id", b"id"),
    ("headers", [1, 2]),
    ("headers", "k=v"),
    *((name, 5) for name, row in PROPERTIES.items() if row.kind == "str"),
]

#: Calls that a queue refuses whatever it holds.
BAD_CALLS: dict[str, Callable[[Queue], Any]] = {
    "get timeout -1": lambda queue: queue.get(timeout=-1),
    "get timeout nan": lambda queue: queue.get(timeout=math.nan),
    "get timeout 1000": lambda queue: queue.get(timeout=10**400),
    "aput timeout 1000": lambda queue: asyncio.run(queue.aput(b"x", timeout=10**400)),
    "deliver_at 1000": lambda queue: queue.put(b"x", deliver_at=10**400),
    "deliver_at nan": lambda queue: queue.put(b"x", deliver_at=math.nan),
    "put timeout -1": lambda queue: queue.put(b"x", timeout=-1),
    "put timeout nan": lambda queue: queue.put(b"x", timeout=math.nan),
    "put_many timeout -1": lambda queue: queue.put_many([b"x"], timeout=-1),
    "put_many priority 99": lambda queue: queue.put_many([b"x"], priority=99),
    "put_many delay -1": lambda queue: queue.put_many([b"x"], delay=-1),
    "put_many ttl -1": lambda queue: queue.put_many([b"x"], ttl=-1),
    "get_many max 0": lambda queue: queue.get_many(0),
    "get_many max -1": lambda queue: queue.get_many(-1),
    "get_many timeout -1": lambda queue: queue.get_many(1, timeout=-1),
    "consume prefetch 0": lambda queue: queue.consume(prefetch=0),
    "consume prefetch -1": lambda queue: queue.consume(prefetch=-1),
    "consume timeout -1": lambda queue: queue.consume(timeout=-1),
    "loan size -1": lambda queue: queue.loan(-1),
    "loan priority 99": lambda queue: queue.loan(1, priority=99),
    "peek limit -1": lambda queue: queue.peek(-1),
    "redrive limit -1": lambda queue: queue.redrive(-1),
}

#: Calls with a value of a type that makes no sense.
BAD_TYPES: dict[str, Callable[[Any], Any]] = {
    "get timeout": lambda queue: queue.get(timeout="soon"),
    "put timeout": lambda queue: queue.put(b"x", timeout="soon"),
    "put_many number": lambda queue: queue.put_many(5),
    "put_many None": lambda queue: queue.put_many(None),
    "put_many str": lambda queue: queue.put_many("abc"),
    "put_many bytes": lambda queue: queue.put_many(b"abc"),
    "put_many map": lambda queue: queue.put_many({"a": 1}),
    "get_many max": lambda queue: queue.get_many("3"),
    "get_many float": lambda queue: queue.get_many(1.5),
    "get_many bool": lambda queue: queue.get_many(True),
    "consume prefetch": lambda queue: queue.consume(prefetch="3"),
    "consume float": lambda queue: queue.consume(prefetch=1.5),
    "consume timeout": lambda queue: queue.consume(timeout="soon"),
    "peek limit": lambda queue: queue.peek("all"),
    "peek float": lambda queue: queue.peek(1.5),
    "redrive limit": lambda queue: queue.redrive("all"),
    "put_many priority": lambda queue: queue.put_many([b"x"], priority=["high"]),
    "loan priority": lambda queue: queue.loan(1, priority=["high"]),
    "loan codec": lambda queue: queue.loan(1, codec=0),
    "loan timeout": lambda queue: queue.loan(1, timeout="soon"),
    "loan size": lambda queue: queue.loan("big"),
    "loan float": lambda queue: queue.loan(1.5),
    "ack_many number": lambda queue: queue.ack_many(5),
    "ack_many str": lambda queue: queue.ack_many(["x"]),
    "ack_many None": lambda queue: queue.ack_many([None]),
    "nack receipt": lambda queue: queue.nack("x"),
    "reject receipt": lambda queue: queue.reject(None),
    "extend receipt": lambda queue: queue.extend("x", 1),
    "unknown property": lambda queue: queue.put(b"x", prority=1),
    "unknown loan property": lambda queue: queue.loan(1, prority=1),
    "no body": lambda queue: queue.put(),
}

BAD_SECONDS: list[Any] = [-1, math.nan, math.inf, 1e10, "soon", [1]]


def one_line(error: BaseException) -> str:
    """The error's text, which is one line that says something."""
    text = str(error)
    assert text.strip() and "\n" not in text
    return text


def unchanged(stats: QueueStats) -> dict[str, Any]:
    """Those numbers that a refusal must leave as they are."""
    moving = {"oldest_age", "rate_in", "rate_out"}
    return {key: value for key, value in dataclasses.asdict(stats).items() if key not in moving}


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize("method", ["create_queue", "queue", "ensure_queue", "delete_queue"])
def test_a_name_that_is_not_allowed_is_refused_with_the_rule(
    broker: Broker, method: str, name: str
) -> None:
    with pytest.raises(shmq.InvalidName) as error:
        getattr(broker, method)(name)

    text = one_line(error.value)
    assert repr(name)[:50] in text
    assert "100" in text
    assert broker.list_queues() == []


@pytest.mark.parametrize("name", [None, 5, b"bytes", ["a"]])
@pytest.mark.parametrize("method", ["create_queue", "queue", "ensure_queue", "delete_queue"])
def test_a_name_that_is_no_str_is_refused_with_its_type(
    broker: Broker, method: str, name: Any
) -> None:
    with pytest.raises(TypeError, match=type(name).__name__):
        getattr(broker, method)(name)


@pytest.mark.parametrize(("name", "value"), OUT_OF_RANGE)
def test_a_property_out_of_range_is_refused_and_nothing_is_put(
    queue: Queue, name: str, value: Any
) -> None:
    before = unchanged(queue.stats())

    with pytest.raises(shmq.InvalidOption) as error:
        queue.put(b"x", **{name: value})

    text = one_line(error.value)
    assert name in text and str(value) in text
    assert unchanged(queue.stats()) == before


@pytest.mark.parametrize(("name", "value"), WRONG_TYPE)
def test_a_property_of_the_wrong_type_is_refused_and_nothing_is_put(
    queue: Queue, name: str, value: Any
) -> None:
    before = unchanged(queue.stats())

    with pytest.raises(TypeError) as error:
        queue.put(b"x", **{name: value})

    text = one_line(error.value)
    assert name in text and repr(value) in text and type(value).__name__ in text
    assert unchanged(queue.stats()) == before


def test_a_delay_and_a_time_of_day_exclude_each_other(queue: Queue) -> None:
    with pytest.raises(shmq.InvalidOption, match=r"delay.*deliver_at"):
        queue.put(b"x", delay=1, deliver_at=2e9)

    assert queue.stats().delayed == 0


@pytest.mark.parametrize("call", BAD_CALLS)
def test_a_value_out_of_range_is_refused_before_anything_is_done(queue: Queue, call: str) -> None:
    queue.put(b"there")
    before = unchanged(queue.stats())

    with pytest.raises(shmq.InvalidOption, match=call.rsplit(maxsplit=1)[-1]) as error:
        BAD_CALLS[call](queue)

    one_line(error.value)
    assert unchanged(queue.stats()) == before


@pytest.mark.parametrize("call", BAD_TYPES)
def test_a_value_of_the_wrong_type_is_refused_before_anything_is_done(
    queue: Queue, call: str
) -> None:
    queue.put(b"there")
    before = unchanged(queue.stats())

    with pytest.raises(TypeError) as error:
        BAD_TYPES[call](queue)

    one_line(error.value)
    assert unchanged(queue.stats()) == before


@pytest.mark.parametrize("seconds", BAD_SECONDS)
@pytest.mark.parametrize("method", ["nack", "extend"])
def test_a_message_refuses_seconds_that_are_none_and_stays_leased(
    queue: Queue, method: str, seconds: Any
) -> None:
    queue.put(b"x")
    message = queue.get()

    for settle in (getattr(message, method), lambda s: getattr(queue, method)(message.receipt, s)):
        refusal = shmq.InvalidOption if isinstance(seconds, int | float) else TypeError
        with pytest.raises(refusal) as error:
            settle(seconds)
        assert str(seconds) in one_line(error.value)

    assert not message.settled
    message.ack()


@pytest.mark.parametrize("receipt", [-1, 2**64, 2**100])
def test_a_number_that_cannot_be_a_receipt_is_refused(queue: Queue, receipt: int) -> None:
    queue.put(b"x")
    message = queue.get()

    with pytest.raises((shmq.LeaseExpired, ValueError)) as error:
        queue.reject(receipt)

    one_line(error.value)
    message.ack()


def test_a_batch_with_something_that_is_no_receipt_settles_nothing(queue: Queue) -> None:
    queue.put_many([1, 2])
    messages = queue.get_many(2)
    batch: list[Any] = [messages[0], "no receipt", messages[1]]

    with pytest.raises(TypeError):
        queue.ack_many(batch)

    assert queue.stats().in_flight == 2
    assert queue.ack_many(messages) == []


@pytest.mark.parametrize("size", ["5", 2.0, b"5", True])
def test_a_loan_refuses_a_size_that_is_no_int_and_goes_on(queue: Queue, size: Any) -> None:
    loan = queue.loan(5)
    loan.view[:] = b"hello"

    with pytest.raises(TypeError, match=type(size).__name__):
        loan.commit(size)

    loan.commit(4)
    assert drain(queue) == [b"hell"]


def test_a_loan_refuses_a_size_that_is_not_within_it_and_goes_on(queue: Queue) -> None:
    with queue.loan(5) as view:
        view[:] = b"hello"
    loan = queue.loan(5)

    for size in (-1, 6):
        with pytest.raises(shmq.InvalidOption, match=str(size)):
            loan.commit(size)

    loan.drop()
    assert drain(queue) == [b"hello"]


def test_headers_too_large_for_the_queue_are_refused_at_once(broker: Broker) -> None:
    queue = broker.create_queue("jobs", arena_bytes=64 * 1024)

    with pytest.raises((shmq.MessageTooLarge, shmq.InvalidOption)) as error:
        queue.put(b"x", headers={"big": "x" * 100_000}, block=True)

    one_line(error.value)
    assert queue.empty()


def test_a_refused_put_leaves_the_queue_working(broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=4, max_message_bytes=1000)
    for _ in range(50):
        for bad in (object(), bytes(1001)):
            with pytest.raises((TypeError, shmq.MessageTooLarge)):
                queue.put(bad)
        with pytest.raises(shmq.InvalidOption):
            queue.put(b"x", priority=99)

    assert queue.put_many([1, 2, 3, 4]) == 4
    assert drain(queue) == [1, 2, 3, 4]
    assert queue.stats().arena_used == 0


def test_full_says_how_many_messages_and_bytes_there_are(broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=17)
    queue.put_many(range(17))

    with pytest.raises(shmq.Full) as error:
        queue.put(b"x")

    text = one_line(error.value)
    assert "jobs" in text and "17" in text


def test_full_of_bytes_says_how_many_there_are(broker: Broker) -> None:
    queue = broker.create_queue("jobs", arena_bytes=65_536, max_message_bytes=12_345)
    queue.put_many([bytes(12_345)] * 9)

    with pytest.raises(shmq.Full) as error:
        queue.put(bytes(12_345))

    text = one_line(error.value)
    assert "jobs" in text and "65536" in text.replace(",", "")


def test_empty_names_the_queue_and_the_time_waited(queue: Queue) -> None:
    with pytest.raises(shmq.Empty) as error:
        queue.get(timeout=0.0625)

    text = one_line(error.value)
    assert "'q'" in text and "0.06" in text


def test_too_large_says_what_it_is_and_what_may_be(broker: Broker) -> None:
    queue = broker.create_queue("jobs", max_message_bytes=321)

    with pytest.raises(shmq.MessageTooLarge) as error:
        queue.put(bytes(4567))

    text = one_line(error.value).replace(",", "")
    assert "jobs" in text and "4567" in text and "321" in text and "max_message_bytes" in text


def test_exists_says_both_values_of_each_option_that_differs(broker: Broker) -> None:
    broker.create_queue("jobs", capacity=11, ttl=22.0)

    with pytest.raises(shmq.QueueExists) as error:
        broker.create_queue("jobs", capacity=33, ttl=None)

    text = one_line(error.value)
    assert all(word in text for word in ("jobs", "capacity", "11", "33", "ttl", "22.0", "None"))


def test_no_such_queue_names_it_and_its_namespace(broker: Broker, namespace: str) -> None:
    with pytest.raises(shmq.NoSuchQueue) as error:
        broker.queue("jobs")

    text = one_line(error.value)
    assert "jobs" in text and namespace in text


def test_lease_expired_names_the_queue_and_what_became_of_the_message(queue: Queue) -> None:
    queue.put(b"x")
    message = queue.get()
    message.extend(0)

    with pytest.raises(shmq.LeaseExpired) as error:
        message.ack()

    assert "'q'" in one_line(error.value)


def test_deleted_names_the_queue(broker: Broker) -> None:
    queue = broker.create_queue("jobs")
    broker.delete_queue("jobs")

    with pytest.raises(shmq.QueueDeleted) as error:
        queue.put(b"x")

    assert "jobs" in one_line(error.value)


def test_every_error_is_caught_by_one_class(broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=1, max_message_bytes=10)
    queue.put(b"x", delay=LATER)
    refused: list[Callable[[], Any]] = [
        lambda: queue.put(b"y"),
        queue.get_nowait,
        lambda: queue.put(bytes(11)),
        lambda: queue.nack(1),
        lambda: queue.put(b"y", priority=99),
        lambda: broker.queue("nowhere"),
        lambda: broker.create_queue("jobs", capacity=2),
        lambda: broker.create_queue("a b"),
        lambda: broker.create_queue("other", capacity=0),
    ]

    for call in refused:
        with pytest.raises(shmq.ShmqError):
            call()


@pytest.mark.parametrize(
    ("error", "base"),
    [
        (shmq.NoSuchQueue, LookupError),
        (shmq.MessageTooLarge, ValueError),
        (shmq.InvalidOption, ValueError),
        (shmq.InvalidName, ValueError),
        (shmq.NoSpace, OSError),
        (shmq.IncompatibleSegment, shmq.SegmentError),
        (shmq.DamagedSegment, shmq.SegmentError),
        (shmq.ForeignSegment, shmq.SegmentError),
    ],
)
def test_errors_are_also_what_python_calls_them(
    error: type[Exception], base: type[Exception]
) -> None:
    assert issubclass(error, base)
    assert issubclass(error, shmq.ShmqError)


def test_an_unknown_queue_is_refused_with_the_name_that_was_meant(broker: Broker) -> None:
    broker.create_queue("orders", dead_letter=None)
    for ask in (broker.queue, broker.put_target, broker.delete_queue):
        with pytest.raises(
            shmq.NoSuchQueue, match=r"'ordres' .*: did you mean 'orders'\?"
        ) as error:
            ask("ordres")
        one_line(error.value)


@pytest.mark.refused_by_clusters
@pytest.mark.parametrize(
    ("name", "wanted", "hint"),
    [
        ("clicks", "queue", "a stream has this name: use stream(), or `shmq stream append` and"),
        ("rates", "queue", "a table has this name: use table(), or `shmq table get` and"),
        ("events", "queue", "an exchange has this name: use exchange(), or `shmq publish`."),
        ("nightly", "queue", "a lock has this name: use lock() or semaphore(), or `shmq locks`."),
        ("orders", "stream", "a queue has this name: use queue(), or `shmq produce` and"),
        ("orders", "table", "a queue has this name: use queue(), or `shmq produce` and"),
        ("clicks", "exchange", "a stream has this name"),
    ],
)
def test_a_name_of_another_kind_is_refused_with_that_kind(
    broker: Broker, name: str, wanted: str, hint: str
) -> None:
    broker.create_queue("orders", dead_letter=None)
    broker.create_stream("clicks", 1)
    broker.create_exchange("events", "direct")
    broker.ensure_table("rates")
    with broker.lock("nightly"):
        for ask in (getattr(broker, wanted), getattr(broker, f"delete_{wanted}")):
            with pytest.raises(shmq.NotFound) as error:
                ask(name)
            assert f": {hint}" in str(error.value)
            one_line(error.value)


def test_the_names_are_listed_only_for_a_reader_of_the_error(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_queue("orders", dead_letter=None)
    listed: list[str] = []
    find = suggestions.suggest

    def suggest(name: str, *known: Any) -> str:
        listed.append(name)
        return find(name, *known)

    monkeypatch.setattr(suggestions, "suggest", suggest)
    with pytest.raises(shmq.NoSuchQueue) as error:
        broker.queue("ordres")
    assert not listed
    assert "did you mean 'orders'?" in str(pickle.loads(pickle.dumps(error.value)))
    assert "did you mean 'orders'?" in str(error.value)
    assert listed == ["ordres"]


def test_a_closed_broker_has_completed_the_errors_that_may_be_read(broker: Broker) -> None:
    broker.create_queue("orders", dead_letter=None)
    with pytest.raises(shmq.NoSuchQueue) as error:
        broker.queue("ordres")
    broker.close()
    assert "did you mean 'orders'?" in str(error.value)


def test_an_unknown_stream_is_refused_with_the_name_that_was_meant(broker: Broker) -> None:
    broker.create_stream("clicks", 1)
    for ask in (broker.stream, broker.delete_stream):
        with pytest.raises(shmq.NoSuchStream, match=r"'clikcs' .*: did you mean 'clicks'\?"):
            ask("clikcs")
