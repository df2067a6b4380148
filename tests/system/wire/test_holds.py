"""HOLD, byte by byte: what a connection keeps from being overwritten."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

import shmq
from tests.support.waiting import eventually
from tests.system.wire import frames
from tests.system.wire.client import Address, Wire
from tests.system.wire.entries import append, entry, fetch, hold, parts
from tests.system.wire.frames import FOREVER, S, T

#: More records of 1,000 bytes than the ring has room for.
ENDLESS = 200


@pytest.fixture
def stream(broker: shmq.Broker, name: str) -> Iterator[str]:
    """A stream of two small partitions that can be held back."""
    broker.create_stream(name, partitions=2, ring_bytes=64 << 10, overflow="block").close()
    yield name
    if name in [each.name for each in broker.list_streams()]:
        broker.delete_stream(name)


def fill(wire: Wire, stream: str, partition: int = 0) -> int:
    """Append for as long as there is room; how many that were."""
    request = append(stream, entry(bytes(1000)), partition=partition)
    for count in range(ENDLESS):
        if wire.status(T.APPEND, request) == S.QUEUE_FULL:
            return count
    return ENDLESS


def out_of_range(payload: bytes) -> tuple[int, int, int]:
    asked, earliest, latest = struct.unpack(">QQQ", payload)
    return asked, earliest, latest


def test_hello_names_the_feature(wire: Wire) -> None:
    assert "holds" in frames.unpack(wire.ok(T.HELLO, frames.pack({"client": "t"})))["features"]


def test_what_is_held_is_not_overwritten_until_it_is_moved_or_ends(wire: Wire, stream: str) -> None:
    assert wire.ok(T.HOLD, hold(stream, 7, (0, 0))) == b""
    filled = fill(wire, stream)
    assert filled < fill(wire, stream, 1) == ENDLESS  # of which nothing is held
    assert wire.ok(T.HOLD, hold(stream, 7, (0, 3))) == b""
    assert 1 <= fill(wire, stream) <= 4
    assert wire.ok(T.HOLD, hold(stream, 7, (0, 1))) == b""  # it goes forward alone
    assert fill(wire, stream) == 0
    assert wire.ok(T.HOLD, hold(stream, 7)) == b""
    assert fill(wire, stream) == ENDLESS
    assert wire.ok(T.HOLD, hold(stream, 7)) == b""  # there is none any more


def test_a_hold_that_fetches_answers_as_a_fetch_and_goes_along(wire: Wire, stream: str) -> None:
    wire.ok(T.HOLD, hold(stream, 1, (0, 0), (1, 0)))
    filled = fill(wire, stream)
    reading = fetch(stream, (0, 0), most=4)
    (part,) = parts(wire.ok(T.HOLD, hold(stream, 1, (0, 0), fetching=reading)))
    assert [each.offset for each in part.entries] == [0, 1, 2, 3]
    assert fill(wire, stream) == 0
    (part,) = parts(
        wire.ok(T.HOLD, hold(stream, 1, (0, 4), fetching=fetch(stream, (0, 4), most=4)))
    )
    assert [each.offset for each in part.entries] == [4, 5, 6, 7]
    assert fill(wire, stream) > 0
    late = wire.post(T.HOLD, hold(stream, 1, (1, 0), fetching=fetch(stream, (1, 0), wait=FOREVER)))
    wire.still_answers()
    wire.send(frames.frame(T.APPEND, append(stream, entry(b"x"), partition=1), 1000))
    answers = {answer.id: answer for answer in (wire.receive(), wire.receive())}
    assert [each.value for each in parts(answers[late].payload)[0].entries] == [b"x"]
    assert filled < ENDLESS


def test_where_records_are_gone_it_tells_and_keeps_what_is_left(wire: Wire, stream: str) -> None:
    assert fill(wire, stream) == ENDLESS
    answer = wire.ask(T.HOLD, hold(stream, 1, (1, 0), (0, 5), fetching=fetch(stream, (0, 5))))
    assert answer.status == S.OUT_OF_RANGE
    asked, earliest, latest = out_of_range(answer.payload)
    assert (asked, latest) == (5, ENDLESS)
    assert fill(wire, stream) < ENDLESS
    (part, *_) = parts(
        wire.ok(T.HOLD, hold(stream, 1, (0, earliest), fetching=fetch(stream, (0, earliest))))
    )
    assert part.entries[0].offset == earliest


def test_of_what_is_refused_nothing_is_held_that_was_not_before(wire: Wire, stream: str) -> None:
    reading = fetch(stream, (9, 0))  # no such partition exists
    assert wire.status(T.HOLD, hold(stream, 1, (0, 0), fetching=reading)) == S.BAD_REQUEST
    assert fill(wire, stream) == ENDLESS
    wire.ok(T.HOLD, hold(stream, 1, (1, 0)))
    places = (0, ENDLESS), (1, 0)
    assert wire.status(T.HOLD, hold(stream, 1, *places, fetching=reading)) == S.BAD_REQUEST
    assert fill(wire, stream) == ENDLESS
    assert fill(wire, stream, 1) < ENDLESS  # which was held before


def test_the_end_of_a_connection_ends_its_holds(wire: Wire, address: Address, stream: str) -> None:
    with Wire(address) as other:
        other.ok(T.HOLD, hold(stream, 1, (0, 0)))
        assert fill(wire, stream) < ENDLESS
    eventually(lambda: fill(wire, stream) == ENDLESS, "no reader holds it back")


def test_holds_of_two_connections_are_two(wire: Wire, address: Address, stream: str) -> None:
    with Wire(address) as other:
        other.ok(T.HOLD, hold(stream, 1, (0, 0)))
        wire.ok(T.HOLD, hold(stream, 1, (0, 0)))
        fill(wire, stream)
        wire.ok(T.HOLD, hold(stream, 1))
        assert fill(wire, stream) == 0


def test_a_connection_has_so_many_and_no_more(wire: Wire, stream: str) -> None:
    for number in range(16):
        wire.ok(T.HOLD, hold(stream, number, (0, 0)))
    answer = wire.ask(T.HOLD, hold(stream, 16, (0, 0)))
    assert answer.status == S.NO_SPACE
    assert b"16 subscriptions" in answer.payload
    wire.ok(T.HOLD, hold(stream, 3, (0, 0)))  # which it has
    wire.ok(T.HOLD, hold(stream, 3))
    wire.ok(T.HOLD, hold(stream, 16, (0, 0)))


def test_all_connections_together_leave_half_of_a_partition_to_the_host(
    broker: shmq.Broker, address: Address, stream: str
) -> None:
    wires = [Wire(address) for _ in range(9)]
    try:
        for wire in wires[:8]:
            for number in range(16):
                wire.ok(T.HOLD, hold(stream, number, (0, 0)))
        answer = wires[8].ask(T.HOLD, hold(stream, 0, (1, 0), (0, 0)))
        assert answer.status == S.NO_SPACE
        assert b"128 subscriptions" in answer.payload
        assert fill(wires[8], stream, 1) == ENDLESS  # the other was not kept, either
        with broker.stream(stream) as near:
            near.subscribe(policy="block").close()
        wires[0].ok(T.HOLD, hold(stream, 0))
        wires[8].ok(T.HOLD, hold(stream, 0, (0, 0)))
    finally:
        for wire in wires:
            wire.close()


def test_what_cannot_be_held_is_refused(wire: Wire, broker: shmq.Broker, stream: str) -> None:
    good = hold(stream, 1, (0, 0))
    for wrong in (
        good[:-1],
        good + b"x",  # too short for a FETCH
        hold(stream, 1, count=1),
        hold(stream, 1, count=0xFFFFFFFF),
        hold(stream, 1, (2, 0)),
        hold(stream, 1, (0, 0), (0xFFFFFFFF, 0)),
        hold(stream, 1, fetching=fetch(stream, (0, 0))),
        hold(stream, 1, (0, 0), fetching=fetch(stream, (0, 0), most=0)),
        b"",
    ):
        assert wire.status(T.HOLD, wrong) == S.BAD_REQUEST, wrong
    assert fill(wire, stream) == ENDLESS
    assert wire.status(T.HOLD, hold("none-such", 1, (0, 0))) == S.NO_QUEUE
    assert wire.status(T.HOLD, hold(stream, 1, (0, 0), identity=1)) == S.NO_QUEUE
    assert wire.status(T.HOLD, hold(stream, 1, (0, 1 << 63))) == S.OUT_OF_RANGE


def test_a_stream_that_overwrites_cannot_be_held_back(
    wire: Wire, broker: shmq.Broker, name: str
) -> None:
    broker.create_stream(name, 1).close()
    try:
        answer = wire.ask(T.HOLD, hold(name, 1, (0, 0)))
        assert answer.status == S.BAD_REQUEST
        assert b"overflow='block'" in answer.payload
    finally:
        broker.delete_stream(name)


def test_a_stream_that_is_deleted_takes_its_holds_along(
    wire: Wire, broker: shmq.Broker, stream: str
) -> None:
    wire.ok(T.HOLD, hold(stream, 1, (0, 0)))
    broker.delete_stream(stream)
    assert wire.status(T.HOLD, hold(stream, 1, (0, 0))) == S.NO_QUEUE
    broker.create_stream(stream, 2, ring_bytes=64 << 10, overflow="block").close()
    assert fill(wire, stream) == ENDLESS
    wire.ok(T.HOLD, hold(stream, 1, (1, 0)))
    assert fill(wire, stream, 1) < ENDLESS
