"""What closes the connection: what is answered before it, with what, and what is not."""

from __future__ import annotations

import contextlib
import time

import pytest

from tests.system.wire import frames
from tests.system.wire.client import Address, Wire
from tests.system.wire.frames import FOREVER, MAGIC, UNUSED, Frame, S, T, frame

TOO_LONG = 0xFFFFFFFF


def fatal(wire: Wire, data: bytes) -> Frame:
    """The one frame that is answered to it, behind which the server has half-closed."""
    wire.send(data)
    answer = wire.receive()
    assert answer.kind == T.REPLY
    assert wire.rest() == []
    return answer


@pytest.mark.parametrize("bit", range(32))
def test_a_magic_off_by_one_bit_is_bad_magic_with_id_0(wire: Wire, bit: int) -> None:
    answer = fatal(wire, frame(T.PING, b"", 7, magic=MAGIC ^ 1 << bit))

    assert (answer.status, answer.id) == (S.BAD_MAGIC, 0)


@pytest.mark.parametrize("version", [0, 2, 3, 128, 255])
def test_another_version_is_bad_version_with_the_headers_id(wire: Wire, version: int) -> None:
    answer = fatal(wire, frame(T.PING, b"", 0x01020304, version=version))

    assert (answer.status, answer.id) == (S.BAD_VERSION, 0x01020304)


@pytest.mark.parametrize("type", [T.PING, T.PRODUCE, T.HELLO, UNUSED])
def test_a_length_beyond_max_frame_is_refused_on_the_header_alone(wire: Wire, type: int) -> None:
    answer = fatal(wire, frame(type, b"", 0xABCD, length=TOO_LONG))

    assert (answer.status, answer.id) == (S.FRAME_TOO_LARGE, 0xABCD)


def test_max_frame_is_the_longest_payload_that_is_taken(address: Address, queue: str) -> None:
    with Wire(address) as wire:
        hello = frames.unpack(wire.ok(T.HELLO, frames.pack({"client": "long"})))
        longest = hello["max_frame"]
        head = frames.produce(queue)
        payload = head + bytes(longest - len(head))

        assert wire.status(T.PRODUCE, payload) == S.TOO_LARGE  # for the queue, not the server
        wire.still_answers()
        answer = fatal(wire, frame(T.PRODUCE, b"", 3, length=longest + 1))

        assert (answer.status, answer.id) == (S.FRAME_TOO_LARGE, 3)


@pytest.mark.parametrize(
    ("data", "status", "id"),
    [
        (frame(T.PING, b"", 5, magic=0, version=9, length=TOO_LONG), S.BAD_MAGIC, 0),
        (frame(T.PING, b"", 5, magic=MAGIC ^ 1, length=TOO_LONG), S.BAD_MAGIC, 0),
        (frame(T.PING, b"", 5, version=9, length=TOO_LONG), S.BAD_VERSION, 5),
    ],
)
def test_fatal_checks_are_made_in_the_order_magic_version_length(
    wire: Wire, data: bytes, status: S, id: int
) -> None:
    answer = fatal(wire, data)

    assert (answer.status, answer.id) == (status, id)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (frame(T.PRODUCE, b"", 0, version=2), S.BAD_VERSION),
        (frame(T.PRODUCE, b"", 0, length=TOO_LONG), S.FRAME_TOO_LARGE),
        (frame(T.PRODUCE, b"", 0, magic=1), S.BAD_MAGIC),
    ],
)
def test_a_fatal_outcome_is_answered_under_id_0_too(wire: Wire, data: bytes, status: S) -> None:
    answer = fatal(wire, data)

    assert (answer.status, answer.id) == (status, 0)


@pytest.mark.parametrize(
    "bad",
    [
        frame(T.PING, b"", 90, magic=MAGIC ^ 0x100),
        frame(T.PING, b"", 90, version=3),
        frame(T.PRODUCE, b"", 90, length=TOO_LONG),
        b"GET / HTTP/1.1\r\nHost: shmq\r\n\r\n",
    ],
)
@pytest.mark.parametrize("apart", [False, True])
def test_whole_frames_before_a_fatal_one_are_carried_out_and_answered_and_none_after(
    address: Address, wire: Wire, queue: str, bad: bytes, apart: bool
) -> None:
    before = [frame(T.PRODUCE, frames.produce(queue, b"%d" % n), n) for n in range(1, 51)]
    after = [frame(T.PRODUCE, frames.produce(queue, b"never"), n) for n in range(51, 101)]
    if apart:
        for each in (*before, bad, *after):
            with contextlib.suppress(ConnectionError):  # closed already
                wire.send(each)
    else:
        wire.send(*before, bad, *after)

    answers = wire.rest()

    assert [(each.id, each.status) for each in answers[:-1]] == [(n, S.OK) for n in range(1, 51)]
    assert answers[-1].status >= frames.FATAL
    with Wire(address) as another:
        assert [each.body for each in another.take_all(queue)] == [b"%d" % n for n in range(1, 51)]


def test_waiting_consumes_and_subscriptions_end_unanswered_at_a_fatal_frame(
    address: Address, wire: Wire, queue: str, make_queue: object
) -> None:
    wire.subscribe(queue, 10)
    wire.post(T.CONSUME, frames.consume(queue, 10, FOREVER))
    wire.still_answers()

    answer = fatal(wire, frame(T.PING, b"", 8, version=7))

    assert (answer.status, answer.id) == (S.BAD_VERSION, 8)
    with Wire(address) as another:
        another.put(queue, b"for those who live")
        assert another.take_one(queue).body == b"for those who live"


def test_what_a_connection_held_goes_back_when_it_is_closed_for_a_fatal_frame(
    address: Address, wire: Wire, make_queue: object
) -> None:
    assert callable(make_queue)
    queue = make_queue(visibility_timeout=3600)
    wire.put(queue, b"mine")
    wire.take_one(queue)

    fatal(wire, frame(T.PING, magic=5))
    wire.close()

    with Wire(address) as another:
        again = another.take_one(queue)
    assert (again.body, again.deliveries) == (b"mine", 2)


@pytest.mark.parametrize("mib", [1, 16])
def test_the_fatal_answer_is_not_lost_to_a_reset_whatever_still_comes(
    address: Address, mib: int
) -> None:
    for _ in range(5):
        with Wire(address) as wire:
            wire.socket.settimeout(60)
            with contextlib.suppress(ConnectionError):
                wire.send(frame(T.PRODUCE, bytes(mib << 20), 12, version=2))

            answers = wire.rest()

        assert [(each.status, each.id) for each in answers] == [(S.BAD_VERSION, 12)]


@pytest.mark.prove
def test_a_connection_that_does_not_close_after_a_fatal_answer_is_closed_by_the_server(
    wire: Wire,
) -> None:
    fatal(wire, frame(T.PING, version=0))

    with pytest.raises(ConnectionError):
        for _ in range(1000):
            wire.send(b"still here")
            time.sleep(0.02)


def test_half_a_header_and_a_fin_is_no_reason_to_answer(wire: Wire) -> None:
    wire.send(frame(T.PING)[:9])
    wire.finish()

    assert wire.rest() == []
