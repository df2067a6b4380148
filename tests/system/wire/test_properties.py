"""Properties: what each known key does, what is refused, and what is handed through."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgpack
import pytest

import shmq
from tests.system.wire import frames
from tests.system.wire.client import Wire
from tests.system.wire.frames import S, T

MakeQueue = Callable[..., str]


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"pri": 0},
        {"pri": 2},
        {"ttl": 90_000},
        {"group": "g"},
        {"group": ""},
        {"dedupe": "no window, no effect"},
        {"headers": {}},
        {"headers": {"a": 1, "b": [1, {"c": None}], "d": b"\x00\xff", "e": 0.5}},
        {"headers": {5: "an int as key", b"k": True}},
        {"codec": "json"},
        {"codec": "nobody.knows.this"},
        {"reply_to": "answers"},
        {"corr": "17"},
        {"unknown": [1, 2, {"deep": {"er": "x" * 1000}}]},
        {"PRI": 99, "Delay": "these are other keys"},
        {17: "a key that is not a string", None: 1},
        {
            "pri": 1,
            "ttl": 90_000,
            "group": "all",
            "headers": {"of": "them"},
            "codec": "msgpack",
            "reply_to": "r",
            "corr": "c",
            "x": -1,
        },
    ],
    ids=str,
)
def test_properties_are_handed_to_the_consumer_with_all_their_keys(
    wire: Wire, broker: shmq.Broker, queue: str, properties: dict[Any, Any]
) -> None:
    wire.put(queue, b"body", properties)

    delivery = wire.take_one(queue)

    assert (delivery.properties or {}) == properties
    assert delivery.body == b"body"
    wire.ok(T.NACK, frames.timed(queue, 0, delivery.receipt))
    with broker.queue(queue) as local, local.get(timeout=30) as message:
        assert message.headers == properties.get("headers", {})
        assert bytes(message.view) == b"body"


def test_extension_types_are_handed_through(wire: Wire, queue: str) -> None:
    packed = frames.pack({"at": msgpack.ExtType(7, b"anything"), "headers": {"t": 1}})
    wire.ok(T.PRODUCE, frames.produce(queue, b"", packed))

    found = wire.take_one(queue).properties

    assert found == {"at": msgpack.ExtType(7, b"anything"), "headers": {"t": 1}}


def test_properties_of_every_length_and_of_every_encoding_of_the_same_numbers_are_read(
    wire: Wire, queue: str
) -> None:
    wide = b"\xdf\x00\x00\x00\x02" + b"\xd9\x03pri" + b"\xcf" + bytes(7) + b"\x02"
    wide += b"\xdb\x00\x00\x00\x03ttl" + b"\xd3" + (90_000).to_bytes(8, "big")
    wire.ok(T.PRODUCE, frames.produce(queue, b"", wide))

    delivery = wire.take_one(queue)

    assert (delivery.priority, delivery.properties) == (2, {"pri": 2, "ttl": 90_000})


@pytest.mark.parametrize(
    "properties",
    [
        {"pri": 3},
        {"pri": -1},
        {"pri": 1 << 63},
        {"pri": "1"},
        {"pri": 1.0},
        {"pri": None},
        {"pri": True},
        {"delay": -1},
        {"delay": "5"},
        {"delay": 0.5},
        {"delay": None},
        {"ttl": -1},
        {"ttl": 1.5},
        {"ttl": []},
        {"group": 5},
        {"group": b"bytes"},
        {"group": None},
        {"dedupe": 5},
        {"dedupe": {}},
        {"headers": []},
        {"headers": "h"},
        {"headers": None},
        {"codec": 1},
        {"codec": b"json"},
        {"reply_to": 1},
        {"reply_to": False},
        {"corr": 17},
        {"corr": b"c"},
    ],
    ids=str,
)
def test_a_known_key_of_another_type_or_out_of_range_is_bad_request(
    wire: Wire, queue: str, properties: dict[str, Any]
) -> None:
    for given in (properties, {"x": 1, **properties}, {**properties, "headers2": {}}):
        answer = wire.ask(T.PRODUCE, frames.produce(queue, b"", given))
        assert answer.status == S.BAD_REQUEST
        assert answer.payload.decode()

    assert wire.counts(queue) == (0, 0, 0)


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\xc0",
        b"\x90",
        b"\xa3pri",
        b"\x05",
        b"\xc1",
        b"\x80\x00",
        b"\x80\x80",
        b"\x81",
        b"\x81\xa3pri",
        b"\x82\xa3pri\x01",
        b"\xde\x00",
        b"\xdf\xff\xff\xff\xff",
        b"\xde\xff\xff" + b"\xa1k\x01" * 10,
        b"\x81\xa1k\xc1",
        b"\x81\xa1k\xdb\xff\xff\xff\xffx",
        b"\x81\xa1k\xc6\xff\xff\xff\xffx",
        b"\x81\xa1k\xc9\xff\xff\xff\xff\x01x",
        b"\x81\xa1k\xdd\xff\xff\xff\xff\x01",
        frames.pack({"pri": 1, "headers": {"a": 1}})[:-1],
    ],
    ids=lambda packed: packed[:8].hex() or "none",
)
def test_bytes_that_are_not_one_map_are_bad_request(wire: Wire, queue: str, packed: bytes) -> None:
    answer = wire.ask(T.PRODUCE, frames.produce(queue, b"body", packed))

    assert answer.status == S.BAD_REQUEST
    assert wire.counts(queue) == (0, 0, 0)


@pytest.mark.parametrize("depth", [3, 100, 1000, 100_000])
@pytest.mark.parametrize("kind", [b"\x91", b"\x81\xa1k"])
def test_whatever_depth_of_nesting_is_taken_can_be_read_by_remote_and_local_consumers(
    wire: Wire, broker: shmq.Broker, queue: str, kind: bytes, depth: int
) -> None:
    packed = b"\x81\xa7headers\x81\xa1k" + kind * depth + b"\xc0"

    answer = wire.ask(T.PRODUCE, frames.produce(queue, b"deep", packed))

    assert answer.status in {S.OK, S.BAD_REQUEST}
    assert depth > 10 or answer.status == S.OK
    if answer.status == S.OK:
        delivery = wire.take_one(queue)
        assert delivery.body == b"deep"
        wire.ok(T.NACK, frames.timed(queue, 0, delivery.receipt))
        with broker.queue(queue).get(timeout=30) as message:
            assert list(message.headers) == ["k"]
    wire.still_answers()


@pytest.mark.parametrize("key", ["group", "dedupe", "codec", "reply_to", "corr", "headers", "x"])
def test_a_string_that_is_not_utf_8_harms_no_other_client(
    wire: Wire, broker: shmq.Broker, make_queue: MakeQueue, key: str
) -> None:
    queue = make_queue(dedupe_window=60)
    value = b"\x81\xa1h\xa2\xff\xfe" if key == "headers" else b"\xa2\xff\xfe"
    packed = b"\x81" + frames.pack(key) + value

    answer = wire.ask(T.PRODUCE, frames.produce(queue, b"body", packed))
    wire.put(queue, b"the next one")

    assert answer.status in {S.OK, S.BAD_REQUEST}
    bodies = [b"body", b"the next one"][answer.status == S.BAD_REQUEST :]
    with broker.queue(queue) as local:
        for body in bodies:
            message = local.get(timeout=30)
            assert (message.body, isinstance(message.headers, dict)) == (body, True)
            message.nack(delay=0)
            message = local.get(timeout=30)
            message.ack()
    wire.still_answers()


# --- what they do ----------------------------------------------------------------------


def test_higher_priorities_are_served_first_and_the_default_is_the_middle_one(
    wire: Wire, queue: str
) -> None:
    for n, pri in enumerate([0, None, 2, 1, 0, 2]):
        wire.put(queue, b"%d" % n, None if pri is None else {"pri": pri})

    taken = wire.take_all(queue)

    assert [each.body for each in taken] == [b"2", b"5", b"1", b"3", b"0", b"4"]
    assert [each.priority for each in taken] == [2, 2, 1, 1, 0, 0]


@pytest.mark.parametrize("priorities", [1, 2, 3, 4, 16])
def test_priorities_go_from_0_to_one_below_the_queues(
    wire: Wire, make_queue: MakeQueue, priorities: int
) -> None:
    queue = make_queue(priorities=priorities)
    for pri in range(priorities):
        wire.put(queue, b"", {"pri": pri})
    assert wire.status(T.PRODUCE, frames.produce(queue, b"", {"pri": priorities})) == S.BAD_REQUEST
    wire.put(queue, b"default")

    found = {each.body: each.priority for each in wire.take_all(queue)}

    assert found[b"default"] == priorities // 2


def test_a_delay_counts_from_the_produce(wire: Wire, queue: str) -> None:
    wire.put(queue, b"much later", {"delay": 3_600_000})
    wire.put(queue, b"early")
    assert wire.counts(queue) == (1, 1, 0)
    assert wire.take_one(queue).body == b"early"
    assert wire.take(queue) == []

    began = time.monotonic()
    wire.put(queue, b"late", {"delay": 300})
    late = wire.take_one(queue)

    assert late.body == b"late"
    assert time.monotonic() - began >= 0.3
    assert late.deliveries == 1


def test_a_delay_of_0_is_none(wire: Wire, queue: str) -> None:
    wire.put(queue, b"now", {"delay": 0})
    assert [each.body for each in wire.take(queue)] == [b"now"]


def test_a_delayed_message_takes_its_place_by_its_sequence_number(wire: Wire, queue: str) -> None:
    wire.put(queue, b"first", {"delay": 100})
    wire.put(queue, b"second")
    while wire.stats(queue)["delayed"]:
        time.sleep(0.01)

    assert [each.body for each in wire.take_all(queue)] == [b"first", b"second"]


def test_a_message_past_its_ttl_is_dead_lettered(wire: Wire, queue: str) -> None:
    wire.put(queue, b"too late", {"ttl": 50})
    wire.put(queue, b"in time", {"ttl": 3_600_000})

    dead = wire.take_one(f"{queue}.dlq")

    assert dead.body == b"too late"
    assert dead.properties is not None
    assert dead.properties["dead"]["reason"] == "expired"
    assert [each.body for each in wire.take_all(queue)] == [b"in time"]


def test_a_leased_message_past_its_ttl_is_dead_lettered_once_it_comes_back(
    wire: Wire, queue: str
) -> None:
    wire.put(queue, b"held", {"ttl": 1000})
    delivery = wire.take_one(queue)
    wire.put(queue, b"probe", {"ttl": 1000})
    assert wire.take_one(f"{queue}.dlq").body == b"probe"  # the later ttl has passed
    assert wire.counts(queue) == (0, 0, 1)

    wire.ok(T.NACK, frames.timed(queue, 0, delivery.receipt))

    dead = wire.take_one(f"{queue}.dlq")
    assert dead.properties is not None
    assert (dead.body, dead.properties["dead"]["reason"]) == (b"held", "expired")


def test_a_group_is_in_order_with_one_in_flight(wire: Wire, queue: str) -> None:
    for n in range(3):
        wire.put(queue, b"%d" % n, {"group": "a"})
    wire.put(queue, b"b", {"group": "b"})
    wire.put(queue, b"none")

    first = wire.take_all(queue)

    assert [each.body for each in first] == [b"0", b"b", b"none"]
    for n in (1, 2):
        wire.settle(queue, first[0].receipt)
        first = wire.take_all(queue)
        assert [each.body for each in first] == [b"%d" % n]


def test_a_delayed_nack_holds_its_group_back(wire: Wire, queue: str) -> None:
    wire.put(queue, b"1", {"group": "a"})
    wire.put(queue, b"2", {"group": "a"})
    wire.put(queue, b"other", {"group": "b"})
    first = wire.take_one(queue)

    wire.ok(T.NACK, frames.timed(queue, 60_000, first.receipt))

    assert [each.body for each in wire.take_all(queue)] == [b"other"]


# --- codecs: what is put locally, and what is read locally ------------------------------


def test_what_is_put_locally_with_a_codec_says_which(
    wire: Wire, broker: shmq.Broker, queue: str
) -> None:
    with broker.queue(queue) as local:
        local.put(b"bytes")
        local.put({"a": 1}, headers={"h": 2})

    plain, packed = wire.take(queue) + wire.take(queue)

    assert (plain.body, "codec" in (plain.properties or {})) == (b"bytes", False)
    assert packed.properties is not None
    assert packed.properties["codec"] == "msgpack"
    assert packed.properties["headers"] == {"h": 2}
    assert frames.unpack(packed.body) == {"a": 1}


def test_what_is_put_here_can_be_read_locally(wire: Wire, broker: shmq.Broker, queue: str) -> None:
    wire.put(queue, b"bytes", {"headers": {"h": 1}, "group": "g", "pri": 2})
    wire.put(queue, frames.pack([1, "two"]), {"codec": "msgpack"})

    with broker.queue(queue) as local:
        one, two = local.get(timeout=30), local.get(timeout=30)
        assert (one.body, one.headers, one.group, one.priority) == (b"bytes", {"h": 1}, "g", 2)
        assert two.body == [1, "two"]
        one.ack()
        two.ack()


@pytest.mark.parametrize("codec", ["packed", "msgpack", "str", "json", "pickle", "numpy"])
def test_a_body_that_is_not_what_its_codec_says_harms_no_other_client(
    wire: Wire, broker: shmq.Broker, queue: str, codec: str
) -> None:
    for body in (b"", b"\xff" * 8, b"\xff\xff\xff\xff\x00\x00\x00\x01", b"\xc1" * 5000):
        wire.put(queue, body, {"codec": codec})
        delivery = wire.take_one(queue)
        assert delivery.body == body
        wire.ok(T.NACK, frames.timed(queue, 0, delivery.receipt))
        with broker.queue(queue) as local:
            message = local.get(timeout=30)
            assert bytes(message.view) == body
            message.ack()
    wire.still_answers()
