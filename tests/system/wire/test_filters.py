"""The flag 0x04 of CONSUME and SUBSCRIBE: an expression, and what it is answered with."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import shmq
from tests.system.wire import frames
from tests.system.wire.client import Address, Wire
from tests.system.wire.frames import FOREVER, S, T

SETTLED = 0x01
WHERE = 0x04
EU = b"header.region = 'eu'"


def asked(expression: bytes) -> bytes:
    """What follows the flags."""
    return len(expression).to_bytes(2, "big") + expression


def consume(
    queue: str, expression: bytes = EU, most: int = 1, wait: int = 0, flags: int = 0
) -> bytes:
    return frames.consume(queue, most, wait, WHERE | flags) + asked(expression)


def put(wire: Wire, queue: str, *regions: str) -> None:
    for region in regions:
        wire.put(queue, region.encode(), {"headers": {"region": region}})


def bodies(wire: Wire, payload: bytes) -> list[bytes]:
    wire.post(T.CONSUME, payload, 9)
    return [delivery.body for delivery in wire.taken(9)]


def test_the_server_says_that_it_takes_expressions(wire: Wire) -> None:
    assert "filters" in frames.unpack(wire.ok(T.HELLO, frames.pack({"client": "t"})))["features"]


def test_only_what_is_meant_comes_and_the_rest_stays(wire: Wire, queue: str) -> None:
    put(wire, queue, "us", "eu", "us", "eu")

    assert bodies(wire, consume(queue, most=9)) == [b"eu", b"eu"]
    assert wire.status(T.CONSUME, consume(queue)) == S.QUEUE_EMPTY
    assert [delivery.body for delivery in wire.take_all(queue)] == [b"us", b"us"]


def test_it_may_be_settled_on_delivery(wire: Wire, queue: str) -> None:
    put(wire, queue, "us", "eu")

    assert bodies(wire, consume(queue, flags=SETTLED)) == [b"eu"]
    assert wire.counts(queue)[:2] == (1, 0)


def test_a_consume_waits_for_what_is_meant(wire: Wire, address: Address, queue: str) -> None:
    put(wire, queue, "us")
    wire.post(T.CONSUME, consume(queue, wait=FOREVER), 7)
    with Wire(address) as other:
        put(other, queue, "us", "eu")

    assert [delivery.body for delivery in wire.taken(7)] == [b"eu"]


def test_a_filtered_wait_blocks_no_other_consumer(wire: Wire, address: Address, queue: str) -> None:
    wire.post(T.CONSUME, consume(queue, wait=FOREVER), 7)
    wire.post(T.CONSUME, frames.consume(queue, 1, FOREVER), 8)
    with Wire(address) as other:
        put(other, queue, "us")
        assert [delivery.body for delivery in wire.taken(8)] == [b"us"]
        put(other, queue, "eu")
        assert [delivery.body for delivery in wire.taken(7)] == [b"eu"]


def test_a_subscription_brings_what_is_meant_within_its_credit(wire: Wire, queue: str) -> None:
    put(wire, queue, "eu", "us", "eu", "eu")
    mine = wire.post(T.SUBSCRIBE, frames.subscribe(queue, 2, WHERE) + asked(EU))
    assert wire.receive().kind == T.REPLY

    first, second = wire.delivered(mine), wire.delivered(mine)
    wire.settle(queue, first.receipt)
    third = wire.delivered(mine)

    assert first.sequence < second.sequence < third.sequence
    assert wire.settle(queue, second.receipt, third.receipt) == []
    assert [delivery.body for delivery in wire.take_all(queue)] == [b"us"]


def test_two_subscriptions_of_a_connection_each_bring_their_own(wire: Wire, queue: str) -> None:
    ids = {}
    for region in ("eu", "us"):
        expression = b"header.region = '%s'" % region.encode()
        ids[region] = wire.post(T.SUBSCRIBE, frames.subscribe(queue, 9, WHERE) + asked(expression))
        assert wire.receive().kind == T.REPLY
    put_by = ["us", "eu", "us", "us", "eu"]
    for region in put_by:
        wire.post(
            T.PRODUCE, frames.produce(queue, region.encode(), {"headers": {"region": region}}), 0
        )

    came = [wire.receive() for _ in put_by]

    for region, own in ids.items():
        mine = [frames.read_delivery(each.payload) for each in came if each.id == own]
        assert [each.body.decode() for each in mine] == [region] * put_by.count(region)
        assert sorted(mine, key=lambda each: each.sequence) == mine


@pytest.mark.parametrize(
    "expression", [b"", b"header.region =", b"body.a = 1", b"nothing = 1", b"header.a = '\xff'"]
)
def test_an_expression_that_cannot_be_asked_is_a_bad_request(
    wire: Wire, queue: str, expression: bytes
) -> None:
    put(wire, queue, "eu")
    for kind, payload in (
        (T.CONSUME, frames.consume(queue, 1, FOREVER, WHERE)),
        (T.SUBSCRIBE, frames.subscribe(queue, 1, WHERE)),
    ):
        answer = wire.ask(kind, payload + asked(expression))
        assert (answer.kind, answer.status) == (T.REPLY, S.BAD_REQUEST)
        assert answer.payload.decode()
    assert wire.counts(queue)[:2] == (1, 0)


@pytest.mark.parametrize("rest", [b"\0", b"\0\2a", b"\0\0a", asked(EU) + b"x"])
def test_an_expression_of_another_length_is_a_bad_request(
    wire: Wire, queue: str, rest: bytes
) -> None:
    assert wire.status(T.CONSUME, frames.consume(queue, 1, 0, WHERE) + rest) == S.BAD_REQUEST
    assert wire.status(T.SUBSCRIBE, frames.subscribe(queue, 1, WHERE) + rest) == S.BAD_REQUEST


def test_the_form_counts_first_then_the_flags_then_the_queue_then_the_expression(
    wire: Wire, queue: str
) -> None:
    assert wire.status(T.CONSUME, consume(queue, b"nothing", flags=0x08)) == S.UNSUPPORTED
    assert wire.status(T.CONSUME, consume("none", b"nothing")) == S.NO_QUEUE
    assert wire.status(T.CONSUME, consume(queue, b"nothing")) == S.BAD_REQUEST


def test_a_queue_that_goes_ends_the_wait(wire: Wire, address: Address, queue: str) -> None:
    wire.post(T.CONSUME, consume(queue, wait=FOREVER), 7)
    with Wire(address) as other:
        other.ok(T.DELETE, frames.name(queue))

    answer = wire.receive()
    assert (answer.id, answer.status) == (7, S.NO_QUEUE)


@pytest.mark.parametrize("flags", [WHERE, WHERE | SETTLED])
def test_the_flag_with_nothing_behind_it_is_none(wire: Wire, queue: str, flags: int) -> None:
    assert wire.status(T.CONSUME, frames.consume(queue, flags=flags)) == S.UNSUPPORTED
    assert wire.status(T.SUBSCRIBE, frames.subscribe(queue, flags=flags)) == S.UNSUPPORTED


def test_a_peek_shows_what_is_meant_the_body_included(wire: Wire, queue: str) -> None:
    put(wire, queue, "us", "eu")
    peek = frames.name(queue) + frames.u32(9)

    wire.post(T.PEEK, peek + EU, 9)
    assert [delivery.body for delivery in wire.taken(9)] == [b"eu"]
    assert wire.status(T.PEEK, peek + b"size = 9") == S.QUEUE_EMPTY
    assert wire.status(T.PEEK, peek + b"size") == S.BAD_REQUEST
    assert wire.status(T.PEEK, peek[:-1]) == S.BAD_REQUEST


def test_an_expression_of_too_many_comparisons_names_the_limit(
    wire: Wire, queue: str, broker: shmq.Broker
) -> None:
    wire.put(queue, b"x")
    most = " or ".join(["size = 1"] * 256)
    assert wire.ask(T.CONSUME, consume(queue, most.encode())).kind == T.DELIVER
    many = "size in (" + ", ".join("1" for _ in range(257)) + ")"
    for kind, payload in (
        (T.CONSUME, consume(queue, many.encode())),
        (T.PEEK, frames.name(queue) + (1).to_bytes(4, "big") + many.encode()),
        (T.REDRIVE, frames.name(queue) + (1).to_bytes(4, "big") + many.encode()),
    ):
        refused = wire.ask(kind, payload)
        assert refused.status == S.BAD_REQUEST
        assert b"256" in refused.payload


def test_a_search_through_a_long_queue_lets_others_go_first(
    wire: Wire, address: Address, make_queue: Callable[..., str], broker: shmq.Broker
) -> None:
    """It takes far longer than a turn; the other's requests are answered before it ends."""
    count = 100_000
    long = make_queue(capacity=count + 10, arena_bytes=64 << 20)
    with broker.queue(long) as queue:
        for _ in range(count // 1000):
            queue.put_many([b"x"] * 1000, headers={"n": 1})
        queue.put(b"wanted", headers={"n": 2})
    with Wire(address) as other:
        asked = wire.post(T.CONSUME, consume(long, b"header.n = 2"))
        behind = wire.post(T.PING, b"behind")
        for _ in range(20):
            other.ok(T.PING, b"there?")
        found = wire.receive()
        assert (found.id, found.kind) == (asked, T.DELIVER)
        assert wire.receive().id == behind
        none = wire.ask(T.CONSUME, consume(long, b"header.n = 3"))
        assert none.status == S.QUEUE_EMPTY
