"""COLUMNS, LEASE_RUN, LEASE_AGAIN and READ_RUN: blocks and runs, byte by byte."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import shmq
from tests.system.wire import frames
from tests.system.wire.client import Address, Wire
from tests.system.wire.conftest import Serve
from tests.system.wire.frames import FOREVER, S, T

MakeQueue = Callable[..., str]

_COLUMNS = (
    ("sequence", "Q"),
    ("put_at", "q"),
    ("visible_at", "q"),
    ("lease_until", "q"),
    ("expires", "q"),
    ("dead_at", "q"),
    ("deliveries", "i"),
    ("priority", "i"),
    ("state", "B"),
    ("reason", "B"),
    ("codec", "B"),
)


class Row(NamedTuple):
    sequence: int
    receipt: int
    slot: int


def columns(queue: str, start: int = 0, end: int = FOREVER, size: int = 1 << 20) -> bytes:
    return frames.name(queue) + frames.u32(start, end, size)


def lease(queue: str, most: int = 100, size: int = 1 << 20, ms: int = 60_000) -> bytes:
    return frames.name(queue) + frames.u32(most) + frames.u64(size) + frames.u32(ms)


def again(queue: str, *sequences: int, ms: int = 60_000) -> bytes:
    return frames.name(queue) + frames.u32(ms) + frames.u64(*sequences)


def read_run(queue: str, *rows: Row, size: int = 1 << 20) -> bytes:
    pairs = (frames.u64(row.sequence) + frames.u32(row.slot) for row in rows)
    return frames.name(queue) + frames.u32(size) + b"".join(pairs)


def run(payload: bytes) -> list[Row]:
    assert len(payload) % 20 == 0
    return [Row(*each) for each in struct.iter_unpack(">QQI", payload)]


def block(payload: bytes) -> tuple[int, int, dict[str, list[Any]]]:
    """(next, slots, columns) of an answer, by the tables of docs/internals/protocol.md alone."""
    following, slots = struct.unpack_from(">II", payload)
    data = payload[8:]
    assert data[:8] == bytes.fromhex("73 68 6D 71 63 6F 6C 01")
    count, zero, body_bytes, meta_bytes = struct.unpack_from("<IIQQ", data, 8)
    assert zero == 0
    at = 32
    found: dict[str, list[Any]] = {}

    def take(size: int) -> bytes:
        nonlocal at
        taken = data[at : at + size]
        assert len(taken) == size
        padding = data[at + size : at + size + -size % 8]
        assert padding == bytes(-size % 8)
        at += size + -size % 8
        return taken

    for name, kind in _COLUMNS:
        width = struct.calcsize("<" + kind)
        found[name] = list(struct.unpack(f"<{count}{kind}", take(count * width)))
    for name, size in (("body", body_bytes), ("meta", meta_bytes)):
        offsets = struct.unpack(f"<{count + 1}i", take(4 * (count + 1)))
        items = take(size)
        assert (offsets[0], offsets[-1]) == (0, size)
        found[name] = [items[offsets[i] : offsets[i + 1]] for i in range(count)]
    assert at == len(data)
    return following, slots, found


@pytest.mark.prove
def test_hello_names_the_feature(wire: Wire) -> None:
    assert "columns" in frames.unpack(wire.ok(T.HELLO, frames.pack({"client": "t"})))["features"]


def test_columns_show_each_message_as_it_stands(wire: Wire, queue: str) -> None:
    wire.put(queue, b"one", {"pri": 2})
    wire.put(queue, b"", {"delay": 60_000})
    wire.put(queue, b"three", {"headers": {"a": 1}, "ttl": 60_000})
    wire.take_one(queue)
    following, slots, found = block(wire.ok(T.COLUMNS, columns(queue)))
    assert following == FOREVER
    assert slots >= 3
    rows = {seq: i for i, seq in enumerate(found["sequence"])}
    one, two, three = rows[1], rows[2], rows[3]
    assert [found["body"][i] for i in (one, two, three)] == [b"one", b"", b"three"]
    assert [found["state"][i] for i in (one, two, three)] == [3, 2, 1]
    assert [found["priority"][i] for i in (one, two, three)] == [2, 1, 1]
    assert [found["deliveries"][i] for i in (one, two, three)] == [1, 0, 0]
    assert found["lease_until"][one] > found["put_at"][one] > 1_600_000_000_000_000
    assert found["visible_at"][two] == pytest.approx(found["put_at"][two] + 6e7, abs=1e6)
    assert found["expires"][three] == pytest.approx(found["put_at"][three] + 6e7, abs=1e6)
    assert frames.unpack(found["meta"][three])["headers"] == {"a": 1}
    assert wire.counts(queue) == (1, 1, 1)


def test_columns_go_on_where_they_ended(wire: Wire, queue: str) -> None:
    for n in range(40):
        wire.put(queue, bytes([n]) * 500)
    start, seen = 0, []
    while start != FOREVER:
        payload = wire.ok(T.COLUMNS, columns(queue, start, FOREVER, 4000))
        assert len(payload) <= 4008
        start, _, found = block(payload)
        seen += found["sequence"]
    assert sorted(seen) == list(range(1, 41))
    assert block(wire.ok(T.COLUMNS, columns(queue, 7, 7)))[2]["sequence"] == []
    assert block(wire.ok(T.COLUMNS, columns(queue, FOREVER)))[0] == FOREVER


def test_a_run_is_leased_to_the_connection(address: Address, wire: Wire, queue: str) -> None:
    for n in range(300):
        wire.put(queue, b"%d" % n)
    with Wire(address) as holder:
        rows = run(holder.ok(T.LEASE_RUN, lease(queue, most=250)))
        assert [row.sequence for row in rows] == list(range(1, 251))
        assert wire.counts(queue)[0] == 50
        found = block(wire.ok(T.READ_RUN, read_run(queue, *reversed(rows))))[2]
        assert found["body"] == [b"%d" % n for n in reversed(range(250))]
        holder.ok(T.ACK, frames.receipts(queue, *(row.receipt for row in rows[:200])))
        holder.finish()
        assert holder.rest() == []
    assert [d.sequence for d in wire.take_all(queue)] == list(range(201, 301))


def test_a_run_stops_at_its_bytes_and_an_empty_queue_has_none(wire: Wire, queue: str) -> None:
    for _ in range(5):
        wire.put(queue, bytes(100))
    assert len(run(wire.ok(T.LEASE_RUN, lease(queue, size=150)))) == 2
    assert len(run(wire.ok(T.LEASE_RUN, lease(queue)))) == 3
    assert wire.ok(T.LEASE_RUN, lease(queue)) == b""


@pytest.mark.prove
def test_a_run_is_no_more_than_a_connection_may_have(serve: Serve) -> None:
    with (
        serve(workers=1, limits={"unsettled_messages": 10}) as server,
        Wire(server.address) as wire,
    ):
        wire.create("q")
        for _ in range(30):
            wire.put("q", b"x")
        rows = run(wire.ok(T.LEASE_RUN, lease("q")))
        assert len(rows) == 10
        assert wire.ok(T.LEASE_RUN, lease("q")) == b""
        assert wire.ok(T.LEASE_AGAIN, again("q", 20)) == b""
        wire.ok(T.ACK, frames.receipts("q", *(row.receipt for row in rows[:4])))
        assert len(run(wire.ok(T.LEASE_AGAIN, again("q", *range(15, 30))))) == 4


def test_leases_of_a_lost_connection_are_found_again(
    address: Address, wire: Wire, queue: str
) -> None:
    for n in range(100):
        wire.put(queue, b"%d" % n)
    with Wire(address) as holder:
        rows = run(holder.ok(T.LEASE_RUN, lease(queue, most=60)))
        holder.finish()
        assert holder.rest() == []
    wanted = [row.sequence for row in rows[::-3]]
    found = run(wire.ok(T.LEASE_AGAIN, again(queue, *wanted, 99_999, 0)))
    assert [row.sequence for row in found] == wanted
    assert {row.receipt for row in rows}.isdisjoint(row.receipt for row in found)
    assert run(wire.ok(T.LEASE_AGAIN, again(queue, *wanted))) == []


def test_what_is_gone_is_lease_expired_and_named(wire: Wire, queue: str) -> None:
    for n in range(6):
        wire.put(queue, b"%d" % n)
    rows = run(wire.ok(T.LEASE_RUN, lease(queue)))
    wire.ok(T.ACK, frames.receipts(queue, rows[1].receipt, rows[4].receipt))
    answer = wire.ask(T.READ_RUN, read_run(queue, *rows))
    assert answer.status == S.LEASE_EXPIRED
    assert frames.read_u64s(answer.payload) == [2, 5]
    odd = Row(1, 0, FOREVER), Row(FOREVER, 0, rows[0].slot)
    answer = wire.ask(T.READ_RUN, read_run(queue, *odd))
    assert frames.read_u64s(answer.payload) == [1, FOREVER]
    assert block(wire.ok(T.READ_RUN, read_run(queue)))[2]["sequence"] == []


@pytest.mark.prove
def test_a_message_longer_than_max_frame_is_too_large(serve: Serve) -> None:
    with (
        serve(workers=1, limits={"max_frame": 8192}) as server,
        shmq.connect(server.namespace) as broker,
        Wire(server.address) as wire,
    ):
        broker.create_queue("q").put(bytes(10_000))
        assert wire.status(T.COLUMNS, columns("q")) == S.TOO_LARGE
        rows = run(wire.ok(T.LEASE_RUN, lease("q")))
        assert wire.status(T.READ_RUN, read_run("q", *rows)) == S.TOO_LARGE
        remote = shmq.connect(server.url)
        with remote, pytest.raises(shmq.MessageTooLarge, match="max_frame"):
            remote.queue("q").bulk().read_columns()


@pytest.mark.parametrize(
    ("type", "rest"),
    [
        (T.COLUMNS, b""),
        (T.COLUMNS, frames.u32(0, 1)),
        (T.COLUMNS, frames.u32(0, 1, 0)),
        (T.COLUMNS, frames.u32(0, 1, 1, 1)),
        (T.LEASE_RUN, frames.u32(1)),
        (T.LEASE_RUN, frames.u32(0) + frames.u64(1) + frames.u32(1)),
        (T.LEASE_RUN, frames.u32(1) + frames.u64(0) + frames.u32(1)),
        (T.LEASE_RUN, frames.u32(1) + frames.u64(1) + frames.u32(0)),
        (T.LEASE_RUN, frames.u32(1) + frames.u64(1) + frames.u32(1) + b"x"),
        (T.LEASE_AGAIN, b""),
        (T.LEASE_AGAIN, frames.u32(0) + frames.u64(1)),
        (T.LEASE_AGAIN, frames.u32(1) + frames.u64(1)[:7]),
        (T.READ_RUN, b""),
        (T.READ_RUN, frames.u32(0) + frames.u64(1) + frames.u32(1)),
        (T.READ_RUN, frames.u32(1) + frames.u64(1)),
    ],
)
def test_what_is_not_of_the_form_is_bad_request_and_leases_nothing(
    wire: Wire, queue: str, type: T, rest: bytes
) -> None:
    wire.put(queue, b"a")
    assert wire.status(type, frames.name(queue) + rest) == S.BAD_REQUEST
    assert wire.status(type, rest) == S.BAD_REQUEST
    assert wire.counts(queue) == (1, 0, 0)


@pytest.mark.prove
@pytest.mark.parametrize("type", [T.COLUMNS, T.LEASE_RUN, T.LEASE_AGAIN, T.READ_RUN])
def test_each_needs_a_queue_the_right_to_consume_and_a_message_id(
    serve: Serve, wire: Wire, name: str, type: T
) -> None:
    assert wire.status(type, frames.request(type, name)) == S.NO_QUEUE
    tokens = {"p" * 32: {"produce": ["*"], "admin": ["*"]}, "c" * 32: {"consume": ["*"]}}
    with serve(workers=1, tokens=tokens) as server:
        with Wire(server.address) as producer:
            producer.ok(T.HELLO, frames.pack({"client": "t", "token": "p" * 32}))
            producer.create("q")
            assert producer.status(type, frames.request(type, "q")) == S.FORBIDDEN
        with Wire(server.address) as consumer:
            consumer.ok(T.HELLO, frames.pack({"client": "t", "token": "c" * 32}))
            assert consumer.status(type, frames.request(type, "q")) == S.OK
            answer = consumer.ask(type, frames.request(type, "q"), id=0)
            assert answer.status == S.BAD_REQUEST


def test_any_numbers_are_answered_and_leave_the_queue_whole(
    wire: Wire, queue: str, broker: shmq.Broker
) -> None:
    chance = random.Random(3)
    for n in range(50):
        wire.put(queue, bytes(n))
    values = (0, 1, 7, 49, 1 << 24, FOREVER)
    for _ in range(300):
        size = chance.choice((20, 40, 16))
        rest = b"".join(frames.u32(chance.choice(values)) for _ in range(size // 4))
        kind = chance.choice([T.COLUMNS, T.LEASE_RUN, T.LEASE_AGAIN, T.READ_RUN])
        wire.ask(kind, frames.name(queue) + rest[: chance.randrange(size)])
    assert sum(wire.counts(queue)) == 50
    with broker.queue(queue) as local:
        local.check()  # type: ignore[attr-defined]
