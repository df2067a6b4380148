"""Groups of consumers of a stream, byte by byte: JOIN to STREAM_GROUPS."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shmq
from tests.support.server import Server
from tests.system.wire import frames
from tests.system.wire.client import Address, Wire
from tests.system.wire.conftest import Serve
from tests.system.wire.entries import append, entry, fetch
from tests.system.wire.frames import FOREVER, S, T

NONE = (1 << 64) - 1
SHARED = {"shared": True, "lease": 60.0}


@pytest.fixture
def stream(broker: shmq.Broker, name: str) -> Iterator[str]:
    """A stream of two partitions, ten records in each."""
    with broker.create_stream(name, partitions=2, ring_bytes=1 << 20) as made:
        for partition in (0, 1):
            made.append_many([b"%d" % n for n in range(10)], partition=partition)
    yield name
    if name in [each.name for each in broker.list_streams()]:
        broker.delete_stream(name)


def member(stream: str, id: int = 0, rest: bytes = b"", group: str = "g", stamp: int = 0) -> bytes:
    return frames.name(stream) + frames.name(group) + frames.u64(stamp, id) + rest


def join(wire: Wire, stream: str, **options: object) -> int:
    answer = frames.unpack(wire.ok(T.JOIN, member(stream, 0, frames.pack(options))))
    assert answer["options"]["assignment"] == ("shared" if options.get("shared") else "range")
    found: int = answer["member"]
    return found


def beat(wire: Wire, stream: str, id: int, known: int = 0) -> tuple[int, list[tuple[int, ...]]]:
    payload = wire.ok(T.HEARTBEAT, member(stream, id, frames.u64(known)))
    change = struct.unpack_from(">Q", payload)[0]
    return change, list(struct.iter_unpack(">QQQ", payload[8:]))


def places(*pairs: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">IQ", *pair) for pair in pairs)


def seats(wire: Wire, stream: str, id: int, takes: int, *partitions: int) -> list[int]:
    rest = bytes([takes]) + places(*((p, 0) for p in partitions))
    payload = wire.ok(T.SEATS, member(stream, id, rest))
    return [each for (each,) in struct.iter_unpack(">I", payload)]


def take(
    wire: Wire, stream: str, id: int, most: int = 100, handed: int = 1
) -> list[tuple[int, ...]]:
    payload = wire.ok(T.SHARE_TAKE, member(stream, id, frames.u32(most) + bytes([handed])))
    count = struct.unpack_from(">I", payload, 8)[0]
    return list(struct.iter_unpack(">QIQI", payload[12 + 8 * count :]))


def settle(stream: str, id: int, action: int, *receipts: int, ns: int = 0) -> bytes:
    return member(stream, id, struct.pack(">BQ", action, ns) + frames.u64(*receipts))


def look(wire: Wire, stream: str, **more: object) -> dict[str, Any]:
    asked = frames.pack({"action": "look", "group": "g", **more})
    found: dict[str, Any] = frames.unpack(wire.ok(T.STREAM_GROUPS, frames.name(stream) + asked))
    return found


def test_a_member_takes_what_is_meant_for_it_and_commits(wire: Wire, stream: str) -> None:
    one = join(wire, stream, member="one")
    change, found = beat(wire, stream, one)
    assert found == [(0, one, NONE), (0, one, NONE)]
    assert seats(wire, stream, one, 1, 0, 1) == [0, 1]
    assert wire.ok(T.COMMIT, member(stream, one, places((0, 7), (1, 3)))) == b""
    changed, found = beat(wire, stream, one, change)
    assert found == [(one, one, 7), (one, one, 3)]
    assert beat(wire, stream, one, changed) == (changed, [])
    shown = look(wire, stream)
    assert [row[2] for row in shown["seats"]] == [7, 3]
    assert [row[2] for row in shown["members"]] == ["one"]


def test_partitions_move_when_they_were_left(wire: Wire, address: Address, stream: str) -> None:
    one = join(wire, stream)
    beat(wire, stream, one)
    assert seats(wire, stream, one, 1, 0, 1) == [0, 1]
    with Wire(address) as other:
        two = join(other, stream)
        assert beat(other, stream, two)[1] == [(one, one, NONE), (one, two, NONE)]
        assert seats(other, stream, two, 1, 0, 1) == []
        assert seats(wire, stream, one, 0, 1) == [1]
        assert seats(other, stream, two, 1, 0, 1) == [1]
        refused = wire.ask(T.COMMIT, member(stream, one, places((0, 5), (1, 5))))
        assert (refused.status, refused.payload) == (S.FENCED, frames.u32(1))
        other.ok(T.COMMIT, member(stream, two, places((1, 4))))
        other.finish()
        assert other.rest() == []
    assert beat(wire, stream, one)[1] == [(one, one, 5), (0, one, 4)]


def test_a_member_is_one_of_its_connection(wire: Wire, address: Address, stream: str) -> None:
    one = join(wire, stream)
    with Wire(address) as other:
        assert other.status(T.HEARTBEAT, member(stream, one, frames.u64(0))) == S.FENCED
        assert other.status(T.LEAVE, member(stream, one)) == S.FENCED
        assert other.status(T.COMMIT, member(stream, one, places((0, 1)))) == S.FENCED
    beat(wire, stream, one)
    assert wire.ok(T.LEAVE, member(stream, one)) == b""
    for kind, rest in (
        (T.LEAVE, b""),
        (T.HEARTBEAT, frames.u64(0)),
        (T.SEATS, b"\1"),
        (T.COMMIT, b""),
        (T.SHARE_TAKE, frames.u32(1) + b"\1"),
        (T.SHARE_SETTLE, bytes(9)),
    ):
        assert wire.status(kind, member(stream, one, rest)) in {S.FENCED, S.BAD_REQUEST}
    assert look(wire, stream)["members"] == []


def test_a_silent_member_is_fenced(wire: Wire, stream: str) -> None:
    one = join(wire, stream, session_timeout=0.001)
    while wire.ask(T.HEARTBEAT, member(stream, one, frames.u64(0))).status != S.FENCED:
        two = join(wire, stream)  # another one's beat finds the silent ones
        wire.ask(T.HEARTBEAT, member(stream, two, frames.u64(0)))
    assert join(wire, stream) > one


def test_partitions_without_an_owner_are_committed_without_a_member(
    wire: Wire, stream: str
) -> None:
    look(wire, stream)
    assert wire.ok(T.COMMIT, member(stream, 0, places((0, 2), (1, 9)))) == b""
    one = join(wire, stream)
    beat(wire, stream, one)
    seats(wire, stream, one, 1, 0)
    refused = wire.ask(T.COMMIT, member(stream, 0, places((0, 1), (1, 1))))
    assert (refused.status, refused.payload) == (S.FENCED, frames.u32(0))
    assert [row[2] for row in look(wire, stream)["seats"]] == [2, 1]


def test_records_are_lent_settled_and_lent_again(wire: Wire, stream: str) -> None:
    one = join(wire, stream, **SHARED, max_deliveries=2)
    lent = take(wire, stream, one, 20)
    assert sorted(row[1:] for row in lent) == [(p, n, 0) for p in (0, 1) for n in range(10)]
    assert take(wire, stream, one) == []
    receipts = [row[0] for row in lent]
    assert wire.ok(T.SHARE_SETTLE, settle(stream, one, 1, *receipts[:10])) == b""
    refused = wire.ask(T.SHARE_SETTLE, settle(stream, one, 1, *receipts[8:12]))
    assert (refused.status, frames.read_u64s(refused.payload)) == (S.LEASE_EXPIRED, receipts[8:10])
    wire.ok(T.SHARE_SETTLE, settle(stream, one, 2, receipts[12]))
    wire.ok(T.SHARE_SETTLE, settle(stream, one, 3, receipts[13]))
    wire.ok(T.SHARE_SETTLE, settle(stream, one, 4, receipts[14], ns=10**9))
    (again,) = take(wire, stream, one)
    assert again[1:] == (*lent[12][1:3], 1)
    asked = frames.name(stream) + frames.pack({"action": "list"})
    (row,) = frames.unpack(wire.ok(T.STREAM_GROUPS, asked))
    assert (row["assignment"], row["acked"], row["dropped"]) == ("shared", 12, 1)


def test_what_was_not_handed_does_not_count(wire: Wire, address: Address, stream: str) -> None:
    with Wire(address) as other:
        one = join(other, stream, **SHARED)
        lent = take(other, stream, one, 3, handed=0)
        other.ok(T.SHARE_SETTLE, settle(stream, one, 5, lent[0][0]))
        other.finish()
        assert other.rest() == []
    two = join(wire, stream, **SHARED)
    again = {row[1:3]: row[3] for row in take(wire, stream, two)}
    assert [again[row[1:3]] for row in lent] == [1, 0, 0]


def test_a_record_that_is_returned_uncounted_may_wait(wire: Wire, stream: str) -> None:
    one = join(wire, stream, **SHARED, max_deliveries=1)
    first, second = take(wire, stream, one, 2)
    wire.ok(T.SHARE_SETTLE, settle(stream, one, 7, first[0]))
    wire.ok(T.SHARE_SETTLE, settle(stream, one, 7, second[0], ns=60 * 10**9))
    (again,) = take(wire, stream, one, 1)
    assert again[1:] == (*first[1:3], 0)
    assert wire.status(T.SHARE_SETTLE, settle(stream, one, 8, again[0])) == S.BAD_REQUEST


def test_a_group_is_listed_and_deleted(wire: Wire, stream: str) -> None:
    look(wire, stream)
    asked = frames.name(stream) + frames.pack({"action": "list"})
    (row,) = frames.unpack(wire.ok(T.STREAM_GROUPS, asked))
    assert (row["name"], row["assignment"], row["lag"]) == ("g", "range", 20)
    gone = frames.name(stream) + frames.pack({"action": "delete", "group": "g"})
    wire.ok(T.STREAM_GROUPS, gone)
    assert wire.status(T.STREAM_GROUPS, gone) == S.NO_GROUP
    assert frames.unpack(wire.ok(T.STREAM_GROUPS, asked)) == []


def test_a_look_and_a_reset_may_find_no_group(wire: Wire, stream: str) -> None:
    asked = frames.name(stream) + frames.pack({"action": "look", "group": "g", "create": False})
    assert wire.status(T.STREAM_GROUPS, asked) == S.NO_GROUP
    assert wire.status(T.COMMIT, member(stream, 0, places((0, 2)))) == S.NO_GROUP
    assert listed(wire, stream) == []
    look(wire, stream, assignment="sticky")
    assert frames.unpack(wire.ok(T.STREAM_GROUPS, asked))["options"]["assignment"] == "sticky"


def test_a_group_of_another_kind_is_bad_request(wire: Wire, stream: str) -> None:
    join(wire, stream)
    for options in (SHARED, {"assignment": "sticky"}):
        asked = member(stream, 0, frames.pack(options))
        assert wire.status(T.JOIN, asked) == S.BAD_REQUEST


@pytest.mark.parametrize(
    ("kind", "rest"),
    [
        (T.JOIN, b""),
        (T.JOIN, b"\xc1"),
        (T.JOIN, frames.pack({"nope": 1})),
        (T.JOIN, frames.pack({"member": 1})),
        (T.JOIN, frames.pack({"assignment": "best"})),
        (T.JOIN, frames.pack({"session_timeout": "1"})),
        (T.JOIN, frames.pack({"session_timeout": -1})),
        (T.JOIN, frames.pack({"shared": True, "held": 1 << 40})),
        (T.HEARTBEAT, b""),
        (T.HEARTBEAT, bytes(9)),
        (T.SEATS, b""),
        (T.SEATS, b"\2"),
        (T.SEATS, b"\1" + bytes(11)),
        (T.SEATS, b"\1" + places((2, 0))),
        (T.COMMIT, bytes(11)),
        (T.COMMIT, places((2, 0))),
        (T.COMMIT, places((FOREVER, 0))),
        (T.COMMIT, places((0, 1 << 63))),
        (T.SHARE_TAKE, b""),
        (T.SHARE_TAKE, frames.u32(0) + b"\1"),
        (T.SHARE_TAKE, frames.u32(1) + b"\2"),
        (T.SHARE_TAKE, frames.u32(1) + b"\1"),
        (T.SHARE_SETTLE, bytes(8)),
        (T.SHARE_SETTLE, bytes(9)),
        (T.SHARE_SETTLE, b"\1" + bytes(9)),
        (T.SHARE_SETTLE, b"\10" + bytes(8)),
        (T.SHARE_SETTLE, b"\2" + b"\xff" * 8),
    ],
)
def test_what_is_not_of_the_form_is_bad_request(
    wire: Wire, stream: str, kind: T, rest: bytes
) -> None:
    one = 0 if kind == T.JOIN else join(wire, stream)
    assert wire.status(kind, member(stream, one, rest)) == S.BAD_REQUEST
    wire.still_answers()


HEADS: dict[str, Callable[[str], bytes]] = {
    "no group": frames.name,
    "half a group": lambda stream: frames.name(stream) + b"\0\5ab",
    "no number": lambda stream: frames.name(stream) + frames.name("g") + bytes(15),
    "a bad name": lambda stream: member(stream, 1, bytes(8), group="a/b"),
    "an empty name": lambda stream: member(stream, 1, bytes(8), group=""),
    "a name that is too long": lambda stream: member(stream, 1, bytes(8), group="x" * 101),
    "bytes that are no name": lambda stream: (
        frames.name(stream) + frames.name(b"\xff\xfe") + bytes(16)
    ),
}


@pytest.mark.parametrize("bad", HEADS)
def test_a_head_that_is_none_is_bad_request(wire: Wire, stream: str, bad: str) -> None:
    payload = HEADS[bad](stream)
    for kind in (T.JOIN, T.HEARTBEAT, T.SEATS, T.COMMIT, T.LEAVE, T.SHARE_TAKE, T.SHARE_SETTLE):
        assert wire.status(kind, payload) == S.BAD_REQUEST
    wire.still_answers()


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"action": 1},
        {"action": "drop", "group": "g"},
        {"action": "look"},
        {"action": "look", "group": 5},
        {"action": "look", "group": "a/b"},
        {"action": "look", "group": "g", "nope": 1},
        {"action": "look", "group": "g", "create": 0},
        {"action": "list", "identity": "x"},
    ],
)
def test_what_no_look_at_groups_has_is_bad_request(
    wire: Wire, stream: str, asked: dict[str, object]
) -> None:
    payload = frames.name(stream) + frames.pack(asked)
    assert wire.status(T.STREAM_GROUPS, payload) == S.BAD_REQUEST


def test_another_stream_of_the_same_name_has_no_such_member(
    wire: Wire, broker: shmq.Broker, stream: str
) -> None:
    identity = frames.unpack(wire.ok(T.STREAM_INFO, frames.name(stream)))["identity"]
    one = join(wire, stream)
    broker.delete_stream(stream)
    assert wire.status(T.HEARTBEAT, member(stream, one, frames.u64(0))) == S.NO_QUEUE
    broker.create_stream(stream, ring_bytes=1 << 20).close()
    asked = member(stream, one, frames.u64(0), stamp=identity)
    assert wire.status(T.HEARTBEAT, asked) == S.NO_QUEUE
    assert wire.status(T.HEARTBEAT, member(stream, one, frames.u64(0))) == S.FENCED


def let_in(server: Server, token: str) -> Wire:
    wire = Wire(server.address)
    wire.ok(T.HELLO, frames.pack({"client": "t", "token": token}))
    return wire


@pytest.mark.prove
def test_it_takes_the_right_to_consume(serve: Serve) -> None:
    held = {"p" * 32: {"produce": ["*"]}, "c" * 32: {"consume": ["s"]}}
    with serve(workers=1, tokens=held) as server, shmq.connect(server.namespace) as broker:
        broker.create_stream("s", ring_bytes=1 << 20).close()
        with let_in(server, "p" * 32) as wire:
            assert wire.status(T.JOIN, member("s", 0, frames.pack({}))) == S.FORBIDDEN
            asked = frames.name("s") + frames.pack({"action": "list"})
            assert wire.status(T.STREAM_GROUPS, asked) == S.FORBIDDEN
        with let_in(server, "c" * 32) as wire:
            join(wire, "s")
            buried = frames.pack({**SHARED, "dead_letter": "elsewhere"})
            assert wire.status(T.JOIN, member("s", 0, buried, group="h")) == S.FORBIDDEN
            assert wire.status(T.JOIN, member("t", 0, frames.pack({}))) == S.NO_QUEUE
        broker.delete_stream("s")


RESET = places((0, 0))


def groups(stream: str, action: str, **more: object) -> bytes:
    return frames.name(stream) + frames.pack({"action": action, **more})


@pytest.mark.prove
def test_deleting_or_resetting_a_group_takes_admin(serve: Serve) -> None:
    held = {"c" * 32: {"consume": ["s"]}, "a" * 32: {"admin": ["s"]}}
    with serve(workers=1, tokens=held) as server, shmq.connect(server.namespace) as broker:
        broker.create_stream("s", ring_bytes=1 << 20).close()
        with let_in(server, "c" * 32) as wire:
            look(wire, "s")
            assert wire.status(T.COMMIT, member("s", 0, RESET)) == S.FORBIDDEN
            asked = groups("s", "delete", group="g")
            assert wire.status(T.STREAM_GROUPS, asked) == S.FORBIDDEN
            assert look(wire, "s")["seats"][0][2] is None
        with let_in(server, "a" * 32) as wire:
            assert wire.status(T.JOIN, member("s", 0, frames.pack({}))) == S.FORBIDDEN
            assert wire.ok(T.COMMIT, member("s", 0, RESET)) == b""
            assert look(wire, "s")["seats"][0][2] == 0
            assert [each["name"] for each in listed(wire, "s")] == ["g"]
            wire.ok(T.STREAM_GROUPS, asked)
            assert listed(wire, "s") == []
        broker.delete_stream("s")


def listed(wire: Wire, stream: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = frames.unpack(wire.ok(T.STREAM_GROUPS, groups(stream, "list")))
    return found


@pytest.mark.prove
def test_a_token_may_have_rights_to_single_groups(serve: Serve) -> None:
    held = {"c" * 32: {"consume": ["s/g*"], "admin": ["s/old"]}}
    with serve(workers=1, tokens=held) as server, shmq.connect(server.namespace) as broker:
        broker.create_stream("t", ring_bytes=1 << 20).close()
        with broker.create_stream("s", 1, ring_bytes=1 << 20) as stream:
            stream.append(b"x")
            for group in ("g", "old", "other"):
                stream.group(group).reset("earliest")
        with let_in(server, "c" * 32) as wire:
            assert [each["name"] for each in frames.unpack(wire.ok(T.STREAM_LIST))] == ["s"]
            assert [each["name"] for each in listed(wire, "s")] == ["g", "old"]
            join(wire, "s")
            assert wire.status(T.FETCH, fetch("s", (0, 0))) == S.OK, "a member reads the stream"
            for group in ("old", "other"):
                asked = member("s", 0, frames.pack({}), group=group)
                assert wire.status(T.JOIN, asked) == S.FORBIDDEN
            for group, status in (("g", S.FORBIDDEN), ("old", S.OK), ("other", S.FORBIDDEN)):
                assert wire.status(T.COMMIT, member("s", 0, RESET, group=group)) == status
                asked = groups("s", "delete", group=group)
                assert wire.status(T.STREAM_GROUPS, asked) == status
            assert wire.status(T.APPEND, append("s", entry(b"x"))) == S.FORBIDDEN
            assert wire.status(T.STREAM_DELETE, frames.name("s")) == S.FORBIDDEN
            assert wire.status(T.STREAM_INFO, frames.name("t")) == S.NO_QUEUE
            assert wire.status(T.JOIN, member("t", 0, frames.pack({}))) == S.NO_QUEUE
        for name in ("s", "t"):
            broker.delete_stream(name)


def test_any_bytes_are_answered(wire: Wire, stream: str) -> None:
    chance = random.Random(7)
    one = join(wire, stream)
    kinds = [T.HEARTBEAT, T.SEATS, T.COMMIT, T.SHARE_TAKE, T.SHARE_SETTLE, T.LEAVE, T.JOIN]
    head = len(member(stream))
    for _ in range(400):
        payload = bytearray(member(stream, one, bytes(chance.randrange(30))))
        for _ in range(chance.randrange(4)):
            payload[chance.randrange(head - 24, len(payload))] = chance.randrange(256)
        wire.ask(
            chance.choice(kinds), bytes(payload[: chance.randrange(head - 20, len(payload) + 1)])
        )
    wire.ok(T.APPEND, append(stream, entry(b"x")))
    wire.still_answers()
