"""Streams, byte by byte: what the types from 0x60 on take, answer and refuse."""

from __future__ import annotations

import random
import signal
import struct
import time
from collections.abc import Callable, Iterator

import lz4.frame
import pytest

import shmq
from tests.system.wire import entries, frames
from tests.system.wire.client import Address, Wire
from tests.system.wire.conftest import Serve
from tests.system.wire.entries import append, appended, entry, fetch, parts
from tests.system.wire.frames import FOREVER, S, T

MAXIMUM = (1 << 64) - 1


@pytest.fixture
def stream(broker: shmq.Broker, name: str) -> Iterator[str]:
    """A stream of two partitions."""
    broker.create_stream(name, partitions=2, ring_bytes=1 << 20).close()
    yield name
    if name in [each.name for each in broker.list_streams()]:
        broker.delete_stream(name)


def identity_of(wire: Wire, stream: str) -> int:
    found: int = frames.unpack(wire.ok(T.STREAM_INFO, frames.name(stream)))["identity"]
    return found


def test_hello_names_the_feature(wire: Wire) -> None:
    assert "streams" in frames.unpack(wire.ok(T.HELLO, frames.pack({"client": "t"})))["features"]


def test_a_stream_is_made_shown_and_deleted(wire: Wire, name: str) -> None:
    assert wire.ok(T.STREAM_CREATE, frames.create(name, partitions=3, ring_bytes=1 << 20)) == b""
    assert wire.ok(T.STREAM_CREATE, frames.create(name, partitions=3, ring_bytes=1 << 20)) == b""
    assert wire.status(T.STREAM_CREATE, frames.create(name, partitions=2)) == S.QUEUE_EXISTS
    listed = {each["name"]: each for each in frames.unpack(wire.ok(T.STREAM_LIST))}
    assert (listed[name]["kind"], listed[name]["partitions"]) == ("stream", 3)
    info = frames.unpack(wire.ok(T.STREAM_INFO, frames.name(name)))
    assert (info["name"], info["partitions"], info["options"]["ring_bytes"]) == (name, 3, 1 << 20)
    assert [each["latest"] for each in info["offsets"]] == [0, 0, 0]
    assert wire.ok(T.STREAM_DELETE, frames.name(name)) == b""
    for kind in (T.STREAM_DELETE, T.STREAM_INFO):
        assert wire.status(kind, frames.name(name)) == S.NO_QUEUE


def test_what_is_appended_is_fetched_with_its_offsets(wire: Wire, stream: str) -> None:
    identity = identity_of(wire, stream)
    some = [entry(b"a", b"k"), entry(b"", b"", frames.pack({"h": 1})), entry(b"c" * 13, codec=1)]
    first, count, ns = appended(wire.ok(T.APPEND, append(stream, *some, identity=identity)))
    assert (first, count) == (0, 3)
    assert appended(wire.ok(T.APPEND, append(stream, entry(b"d"))))[0] == 3
    assert appended(wire.ok(T.APPEND, append(stream, entry(b"other"), partition=1)))[0] == 0
    payload = wire.ok(T.FETCH, fetch(stream, (0, 0), (1, 0), identity=identity))
    zero, one = parts(payload, identity)
    assert (zero.partition, zero.following, zero.latest) == (0, 4, 4)
    assert [each.offset for each in zero.entries] == [0, 1, 2, 3]
    assert [each.value for each in zero.entries] == [b"a", b"", b"c" * 13, b"d"]
    assert [each.key for each in zero.entries] == [b"k", b"", None, None]
    assert [each.headers for each in zero.entries] == [{}, {"h": 1}, {}, {}]
    assert [each.codec for each in zero.entries] == [0, 0, 1, 0]
    stamps = [each.timestamp for each in zero.entries]
    assert sorted(stamps) == stamps
    assert stamps[2] == ns > 1_600_000_000 * 10**9
    assert [each.value for each in one.entries] == [b"other"]


def test_a_fetch_is_bounded_and_goes_on(wire: Wire, stream: str) -> None:
    wire.ok(T.APPEND, append(stream, *(entry(b"%03d" % n) for n in range(100))))
    (part,) = parts(wire.ok(T.FETCH, fetch(stream, (0, 10), most=5)))
    assert (part.following, part.latest, len(part.entries)) == (15, 100, 5)
    (part,) = parts(wire.ok(T.FETCH, fetch(stream, (0, part.following), size=1)))
    assert [each.value for each in part.entries] == [b"015"]
    (part,) = parts(wire.ok(T.FETCH, fetch(stream, (0, 16), size=56 * 3)))
    assert len(part.entries) == 3
    assert wire.ok(T.FETCH, fetch(stream, (0, 100))) == b""


def test_a_fetch_that_waits_holds_nothing_back(wire: Wire, address: Address, stream: str) -> None:
    waiting = wire.post(T.FETCH, fetch(stream, (0, 0), (1, 0), wait=FOREVER))
    wire.still_answers()
    with Wire(address) as other:
        other.ok(T.APPEND, append(stream, entry(b"x"), partition=1))
    answer = wire.receive()
    assert (answer.id, answer.status) == (waiting, S.OK)
    assert [part.partition for part in parts(answer.payload)] == [1]


def test_a_fetch_whose_wait_is_over_is_ok_and_empty(wire: Wire, stream: str) -> None:
    assert wire.ok(T.FETCH, fetch(stream, (0, 0), wait=1)) == b""


def test_many_may_wait(wire: Wire, stream: str) -> None:
    waiting = [wire.post(T.FETCH, fetch(stream, (0, 0), wait=FOREVER)) for _ in range(50)]
    wire.send(frames.frame(T.APPEND, append(stream, entry(b"x")), 1000))
    found = {wire.receive().id for _ in range(51)}
    assert found == {*waiting, 1000}


def test_a_deleted_stream_ends_the_wait(
    wire: Wire, address: Address, broker: shmq.Broker, stream: str
) -> None:
    waiting = wire.post(T.FETCH, fetch(stream, (0, 0), wait=FOREVER))
    wire.still_answers()
    broker.delete_stream(stream)
    answer = wire.receive()
    assert (answer.id, answer.status) == (waiting, S.NO_QUEUE)


def test_another_stream_of_the_same_name_is_no_queue(
    wire: Wire, broker: shmq.Broker, stream: str
) -> None:
    identity = identity_of(wire, stream)
    broker.delete_stream(stream)
    broker.create_stream(stream, ring_bytes=1 << 20).close()
    assert wire.status(T.FETCH, fetch(stream, (0, 0), identity=identity)) == S.NO_QUEUE
    assert wire.status(T.APPEND, append(stream, entry(), identity=identity)) == S.NO_QUEUE
    assert wire.status(T.OFFSET_AT, entries.at(stream, 0, 0, identity)) == S.NO_QUEUE
    assert wire.ok(T.FETCH, fetch(stream, (0, 0))) == b""


def test_a_closed_half_ends_the_wait_and_answers_the_rest(wire: Wire, stream: str) -> None:
    wire.post(T.FETCH, fetch(stream, (0, 0), wait=FOREVER))
    asked = wire.post(T.APPEND, append(stream, entry(b"x"), partition=1))
    wire.finish()
    assert [each.id for each in wire.rest()] == [asked]


def test_an_offset_that_is_not_there_is_out_of_range(wire: Wire, stream: str) -> None:
    wire.ok(T.APPEND, append(stream, entry(b"x")))
    answer = wire.ask(T.FETCH, fetch(stream, (0, 2)))
    assert (answer.status, frames.read_u64s(answer.payload)) == (S.OUT_OF_RANGE, [2, 0, 1])
    assert wire.status(T.FETCH, fetch(stream, (0, MAXIMUM))) == S.OUT_OF_RANGE
    big = entry(bytes(100_000))
    for _ in range(30):
        wire.ok(T.APPEND, append(stream, big))
    answer = wire.ask(T.FETCH, fetch(stream, (0, 0)))
    asked, earliest, latest = frames.read_u64s(answer.payload)
    assert (answer.status, asked, latest) == (S.OUT_OF_RANGE, 0, 31)
    assert 0 < earliest < 31


def test_offset_at_finds_by_time(wire: Wire, stream: str) -> None:
    then = time.time_ns() // 10**9 * 10**9 - 60 * 10**9
    for n in range(3):
        wire.ok(T.APPEND, append(stream, entry(b"x", timestamp=then + n * 1_000_000_000)))
    found = [
        frames.read_u64s(wire.ok(T.OFFSET_AT, entries.at(stream, 0, then + ns)))[0]
        for ns in (-1_000_000_000, 0, 1_000_000_000, 1_500_000_000, 9_000_000_000)
    ]
    assert found == [0, 0, 1, 2, 3]


def test_every_entry_keeps_its_timestamp_and_says_by_which_time_it_is_found(
    wire: Wire, stream: str
) -> None:
    then, second = time.time_ns() - 60 * 10**9, 10**9
    stamps = [then, then - second, then + second, then + 10**18, then + 2 * second]
    some = [entry(b"v", b"k", timestamp=ns) for ns in stamps]
    before = time.time_ns()
    assert appended(wire.ok(T.APPEND, append(stream, *some)))[2] == stamps[-1]
    after = time.time_ns()
    (part,) = parts(wire.ok(T.FETCH, fetch(stream, (0, 0))))
    assert [each.timestamp for each in part.entries] == stamps
    seen = [each.seen for each in part.entries]
    assert seen[:3] == [then, then, then + second]
    assert before <= seen[3] == seen[4] <= after
    for ns, offset in [(then, 0), (then + 1, 2), (then + second + 1, 3), (after + second, 5)]:
        assert frames.read_u64s(wire.ok(T.OFFSET_AT, entries.at(stream, 0, ns))) == [offset]
    for wrong in (-1, (1 << 63) - 1):
        assert wire.status(T.APPEND, append(stream, entry(b"x", timestamp=wrong))) == S.BAD_REQUEST


def test_a_producers_records_are_appended_once(wire: Wire, stream: str) -> None:
    some = entry(b"a"), entry(b"b")
    assert appended(wire.ok(T.APPEND, append(stream, *some, producer=(7, 0))))[0] == 0
    again = wire.ask(T.APPEND, append(stream, *some, producer=(7, 0)))
    assert again.status == S.DUPLICATE
    assert appended(again.payload)[:2] == (0, 2)
    gap = wire.ask(T.APPEND, append(stream, entry(b"c"), producer=(7, 3)))
    assert (gap.status, frames.read_u64s(gap.payload)) == (S.OUT_OF_SEQUENCE, [2, 3])
    assert (
        appended(wire.ok(T.APPEND, append(stream, entry(b"c"), producer=(7, 3), flags=8)))[0] == 2
    )
    (part,) = parts(wire.ok(T.FETCH, fetch(stream, (0, 0))))
    assert [each.value for each in part.entries] == [b"a", b"b", b"c"]


PAIR = entry(b"a" * 40) + entry(b"a" * 40)
LZ4 = lz4.frame.compress(PAIR)


def test_what_is_compressed_stays_so(wire: Wire, stream: str) -> None:
    assert appended(wire.ok(T.APPEND, append(stream, LZ4, compression=1, count=2, raw=len(PAIR))))[
        :2
    ] == (0, 2)
    raw = wire.ok(T.FETCH, fetch(stream, (0, 1)))
    assert LZ4 in raw


BAD_APPENDS: dict[str, Callable[[str], bytes]] = {
    "nothing": frames.name,
    "half a head": lambda stream: append(stream)[:-1],
    "no record": lambda stream: append(stream, count=0),
    "fewer than it says": lambda stream: append(stream, entry(b"a"), count=2),
    "more than it says": lambda stream: append(stream, entry(b"a"), entry(b"b"), count=1),
    "count of 2^32-1": lambda stream: append(stream, entry(b"a"), count=FOREVER),
    "no such partition": lambda stream: append(stream, entry(), partition=2),
    "partition of 2^32-1": lambda stream: append(stream, entry(), partition=FOREVER),
    "an entry cut off": lambda stream: append(stream, entry(b"abc")[:-8], count=1),
    "bytes behind": lambda stream: append(stream, entry(b"a"), b"x", count=1),
    "words of 0": lambda stream: append(stream, entry(words=0)),
    "words of 2^32-1": lambda stream: append(stream, entry(words=FOREVER)),
    "words of 1": lambda stream: append(stream, entry(words=1)),
    "a value longer than all": lambda stream: append(stream, entry(b"a", value_bytes=FOREVER)),
    "a key longer than all": lambda stream: append(stream, entry(b"a", b"k", key_bytes=FOREVER)),
    "lengths that wrap": lambda stream: append(
        stream, entry(b"a", b"k", value_bytes=1 << 31, key_bytes=1 << 31, headers_bytes=2)
    ),
    "headers longer than all": lambda stream: append(stream, entry(b"a", headers=b"h" * 9)[:-8]),
    "another type": lambda stream: append(stream, entry(b"a", type=1)),
    "an unknown flag": lambda stream: append(stream, entry(b"a", flags=0x80)),
    "a producer of its own": lambda stream: append(stream, entry(bytes(16), flags=1)),
    "a count of its own": lambda stream: append(stream, entry(b"a", count=9)),
    "a count of 0": lambda stream: append(stream, entry(b"a", count=0)),
    "a compression of its own": lambda stream: append(stream, entry(b"a", compression=1)),
    "no such codec": lambda stream: append(stream, entry(b"a", codec=77)),
    "headers that are none": lambda stream: append(stream, entry(b"a", None, b"\xc1")),
    "half a producer": lambda stream: append(stream, flags=4, count=1) + bytes(15),
    "compressed junk": lambda stream: append(stream, b"junk", compression=1, count=3, raw=144),
    "compressed junk of 4 GiB": lambda stream: append(
        stream, LZ4, compression=1, count=2, raw=FOREVER
    ),
    "fewer compressed than it says": lambda stream: append(
        stream, LZ4, compression=1, count=3, raw=len(PAIR) + 48
    ),
    "more compressed than it says": lambda stream: append(
        stream, LZ4, compression=1, count=1, raw=len(PAIR)
    ),
    "another compression than it says": lambda stream: append(
        stream, LZ4, compression=2, count=2, raw=len(PAIR)
    ),
    "what is compressed is not a list of entries": lambda stream: append(
        stream, lz4.frame.compress(bytes(112)), compression=1, count=2, raw=112
    ),
}


@pytest.mark.parametrize("bad", BAD_APPENDS)
def test_what_is_no_append_is_bad_request_and_appends_nothing(
    wire: Wire, stream: str, bad: str
) -> None:
    assert wire.status(T.APPEND, BAD_APPENDS[bad](stream)) == S.BAD_REQUEST
    info = frames.unpack(wire.ok(T.STREAM_INFO, frames.name(stream)))
    assert [each["latest"] for each in info["offsets"]] == [0, 0]


def test_what_no_append_knows_is_unsupported(wire: Wire, stream: str) -> None:
    for payload in (
        append(stream, entry(), flags=0x40),
        append(stream, entry(), compression=9),
        append(stream, entry(), flags=2),  # it keeps no journal
    ):
        assert wire.status(T.APPEND, payload) == S.UNSUPPORTED
    assert wire.ok(T.FETCH, fetch(stream, (0, 0))) == b""


def test_a_record_that_is_too_large_is_refused(wire: Wire, stream: str) -> None:
    assert wire.status(T.APPEND, append(stream, entry(bytes(1 << 19)))) == S.TOO_LARGE


@pytest.mark.parametrize(
    ("kind", "rest"),
    [
        (T.STREAM_CREATE, b"\xc1"),
        (T.STREAM_CREATE, frames.pack({"nope": 1})),
        (T.STREAM_CREATE, frames.pack({"partitions": 0})),
        (T.STREAM_CREATE, frames.pack({"partitions": "4"})),
        (T.STREAM_DELETE, b"x"),
        (T.STREAM_INFO, b"x"),
        (T.STREAM_INFO, frames.pack({"producer": -1})),
        (T.STREAM_INFO, frames.pack({"producer": 1 << 63})),
        (T.STREAM_INFO, frames.pack({"producer": "me"})),
        (T.FETCH, b""),
        (T.FETCH, struct.pack(">QIIII", 0, 1, 1, 0, 0)),
        (T.FETCH, struct.pack(">QIIIIIQ", 0, 0, 1, 0, 1, 0, 0)),
        (T.FETCH, struct.pack(">QIIIIIQ", 0, 1, 0, 0, 1, 0, 0)),
        (T.FETCH, struct.pack(">QIIIIIQ", 0, 1, 1, 0, 2, 0, 0)),
        (T.FETCH, struct.pack(">QIIIIIQ", 0, 1, 1, 0, FOREVER, 0, 0)),
        (T.FETCH, struct.pack(">QIIIIIQ", 0, 1, 1, 0, 1, 2, 0)),
        (T.OFFSET_AT, b""),
        (T.OFFSET_AT, struct.pack(">QIQ", 0, 0, 0) + b"x"),
        (T.OFFSET_AT, struct.pack(">QIQ", 0, 2, 0)),
        (T.OFFSET_AT, struct.pack(">QIQ", 0, 0, 1 << 63)),
    ],
)
def test_what_is_not_of_the_form_is_bad_request(
    wire: Wire, stream: str, kind: T, rest: bytes
) -> None:
    assert wire.status(kind, frames.name(stream) + rest) == S.BAD_REQUEST
    assert wire.status(kind, rest[:1]) == S.BAD_REQUEST
    wire.still_answers()


def test_a_list_carries_nothing(wire: Wire, stream: str) -> None:
    assert wire.status(T.STREAM_LIST, frames.name(stream)) == S.BAD_REQUEST
    assert wire.status(T.STREAM_LIST, b"x") == S.BAD_REQUEST


RIGHTS: dict[str, tuple[T, bytes, str | None]] = {
    "create": (T.STREAM_CREATE, frames.create("s"), "admin"),
    "delete": (T.STREAM_DELETE, frames.name("s"), "admin"),
    "info": (T.STREAM_INFO, frames.name("s"), None),
    "append": (T.APPEND, append("s", entry()), "produce"),
    "fetch": (T.FETCH, fetch("s", (0, 0)), "consume"),
    "hold": (T.HOLD, entries.hold("s", 1), "consume"),
    "offset at": (T.OFFSET_AT, entries.at("s", 0, 0), "consume"),
    "repartition": (T.REPARTITION, frames.name("s") + struct.pack(">QI", 0, 5), "admin"),
}


@pytest.mark.prove
def test_each_takes_its_right(serve: Serve) -> None:
    held: dict[str, dict[str, list[str]]] = {
        right[0] * 32: {right: ["s"]} for right in ("produce", "consume", "admin")
    } | {"n" * 32: {"admin": ["other"]}}
    with serve(workers=1, tokens=held) as server, shmq.connect(server.namespace) as broker:
        found, expected = {}, {}
        for token, rights in held.items():
            for what, (kind, payload, right) in RIGHTS.items():
                broker.ensure_stream("s", ring_bytes=1 << 20).close()
                with Wire(server.address) as wire:
                    wire.ok(T.HELLO, frames.pack({"client": "t", "token": token}))
                    found[token[0], what] = wire.status(kind, payload)
                    if token[0] == "n":
                        assert frames.unpack(wire.ok(T.STREAM_LIST)) == []
                known = "s" in next(iter(rights.values()))
                allowed = known and (right is None or right in rights)
                expected[token[0], what] = S.OK if allowed else S.FORBIDDEN if known else S.NO_QUEUE
        expected["a", "create"] = S.QUEUE_EXISTS  # with other options
        broker.delete_stream("s")
    assert found == expected


@pytest.mark.prove
def test_a_server_that_ends_tells_waiting_clients(serve: Serve) -> None:
    with serve(workers=1) as server, shmq.connect(server.namespace) as broker:
        broker.create_stream("s", ring_bytes=1 << 20).close()
        with Wire(server.address) as wire:
            waiting = wire.post(T.FETCH, fetch("s", (0, 0), wait=FOREVER))
            wire.still_answers()
            server.signal(signal.SIGTERM)
            answer = wire.receive()
            assert (answer.id, answer.status) == (waiting, S.SHUTTING_DOWN)
            assert wire.status(T.APPEND, append("s", entry())) == S.SHUTTING_DOWN
        assert server.ends() == 0
        broker.delete_stream("s")


def test_any_bytes_are_answered_and_the_server_lives(wire: Wire, stream: str) -> None:
    chance = random.Random(5)
    good = append(stream, entry(b"abc", b"k"), entry(b"d", headers=frames.pack({"h": 1})))
    cut = len(frames.name(stream))
    for _ in range(400):
        payload = bytearray(good)
        for _ in range(chance.randrange(1, 4)):
            payload[chance.randrange(cut, len(payload))] = chance.choice((0, 1, 0x7F, 0xFF))
        kind = chance.choice([T.APPEND, T.FETCH, T.OFFSET_AT])
        wire.ask(kind, bytes(payload[: chance.randrange(cut, len(payload) + 1)]))
    info = frames.unpack(wire.ok(T.STREAM_INFO, frames.name(stream)))
    for partition, each in enumerate(info["offsets"]):
        following = each["earliest"]
        while following < each["latest"]:
            (part,) = parts(wire.ok(T.FETCH, fetch(stream, (partition, following), size=1 << 20)))
            following = part.following


def repartition(stream: str, partitions: int, identity: int = 0) -> bytes:
    return frames.name(stream) + struct.pack(">QI", identity, partitions)


def test_a_stream_gets_more_partitions(wire: Wire, stream: str) -> None:
    wire.ok(T.APPEND, append(stream, entry(b"a", b"k"), partition=1))
    answer = wire.ok(T.REPARTITION, repartition(stream, 3, identity_of(wire, stream)))
    assert struct.unpack(">II", answer) == (2, 5)
    info = frames.unpack(wire.ok(T.STREAM_INFO, frames.name(stream)))
    assert (info["partitions"], info["options"]["partitions"]) == (5, 3)
    assert [each["sealed"] for each in info["offsets"]] == [True, True, False, False, False]
    assert [each["behind"] for each in info["offsets"]] == [0, 0, 2, 2, 2]
    assert wire.status(T.APPEND, append(stream, entry(b"b", b"k"), partition=1)) == S.FENCED
    assert appended(wire.ok(T.APPEND, append(stream, entry(b"b", b"k"), partition=4)))[0] == 0


def test_each_partition_says_what_a_producer_has_appended_to_it(wire: Wire, stream: str) -> None:
    most = (1 << 63) - 1
    wire.ok(T.APPEND, append(stream, entry(b"a"), entry(b"b"), partition=1, producer=(most, 8)))
    asked = frames.name(stream) + frames.pack({"producer": most})
    assert frames.unpack(wire.ok(T.STREAM_INFO, asked))["produced"] == [None, 9]
    assert frames.unpack(wire.ok(T.STREAM_INFO, frames.name(stream)))["produced"] is None


def test_what_cannot_be_more_partitions_is_refused(wire: Wire, stream: str) -> None:
    for partitions in (0, 2, 1023, 1 << 31):
        asked = repartition(stream, partitions)
        assert wire.status(T.REPARTITION, asked) == S.BAD_REQUEST
    for wrong in (frames.name(stream), repartition(stream, 3) + b"x"):
        assert wire.status(T.REPARTITION, wrong) == S.BAD_REQUEST
    assert wire.status(T.REPARTITION, repartition(stream, 3, 1)) == S.NO_QUEUE
    assert wire.status(T.REPARTITION, repartition("none-such", 3)) == S.NO_QUEUE
