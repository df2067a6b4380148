"""The range of values, sizes, names and times of kombu's messages, in memory and over TCP."""

from __future__ import annotations

import contextlib
import datetime as dt
import time
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

import shmq
from tests.support.waiting import PATIENCE, eventually

pytest.importorskip("celery", reason="the package celery (the extra 'celery') is not installed")

from kombu import Connection, Exchange, Producer, Queue
from kombu.exceptions import EncodeError

import shmq.extras.celery

QUEUE = Queue("values")
#: 255 bytes, the most that AMQP allows.
LONG = "订单处理 @/:" * 15 + "x" * 15


@pytest.fixture
def connection(target: str) -> Iterator[Any]:
    """A connection of kombu to the namespace, in memory and over TCP."""
    url = target if "://" in target else f"shmq:///{target}"
    with Connection(url) as connection:
        yield connection


def sent(connection: Any, body: Any, **properties: Any) -> Any:
    """The message after its way through the queue."""
    publish(connection, body, **properties)
    message = QUEUE(connection.default_channel).get(
        accept=["json", "pickle", "msgpack", "yaml"], no_ack=True
    )
    assert message is not None
    return message


def publish(connection: Any, body: Any, queue: Any = QUEUE, **properties: Any) -> None:
    with Producer(connection) as producer:
        producer.publish(body, routing_key=queue.name, declare=[queue], **properties)


class Point:
    """A class of the application."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point)

    __hash__ = None  # type: ignore[assignment]


AT = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
JSON = [2**70, -(2**70), float("inf"), "\ud800", b"\xff\x00", Decimal("0.10"), AT, uuid.UUID(int=7)]


@pytest.mark.parametrize("value", JSON, ids=ascii)
def test_a_body_or_header_of_json_arrives(connection: Any, value: Any) -> None:
    message = sent(connection, [value], serializer="json", headers={"h": [value], "plain": 1})

    assert message.decode() == [value]
    assert message.headers == {"h": [value], "plain": 1}


@pytest.mark.parametrize("value", [*JSON, {1, 2}, Point(), 1j], ids=ascii)
def test_a_body_of_pickle_arrives(connection: Any, value: Any) -> None:
    assert sent(connection, value, serializer="pickle").decode() == value


def test_nan_arrives(connection: Any) -> None:
    for serializer in ("json", "msgpack", "pickle", "yaml"):
        found = sent(connection, float("nan"), serializer=serializer, headers={"h": float("nan")})
        assert found.decode() != found.decode()
        assert found.headers["h"] != found.headers["h"]


@pytest.mark.parametrize("value", [2**70, "\ud800", Decimal(1), {1}, Point()], ids=ascii)
def test_what_a_serializer_cannot_hold_is_an_error_of_the_publish(
    connection: Any, value: Any
) -> None:
    with pytest.raises(EncodeError):
        publish(connection, value, serializer="msgpack")


@pytest.mark.parametrize("value", [{1}, Point()], ids=["set", "class"])
def test_a_header_that_nothing_can_hold_is_an_error_with_its_name(
    connection: Any, value: Any
) -> None:
    with pytest.raises(EncodeError, match=r"header 'tags' must be .* not (set|Point)"):
        publish(connection, 1, headers={"tags": value})


@pytest.mark.parametrize("value", [1, AT, {"properties": "x", "json": "[[], []]"}], ids=str)
def test_a_header_may_have_the_name_of_the_envelope(connection: Any, value: Any) -> None:
    headers = {"kombu": value, "other": 1, "at": AT}
    found = sent(connection, 1, headers=headers, correlation_id="c")

    assert found.headers == headers
    assert found.properties["correlation_id"] == "c"


def test_headers_that_msgpack_holds_route_beside_one_that_it_does_not(connection: Any) -> None:
    exchange = Exchange("by-headers", "headers")
    queue = Queue("values", exchange, binding_arguments={"kind": "a"})
    with Producer(connection, exchange) as producer:
        producer.publish(1, declare=[queue], headers={"kind": "a", "at": AT, "kombu": 1})

    found = queue(connection.default_channel).get(no_ack=True)
    assert found.headers == {"kind": "a", "at": AT, "kombu": 1}


@pytest.mark.parametrize("name", ["订单处理" * 3, LONG, "x" * 97, "x" * 255], ids=len)
def test_names_of_255_bytes_of_any_text_are_found_again(
    connection: Any, namespace: str, name: str
) -> None:
    assert len(name.encode()) <= 255
    queue = Queue(name, Exchange(name, "direct"), routing_key=name)
    with Producer(connection) as producer:
        producer.publish(1, exchange=queue.exchange, routing_key=name, declare=[queue])
        producer.publish(2, routing_key=name)
    bound = queue(connection.default_channel)

    first, second = bound.get(no_ack=True), bound.get()
    assert (first.decode(), second.decode()) == (1, 2)
    assert first.delivery_info["routing_key"] == first.delivery_info["exchange"] == name
    second.reject()
    (dead,) = shmq.connect(namespace).queue(shmq.escape_name(f"{name}.dlq")).peek()
    assert dead.dead is not None
    channel = connection.default_channel
    assert channel.get_exchanges() == [name]
    assert channel.get_table(name) == [(name, None, name)]
    assert list(channel.list_bindings()) == [(name, name, name)]
    assert bound.purge() == 0
    bound.delete()


@pytest.mark.parametrize("name", ["\ud800", "x" * 1025], ids=["surrogate", "long"])
def test_what_no_queue_can_be_named_is_an_error_at_once(connection: Any, name: str) -> None:
    with pytest.raises(shmq.InvalidName, match="invalid queue name"):
        Queue(name)(connection.default_channel).declare()
    with pytest.raises(EncodeError, match="invalid queue name"), Producer(connection) as producer:
        producer.publish(1, routing_key=name)


@pytest.mark.parametrize("key", ["x" * 256, "\ud800"], ids=["long", "surrogate"])
def test_a_routing_key_that_amqp_has_not_is_an_error_of_the_publish(
    connection: Any, key: str
) -> None:
    exchange = Exchange("direct", "direct")
    with pytest.raises(EncodeError, match="key="), Producer(connection, exchange) as producer:
        producer.publish(1, routing_key=key)


def test_a_body_that_is_too_large_is_an_error_at_once(connection: Any, target: str) -> None:
    connection.transport_options["arena_bytes"] = 128 << 20
    most = 16 << 20 if "://" in target else 32 << 20
    for size in (most // 2, most + 1):
        with contextlib.ExitStack() as stack:
            if size > most:
                stack.enter_context(pytest.raises(EncodeError, match="bytes"))
            assert len(sent(connection, "x" * size).body) == size


@pytest.mark.parametrize(
    ("priority", "level"),
    [(None, 0), (-1, 0), (-(2**70), 0), (0, 0), (9, 9), (10, 9), (2**70, 9), ("7", 7), ("x", 0)],
)
def test_a_priority_of_no_level_is_the_nearest_one(
    connection: Any, namespace: str, priority: Any, level: int
) -> None:
    publish(connection, 1, priority=priority)
    (found,) = shmq.connect(namespace).queue("values").peek()
    assert found.priority == level


def test_a_message_that_expires_at_once_is_never_delivered(connection: Any) -> None:
    publish(connection, 1, expiration=0)
    queue = QUEUE(connection.default_channel)
    eventually(lambda: connection.default_channel._size("values") == 0, "it has expired")
    assert queue.get() is None


@pytest.mark.parametrize("seconds", [-1, -0.001, -1e9])
def test_a_negative_expiration_is_an_error_of_the_publish(connection: Any, seconds: float) -> None:
    with pytest.raises(EncodeError, match="expiration must be 0 or more, not -"):
        publish(connection, 1, expiration=seconds)


@pytest.mark.parametrize(
    "given",
    [{"expires": 0}, {"expires": -1}, {"message_ttl": -1}, {"max_length": 0}, {"max_length": -1}],
    ids=str,
)
def test_a_queue_with_an_impossible_limit_is_an_error_at_once(connection: Any, given: Any) -> None:
    with pytest.raises(shmq.InvalidOption, match=r"-1|0"):
        Queue("limited", **given)(connection.default_channel).declare()


def test_a_queue_without_time_for_its_messages_drops_them(connection: Any) -> None:
    queue = Queue("values", message_ttl=0)
    publish(connection, 1, queue)
    eventually(lambda: connection.default_channel._size("values") == 0, "it has expired")


@pytest.mark.parametrize("timeout", [0, -1])
def test_a_drain_without_time_ends_at_once(connection: Any, timeout: float) -> None:
    begun = time.monotonic()
    with connection.Consumer(QUEUE), pytest.raises(TimeoutError):
        connection.drain_events(timeout=timeout)
    assert time.monotonic() - begun < PATIENCE
