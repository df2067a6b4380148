"""Frames: the header, splits at every byte, pipelining and order, message id 0."""

from __future__ import annotations

import struct

import pytest

from tests.system.wire import frames
from tests.system.wire.client import Address, Wire
from tests.system.wire.frames import FOREVER, OPERATIONS, SILENT, UNUSED, Frame, S, T, frame

#: Requests that a queue with messages answers with OK, whatever their order, and by one frame.
REQUESTS = sorted(
    each for each in OPERATIONS if each < T.COLUMNS and each not in (T.SUBSCRIBE, T.UNSUBSCRIBE)
)


def test_an_answer_has_the_header_of_the_contract_byte_for_byte(wire: Wire) -> None:
    wire.send(bytes.fromhex("deadbeef 00000003 02 01 0000 01020304 616263"))

    answer = wire.socket.recv(100)

    assert answer == bytes.fromhex("deadbeef 00000003 7f 01 0000 01020304 616263")


def test_the_status_of_a_request_is_ignored(wire: Wire) -> None:
    wire.send(frame(T.PING, b"x", 5, status=0x8001))

    assert wire.receive() == Frame(T.REPLY, S.OK, 5, b"x")


@pytest.mark.parametrize("id", [1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
def test_every_message_id_but_0_is_echoed(wire: Wire, id: int) -> None:
    assert wire.ask(T.PING, b"", id) == Frame(T.REPLY, S.OK, id, b"")


def test_a_message_id_may_be_that_of_another_request_under_way(wire: Wire) -> None:
    wire.send(frame(T.PING, b"1", 9), frame(T.PING, b"2", 9))

    assert [wire.receive().payload for _ in range(2)] == [b"1", b"2"]


@pytest.mark.parametrize("type", REQUESTS, ids=lambda each: each.name)
def test_a_frame_may_come_in_two_pieces_that_part_at_any_byte(
    address: Address, wire: Wire, queue: str, type: T
) -> None:
    whole = frame(type, frames.request(type, queue), 77)
    wire.ok(T.DELETE, frames.name(queue))  # it has other options than the table's CREATE
    for at in range(1, len(whole)):
        wire.create(queue, dead_letter=None)
        wire.put(queue, b"there")
        # What is answered was received, and with it the first piece.
        wire.send(frame(T.PING, b"", 76), whole[:at])
        assert wire.receive().id == 76
        wire.send(whole[at:])

        answer = wire.receive()

        assert (answer.status & ~frames.MORE, answer.id) == (S.OK, 77), at
    with Wire(address) as another:
        another.still_answers()


def test_frames_may_come_byte_by_byte(wire: Wire, queue: str) -> None:
    for byte in frame(T.PRODUCE, frames.produce(queue, b"slowly"), 3) + frame(T.PING, b"", 4):
        wire.send(bytes([byte]))

    assert [wire.receive().id for _ in range(2)] == [3, 4]
    assert wire.take_one(queue).body == b"slowly"


def test_requests_are_pipelined_and_answered_in_the_order_they_came(wire: Wire, queue: str) -> None:
    requests = [frame(T.PRODUCE, frames.produce(queue, b"%d" % n), n) for n in range(1, 5001)]
    requests[1000:1000] = [frame(T.PING, b"half", 6000), frame(T.STATS, frames.name(queue), 6001)]

    wire.send(*requests)

    answers = [wire.receive() for _ in requests]
    assert [answer.id for answer in answers] == [*range(1, 1001), 6000, 6001, *range(1001, 5001)]
    assert frames.unpack(answers[1001].payload)["depth"] == 1000
    produced = [frames.read_u64s(answer.payload)[0] for answer in answers if answer.id <= 5000]
    assert produced == sorted(set(produced))


def test_requests_are_carried_out_in_the_order_they_came(wire: Wire, queue: str) -> None:
    wire.send(
        frame(T.PRODUCE, frames.produce(queue, b"first"), 1),
        frame(T.CONSUME, frames.consume(queue), 2),
        frame(T.PURGE, frames.name(queue), 3),
        frame(T.PRODUCE, frames.produce(queue, b"second"), 4),
        frame(T.DELETE, frames.name(queue), 5),
        frame(T.PRODUCE, frames.produce(queue, b"third"), 6),
    )

    answers = [wire.receive() for _ in range(6)]

    assert [answer.id for answer in answers] == [1, 2, 3, 4, 5, 6]
    assert [answer.status for answer in answers] == [0, 0, 0, 0, 0, S.NO_QUEUE]
    assert frames.read_delivery(answers[1].payload).body == b"first"
    assert frames.read_u64s(answers[2].payload) == [0]


def test_a_consume_that_waits_holds_nothing_back_and_is_answered_when_it_ends(
    wire: Wire, queue: str
) -> None:
    waiting = wire.post(T.CONSUME, frames.consume(queue, 1, FOREVER))
    wire.still_answers()

    put = wire.post(T.PRODUCE, frames.produce(queue, b"at last"))

    answers = {answer.id: answer for answer in (wire.receive(), wire.receive())}
    assert answers[put].kind == T.REPLY
    assert frames.read_delivery(answers[waiting].payload).body == b"at last"


def test_several_consumes_of_a_connection_wait_beside_each_other(wire: Wire, queue: str) -> None:
    waiting = {wire.post(T.CONSUME, frames.consume(queue, 1, FOREVER)) for _ in range(5)}
    put = [wire.post(T.PRODUCE, frames.produce(queue, b"%d" % n)) for n in range(5)]

    answers = [wire.receive() for _ in range(10)]

    assert [answer.id for answer in answers if answer.kind == T.REPLY] == put
    delivered = [answer for answer in answers if answer.kind == T.DELIVER]
    assert {answer.id for answer in delivered} == waiting
    assert all(answer.status == S.OK for answer in delivered)
    bodies = {frames.read_delivery(answer.payload).body for answer in delivered}
    assert bodies == {b"%d" % n for n in range(5)}


# --- message id 0 ----------------------------------------------------------------------


def test_a_produce_with_id_0_is_carried_out_and_not_answered(wire: Wire, queue: str) -> None:
    wire.send(frame(T.PRODUCE, frames.produce(queue, b"silent"), 0))
    wire.still_answers()

    assert wire.take_one(queue).body == b"silent"


def test_a_batch_with_id_0_is_carried_out_and_not_answered(wire: Wire, queue: str) -> None:
    wire.send(frame(T.PRODUCE_BATCH, frames.batch(queue, frames.item(b"1"), frames.item(b"2")), 0))
    wire.still_answers()

    assert [each.body for each in wire.take_all(queue)] == [b"1", b"2"]


@pytest.mark.parametrize(
    ("type", "payload", "left"),
    [
        (T.ACK, frames.receipts, (0, 0, 0)),
        (T.REJECT, frames.receipts, (0, 0, 0)),
        (T.NACK, lambda q, r: frames.timed(q, 0, r), (1, 0, 0)),
        (T.EXTEND, lambda q, r: frames.timed(q, 0, r), (1, 0, 0)),
    ],
)
def test_a_settlement_with_id_0_is_carried_out_and_not_answered(
    wire: Wire, queue: str, type: T, payload: object, left: tuple[int, int, int]
) -> None:
    assert callable(payload)
    wire.put(queue)
    receipt = wire.take_one(queue).receipt

    wire.send(frame(type, payload(queue, receipt), 0))

    wire.still_answers()
    assert wire.counts(queue) == left


@pytest.mark.parametrize(
    "request_",
    [
        frame(T.PRODUCE, frames.produce("nobody.has.this"), 0),
        frame(T.PRODUCE, b"", 0),
        frame(T.PRODUCE, frames.name("nobody.has.this") + b"\xf0", 0),
        frame(T.PRODUCE_BATCH, frames.batch("nobody.has.this", frames.item(b"")), 0),
        frame(T.PRODUCE_BATCH, b"\x00", 0),
        frame(T.ACK, frames.receipts("nobody.has.this", 1), 0),
        frame(T.ACK, frames.name("bad name"), 0),
        frame(T.NACK, frames.timed("nobody.has.this", 1, 2), 0),
        frame(T.REJECT, b"\xff\xff", 0),
        frame(T.EXTEND, frames.name("nobody.has.this"), 0),
    ],
)
def test_a_refusal_of_what_has_id_0_is_not_answered_either(wire: Wire, request_: bytes) -> None:
    wire.send(request_)

    wire.still_answers()


@pytest.mark.parametrize("type", [*sorted(set(T) - SILENT), 0x00, UNUSED, 0xFF])
def test_id_0_on_any_other_type_is_bad_request_before_the_type_is_looked_at(
    wire: Wire, type: int
) -> None:
    wire.send(frame(type, b"", 0))

    answer = wire.receive()

    assert (answer.kind, answer.status, answer.id) == (T.REPLY, S.BAD_REQUEST, 0)
    wire.still_answers()


def test_what_has_id_0_and_should_not_does_nothing(wire: Wire, queue: str) -> None:
    wire.put(queue)
    for kind, payload in (
        (T.CREATE, frames.create("not.made", dead_letter=None)),
        (T.DELETE, frames.name(queue)),
        (T.PURGE, frames.name(queue)),
        (T.CONSUME, frames.consume(queue)),
        (T.SUBSCRIBE, frames.subscribe(queue)),
    ):
        answer = wire.ask(kind, payload, 0)
        assert answer.status == S.BAD_REQUEST

    assert wire.counts(queue) == (1, 0, 0)
    assert "not.made" not in wire.names()


# --- types that are not there ----------------------------------------------------------


@pytest.mark.parametrize("first", range(0, 256, 64))
def test_a_type_that_is_not_in_the_table_or_only_a_servers_is_unsupported(
    wire: Wire, first: int
) -> None:
    for kind in sorted(set(range(first, first + 64)) - set(OPERATIONS)):
        for payload in (b"", frames.name("q"), bytes(100)):
            assert wire.status(kind, payload) == S.UNSUPPORTED, hex(kind)
    wire.still_answers()


@pytest.mark.parametrize("type", sorted(set(OPERATIONS) - set(range(0x50)) - {T.STREAM_LIST}))
def test_a_type_that_is_added_in_a_reserved_range_refuses_a_bad_form(wire: Wire, type: int) -> None:
    assert wire.status(type, b"") == S.BAD_REQUEST
    wire.still_answers()


def test_refusals_do_not_end_the_connection(wire: Wire) -> None:
    wire.send(*(frame(UNUSED, struct.pack(">I", n), n) for n in range(1, 1001)))

    assert [wire.receive().id for _ in range(1000)] == list(range(1, 1001))
    wire.still_answers()
