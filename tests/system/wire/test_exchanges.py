"""EXCHANGE, ROUTE and EXCHANGES, byte by byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.system.wire import frames
from tests.system.wire.client import Wire
from tests.system.wire.frames import S, T

MakeQueue = Callable[..., str]


def exchange(name: str, action: str, **keys: Any) -> bytes:
    return frames.name(name) + frames.pack({"action": action, **keys})


def route(name: str, *bodies: bytes, properties: Any = None, **keys: Any) -> bytes:
    asked = frames.pack(keys)
    meta = b"" if properties is None else frames.pack(properties)
    pieces = [frames.u32(len(each)) + each for each in (asked, meta, *bodies)]
    return frames.name(name) + b"".join(pieces)


@pytest.fixture
def x(wire: Wire) -> Iterator[str]:
    """A topic exchange."""
    wire.ok(T.EXCHANGE, exchange("x", "create", kind="topic"))
    yield "x"
    wire.status(T.EXCHANGE, exchange("x", "delete"))


def told(payload: bytes) -> Any:
    return frames.unpack(payload)


def test_hello_says_that_there_are_exchanges(wire: Wire) -> None:
    assert "exchanges" in told(wire.ok(T.HELLO, frames.pack({"client": "t"})))["features"]


def test_an_exchange_is_made_looked_at_listed_and_deleted(wire: Wire) -> None:
    made = wire.ok(T.EXCHANGE, exchange("y", "create", kind="direct", alternate="z"))
    assert told(made) == {"kind": "direct", "alternate": "z"}
    assert told(wire.ok(T.EXCHANGE, exchange("y", "look"))) == told(made)
    assert told(wire.ok(T.EXCHANGES, b"\x80")) == [
        {
            "name": "y",
            "kind": "direct",
            "alternate": "z",
            "bindings": 0,
            "published": 0,
            "unrouted": 0,
        }
    ]
    assert told(wire.ok(T.EXCHANGE, exchange("y", "stats"))) == {"published": 0, "unrouted": 0}
    again = exchange("y", "create", kind="direct", alternate="z")
    assert wire.status(T.EXCHANGE, again) == S.OK
    assert wire.status(T.EXCHANGE, exchange("y", "create", kind="topic")) == S.QUEUE_EXISTS
    assert told(wire.ok(T.EXCHANGE, exchange("y", "delete"))) == {}
    for action in ("look", "delete", "bindings", "stats"):
        assert wire.status(T.EXCHANGE, exchange("y", action)) == S.NO_QUEUE
    assert wire.status(T.ROUTE, route("y", b"x")) == S.NO_QUEUE
    assert told(wire.ok(T.EXCHANGES, b"\x80")) == []


def test_a_route_answers_how_many_it_reached(wire: Wire, x: str, queue: str) -> None:
    bound = told(wire.ok(T.EXCHANGE, exchange(x, "bind", target=queue, key="a.*")))
    assert bound == {"changed": True}
    again = told(wire.ok(T.EXCHANGE, exchange(x, "bind", target=queue, key="a.*")))
    assert again == {"changed": False}

    properties = {"pri": 2, "headers": {"h": 1}, "codec": "text", "unknown": 1}
    answer = told(wire.ok(T.ROUTE, route(x, b"1", b"2", properties=properties, key="a.b")))

    assert answer == {"reached": 1, "delivered": 2, "duplicates": 0, "refused": {}, "unsynced": {}}
    first, second = wire.take_all(queue)
    assert (first.body, second.body, first.priority) == (b"1", b"2", 2)
    assert first.properties is not None
    assert first.properties["headers"] == {"h": 1}
    nobody = told(wire.ok(T.ROUTE, route(x, b"1", key="elsewhere")))
    assert (nobody["reached"], nobody["delivered"]) == (0, 0)
    retried = told(wire.ok(T.ROUTE, route(x, b"1", key="a.b", only={})))
    assert retried["reached"] == 0
    counts = told(wire.ok(T.EXCHANGE, exchange(x, "stats")))
    assert counts == {"published": 3, "unrouted": 1}
    wire.settle(queue, first.receipt, second.receipt)


def test_bindings_are_lists(wire: Wire, x: str, queue: str) -> None:
    wire.ok(T.EXCHANGE, exchange(x, "bind", target=queue, key="#"))

    answer = told(wire.ok(T.EXCHANGE, exchange(x, "bindings")))

    assert answer == {"bindings": [[queue, "queue", "#", None, "all"]]}
    missing = told(wire.ok(T.EXCHANGE, exchange(x, "bind", target="absent", key="#")))
    assert missing == {"changed": False, "missing": "queue"}
    missing = told(wire.ok(T.EXCHANGE, exchange(x, "bind", target="absent", kind="exchange")))
    assert missing == {"changed": False, "missing": "exchange"}
    assert told(wire.ok(T.EXCHANGE, exchange(x, "unbind", target=queue, key="#"))) == {
        "changed": True
    }


def test_what_is_full_is_told_and_only_that_is_sent_again(
    wire: Wire, x: str, make_queue: MakeQueue
) -> None:
    small = make_queue(capacity=2, overflow="block")
    wide = make_queue()
    for name in (small, wide):
        wire.ok(T.EXCHANGE, exchange(x, "bind", target=name, key="#"))
    bodies = (b"1", b"2", b"3")

    answer = told(wire.ok(T.ROUTE, route(x, *bodies)))
    assert (answer["reached"], answer["delivered"]) == (2, 5)
    status, text, taken, waits = answer["refused"][small]
    assert (status, taken, waits) == (S.QUEUE_FULL, 2, True)
    assert small in text

    for delivery in wire.take_all(small):
        wire.settle(small, delivery.receipt)
    answer = told(wire.ok(T.ROUTE, route(x, *bodies, only={small: taken})))
    assert (answer["reached"], answer["delivered"], answer["refused"]) == (1, 1, {})
    assert [each.body for each in wire.take_all(small)] == [b"3"]
    assert [each.body for each in wire.take_all(wide)] == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    "rest",
    [
        b"",
        bytes(7),
        frames.u32(1) + b"\x80" + frames.u32(9) + b"x",
        frames.u32(1 << 31) + b"\x80" + frames.u32(0),
        frames.u32(1) + b"\x80" + frames.u32(0) + frames.u32(2) + b"x",
        frames.u32(1) + b"\x80" + frames.u32(0) + b"\0",
        frames.u32(1) + b"\x90" + frames.u32(0),
        frames.u32(1) + b"\x80" + frames.u32(1) + b"\xc1",
        frames.u32(0) + frames.u32(0),
    ],
)
def test_a_route_of_a_bad_form_is_refused(wire: Wire, x: str, queue: str, rest: bytes) -> None:
    wire.ok(T.EXCHANGE, exchange(x, "bind", target=queue, key="#"))

    assert wire.status(T.ROUTE, frames.name(x) + rest) == S.BAD_REQUEST
    assert wire.counts(queue) == (0, 0, 0)
    wire.still_answers()


@pytest.mark.parametrize(
    ("properties", "keys", "status"),
    [
        ({"pri": 99}, {}, S.BAD_REQUEST),
        ({"pri": "x"}, {}, S.BAD_REQUEST),
        ({"delay": -1}, {}, S.BAD_REQUEST),
        ({"delay": "x"}, {}, S.BAD_REQUEST),
        ({"headers": 1}, {}, S.BAD_REQUEST),
        ({"codec": 1}, {}, S.BAD_REQUEST),
        (None, {"key": 1}, S.BAD_REQUEST),
        (None, {"key": "k" * 256}, S.BAD_REQUEST),
        (None, {"only": [1]}, S.BAD_REQUEST),
        (None, {"only": {"q": -1}}, S.BAD_REQUEST),
        (None, {"confirm": "disk"}, S.BAD_REQUEST),
        (None, {"confirm": 1}, S.BAD_REQUEST),
    ],
)
def test_a_route_of_a_bad_value_is_refused_and_puts_nothing(
    wire: Wire, x: str, queue: str, properties: Any, keys: dict[str, Any], status: S
) -> None:
    wire.ok(T.EXCHANGE, exchange(x, "bind", target=queue, key="#"))

    assert wire.status(T.ROUTE, route(x, b"x", properties=properties, **keys)) == status
    assert wire.counts(queue) == (0, 0, 0)


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"action": "x"},
        {"action": 1},
        {"action": []},
        {"action": "create", "kind": 1},
        {"action": "create", "kind": "topic", "alternate": 1},
        {"action": "create", "kind": "topic", "alternate": "x"},
        {"action": "bind"},
        {"action": "bind", "target": 1},
        {"action": "bind", "target": "no name"},
        {"action": "bind", "target": "q", "key": "a*"},
        {"action": "bind", "target": "q", "kind": []},
        {"action": "bind", "target": "q", "headers": 1},
        {"action": "synced"},
        {"action": "synced", "queues": {"q": "x"}},
    ],
)
def test_an_exchange_request_of_a_bad_value_is_refused(
    wire: Wire, x: str, asked: dict[str, Any]
) -> None:
    before = wire.ok(T.EXCHANGES, b"\x80")

    assert wire.status(T.EXCHANGE, frames.name(x) + frames.pack(asked)) == S.BAD_REQUEST
    assert wire.ok(T.EXCHANGES, b"\x80") == before
    wire.still_answers()
