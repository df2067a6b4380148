"""Bodies that JSON can hold and not everyone expects: each is kept as it is, or refused."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import msgpack
import pytest

import shmq
from tests.support.console import API, Console, Reply

DEEP = 300

#: As JSON text.
ODD = {
    "a surrogate": rb'"\ud800"',
    "a surrogate as a key": rb'{"\ud800": 1}',
    "a wide number": b"1" + b"0" * 40,
    "a number over 64 bits": b"18446744073709551616",
    "a number of many digits": b"1" * 5000,
    "a number beyond floats": b"1e999",
    "a NaN": b"NaN",
    "deep lists": b"[" * DEEP + b"]" * DEEP,
    "very deep lists": b"[" * 900 + b"]" * 900,
    "far too deep lists": b"[" * 100_000 + b"]" * 100_000,
    "deep maps": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "zeros": rb'"\u0000"',
    "a name twice": b'{"a":1,"a":2}',
}


@pytest.fixture
def filled(shop: shmq.Broker) -> shmq.Broker:
    shop.create_queue("orders", dead_letter=None)
    shop.create_stream("clicks", 1)
    shop.create_exchange("events", "fanout").bind("orders")
    return shop


def send(site: Console, method: str, path: str, content: bytes) -> Reply:
    return site.ask(method, API + path, content, {"Content-Type": "application/json"})


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(
    ("path", "template"),
    [
        ("/queues/orders/messages", b'{"body": %s}'),
        ("/queues/orders/messages", b'{"body": %s, "codec": "msgpack"}'),
        ("/queues/orders/messages", b'{"body": 1, "headers": {"h": %s}}'),
        ("/queues/orders/messages", b'{"body": %s, "encoding": "text", "correlation": "x"}'),
        ("/streams/clicks/records", b'{"body": %s}'),
        ("/streams/clicks/records", b'{"body": 1, "headers": {"h": %s}}'),
        ("/streams/clicks/records", b'{"body": 1, "key": %s}'),
        ("/exchanges/events/publish", b'{"body": %s}'),
        ("/exchanges/events/publish", b'{"body": 1, "key": %s}'),
        ("/schemas/orders", b'{"schema": {"const": %s}}'),
        ("/schemas/orders", b'{"schema": {"default": %s}}'),
        ("/exchanges/events/bind", b'{"target": "orders", "headers": {"a": %s}}'),
    ],
)
def test_a_body_is_taken_and_shown_or_refused(
    site: Console, filled: shmq.Broker, odd: str, path: str, template: bytes
) -> None:
    told = send(site, "POST", path, template % ODD[odd])
    assert told.status in {200, 201, 400, 413, 422}, told
    if told.status >= 400:
        assert told.code in {"invalid", "too-large", "schema"}, told
    for shown in (
        "/queues/orders/messages",
        "/streams/clicks/partitions/0/records",
        "/schemas/orders",
        "/exchanges/events",
    ):
        assert site.api("GET", shown).status == 200, shown


@pytest.mark.parametrize("odd", ["a surrogate as a key", "a wide number", "deep maps", "a NaN"])
@pytest.mark.parametrize("path", ["/queues/new", "/streams/new"])
def test_odd_options_are_refused(site: Console, filled: shmq.Broker, odd: str, path: str) -> None:
    for name in (b"capacity", b"partitions", b"ttl", b"durability"):
        told = send(site, "PUT", path, b'{"%s": %s}' % (name, ODD[odd]))
        assert (told.status, told.code) == (400, "invalid"), told


@pytest.mark.parametrize(
    "value",
    [2**64 - 1, -(2**63), float("nan"), {1: 2}, {b"k": b"v"}, b"\xff", [None] * 500],
    ids=str,
)
def test_what_other_clients_put_is_shown(site: Console, filled: shmq.Broker, value: Any) -> None:
    with filled.queue("orders") as queue, filled.stream("clicks") as stream:
        queue.put(value, codec="msgpack", headers={"h": value})
        stream.append(value, codec="msgpack", headers={"h": value})
        queue.put(msgpack.ExtType(5, b"x").data, codec="bytes")
        queue.put(b"\xff", codec="other")
        stream.append([123456789012345678901234567890], codec="json")
    for shown in ("/queues/orders/messages", "/streams/clicks/partitions/0/records"):
        told = site.api("GET", shown)
        assert told.status == 200, told
        assert len(told.json["items"]) >= 2


#: What a client of another language may put: bytes that claim to be of a codec.
STRANGE = {
    "a surrogate": (rb'"\ud800"', "json", "text"),
    "a surrogate as a key": (rb'{"\ud800": 1}', "json", "text"),
    "an infinite number": (b"[Infinity]", "json", "text"),
    "a number out of range": (b"[1e400]", "json", "text"),
    "null as a key": (b"\x81\xc0\xc0", "msgpack", "base64"),
    "a key that is true": (b"\x81\xc3\xc0", "msgpack", "base64"),
    "a moment that is none": (b"\xd7\xff" + b"\xff" * 8, "msgpack", "base64"),
    "text that is none": (b"\xa3\xed\xa0\x80", "msgpack", "base64"),
    "a cut number": (b"\xcf\xff", "msgpack", "base64"),
    "records that are none": (b"\xff" * 20, "packed", "base64"),
}


@pytest.mark.parametrize("strange", STRANGE)
def test_a_body_that_json_cannot_hold_is_shown_as_it_is(
    site: Console, filled: shmq.Broker, strange: str
) -> None:
    raw, codec, encoding = STRANGE[strange]
    with filled.queue("orders") as queue, queue.loan(len(raw), codec=codec) as room:
        room[:] = raw
    (shown,) = site.api("GET", "/queues/orders/messages").json["items"]
    (leased,) = site.api("POST", "/queues/orders/lease", {}).json["items"]
    for one in (shown, leased):
        assert one["encoding"] == encoding
        assert one["body"] == (raw.decode() if encoding == "text" else b64encode(raw).decode())


def test_a_body_of_any_depth_is_shown(site: Console, filled: shmq.Broker) -> None:
    """One that can just be decoded can be too deep to be part of an answer."""
    with filled.queue("orders") as queue:
        for depth in range(800, 1001, 4):
            raw = b"[" * depth + b"]" * depth
            with queue.loan(len(raw), codec="json") as room:
                room[:] = raw
    told = site.api("GET", "/queues/orders/messages", limit=100)
    assert told.status == 200, told
    assert told.content.count(b'"sequence":') == 51
    assert told.content.count(b'"encoding":"json"') > 0
    assert told.content.count(b'"encoding":"text"') > 0


def test_headers_that_json_cannot_hold_are_shown(site: Console, filled: shmq.Broker) -> None:
    with filled.queue("orders") as queue, filled.stream("clicks") as stream:
        queue.put(1, headers={"h": {None: 1}})
        stream.append(1, headers={"h": {True: 1}})
    (message,) = site.api("GET", "/queues/orders/messages").json["items"]
    assert message["headers"] == {"h": "{None: 1}"}
    (record,) = site.api("GET", "/streams/clicks/partitions/0/records").json["items"]
    assert record["headers"] == {"h": "{True: 1}"}
