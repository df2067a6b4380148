"""What bodies, records and values of tables hold: timestamps, and `default` for other types.

Other levels: unit/codec/test_body_types.py.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import itertools
import pickle
import threading
import uuid
from collections.abc import Callable
from typing import Any

import msgpack
import pytest

import shmq
from shmq import Broker, Queue, Stream

from .conftest import Connect
from .tools import LATER, drain

AWARE = dt.datetime(2026, 3, 1, 12, 30, 0, 123456, dt.timezone(dt.timedelta(hours=2)))
#: A moment after the year 9999.
FAR = msgpack.Timestamp(300_000_000_000, 7)
NAMED = uuid.UUID(int=7)
TEXT = str(NAMED)


@pytest.fixture
def easy(connect: Connect) -> Broker:
    """A broker with a ``default``, of a namespace with queue, stream and exchange."""
    broker = connect(default=shmq.encode_common)
    broker.create_queue("q")
    return broker


def bodies_of(stream: Stream, count: int) -> list[Any]:
    """The bodies of the first records."""
    with stream.reader() as reader:
        return [record.body for record in itertools.islice(reader, count)]


def test_an_aware_datetime_is_the_same_moment_in_utc(queue: Queue) -> None:
    queue.put({"at": AWARE, AWARE: [dt.datetime.min.replace(tzinfo=dt.UTC)]})
    queue.put(AWARE)

    first, second = drain(queue)

    assert first == {"at": AWARE, AWARE: [dt.datetime.min.replace(tzinfo=dt.UTC)]}
    assert (second, second.tzinfo) == (AWARE, dt.UTC)


def test_a_timestamp_that_no_datetime_holds_stays_one(queue: Queue) -> None:
    exact = msgpack.Timestamp(1, 1_999)
    queue.put([FAR, {FAR: [exact]}])
    queue.put(FAR)

    assert drain(queue) == [[FAR, {FAR: [dt.datetime(1970, 1, 1, 0, 0, 1, 1, dt.UTC)]}], FAR]


def test_a_body_that_is_no_timestamp_of_msgpack_is_an_error_of_shmq(queue: Queue) -> None:
    with queue.loan(10, codec="msgpack") as view:
        view[:] = b"\xd7\xff" + b"\xff" * 8

    with queue.get() as message, pytest.raises(shmq.ShmqError, match="not msgpack"):
        _ = message.body


#: Calls that put nothing, with what is wrong.
UNKNOWN: dict[str, tuple[Any, str]] = {
    "naive": ({"at": [AWARE.replace(tzinfo=None)]}, r"body\['at'\]\[0\].*time zone.*default="),
    "uuid": ({"id": NAMED}, r"UUID\('.*'\) of type UUID at body\['id'\].*default=.*typed queue"),
    "set": ({1, 2}, r"type set: .*default="),
    "int": ([2**64], r"18446744073709551616 of type int at body\[0\]: .*64 bits"),
    "key": ({(1, NAMED): 1}, r"type UUID at body \(a key\)\[1\]"),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_another_type_is_refused_with_its_place_and_advice(queue: Queue, what: str) -> None:
    body, why = UNKNOWN[what]
    with pytest.raises(TypeError, match=why):
        queue.put(body)
    with pytest.raises(TypeError, match=why):
        queue.put_many([1, body])
    assert queue.qsize() == 0


def test_headers_hold_plain_values_alone(easy: Broker) -> None:
    for value in (AWARE, NAMED):
        with pytest.raises(TypeError, match=r"at headers\['h'\]: headers hold plain values"):
            easy.queue("q").put(b"x", headers={"h": value})
    assert easy.queue("q").qsize() == 0


#: Every call that encodes a body of a queue.
PUTS: dict[str, Callable[[Queue, Any], object]] = {
    "put": lambda queue, body: queue.put(body),
    "put json": lambda queue, body: queue.put(body, codec="json"),
    "put with properties": lambda queue, body: queue.put(body, headers={"a": 1}, timeout=LATER),
    "put_many": lambda queue, body: queue.put_many([body]),
    "aput": lambda queue, body: asyncio.run(queue.aput(body)),
}


@pytest.mark.parametrize("way", PUTS)
def test_a_default_makes_what_a_put_holds(easy: Broker, way: str) -> None:
    queue = easy.queue("q")
    PUTS[way](queue, [NAMED, {"n": decimal.Decimal("1.50")}])
    assert queue.get().body == [TEXT, {"n": "1.50"}]


def test_a_pipeline_and_an_exchange_use_the_default(easy: Broker) -> None:
    with easy.queue("q").pipeline() as pipe:
        pipe.put(NAMED)
    exchange = easy.create_exchange("x", "fanout")
    easy.create_stream("s", partitions=1)
    exchange.bind("q")
    exchange.bind("s", kind="stream")
    exchange.publish({"id": NAMED})
    exchange.publish_many([NAMED])

    assert drain(easy.queue("q")) == [TEXT, {"id": TEXT}, TEXT]
    assert bodies_of(easy.stream("s"), 2) == [{"id": TEXT}, TEXT]


def test_a_stream_and_its_producers_use_the_default(easy: Broker) -> None:
    stream = easy.create_stream("s", partitions=1)
    stream.append(NAMED)
    stream.append_many([b"plain", {"id": NAMED}, AWARE])
    with stream.producer() as producer:
        producer.send([NAMED])

    assert bodies_of(stream, 5) == [TEXT, b"plain", {"id": TEXT}, AWARE, [TEXT]]


def test_a_request_and_its_reply_use_the_default(connect: Connect, easy: Broker) -> None:
    server, stop = connect(default=shmq.encode_common), threading.Event()
    serving = threading.Thread(
        target=lambda: server.serve("q", lambda message: {"reply": NAMED}, stop=stop)
    )
    serving.start()
    try:
        assert easy.request("q", NAMED, LATER).body == {"reply": TEXT}
    finally:
        stop.set()
        serving.join()


def test_a_table_uses_the_default(easy: Broker) -> None:
    table = easy.ensure_table("t")
    table.set("a", NAMED)
    table.set_many({"b": AWARE, "c": [NAMED]})
    table.add("d", {"id": NAMED})

    assert table.get_many(["a", "b", "c", "d"]) == {
        "a": TEXT, "b": AWARE, "c": [TEXT], "d": {"id": TEXT},
    }  # fmt: skip


@pytest.mark.only_local("a transaction is of one host")
def test_a_transaction_uses_the_default(easy: Broker) -> None:
    easy.create_stream("s", partitions=1)
    with easy.transaction() as transaction:
        transaction.put("q", NAMED)
        transaction.append("s", {"id": NAMED})

    assert easy.queue("q").get().body == TEXT
    assert bodies_of(easy.stream("s"), 1) == [{"id": TEXT}]


def test_a_pickled_broker_and_handle_keep_the_default(easy: Broker) -> None:
    with pickle.loads(pickle.dumps(easy)) as broker, broker.queue("q") as queue:
        queue.put(NAMED)
    with pickle.loads(pickle.dumps(easy.queue("q"))) as again:
        again.put(NAMED)
    assert drain(easy.queue("q")) == [TEXT, TEXT]


def _raise(_: object) -> Any:
    raise KeyError("no such type")


def _recurse(value: object) -> Any:
    return _recurse(value)


#: Hooks that are of no use, and what the error says.
BAD: dict[str, tuple[Callable[[Any], Any], str]] = {
    "the same": (lambda value: value, r"default= returned UUID\(.*not a plain value"),
    "unknown": (lambda _: object(), r"default= returned <object"),
    "nested": (lambda value: [value], "recursion limit"),
    "raises": (_raise, r"type UUID at body\[1\]: default= failed with KeyError: 'no such type'"),
    "recurses": (_recurse, "default= failed with RecursionError"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_default_that_fails_puts_nothing(connect: Connect, queue: Queue, kind: str) -> None:
    default, why = BAD[kind]
    broker = connect(default=default)
    near = broker.queue("q")
    with pytest.raises(TypeError, match=why):
        near.put([1, NAMED])
    with pytest.raises(TypeError):
        near.put_many([b"first", NAMED])
    assert queue.qsize() == 0
    with broker.create_stream("s", partitions=2) as stream:
        with pytest.raises(TypeError):
            stream.append_many([b"x" * 100_000] * 100 + [NAMED], keys=["a", "b"] * 50 + ["c"])
        assert all(one.latest == 0 for one in stream.offsets())


def test_a_default_that_cannot_be_called_is_refused(connect: Connect) -> None:
    with pytest.raises(TypeError, match=r"default='str' must be called"):
        connect(default="str")
