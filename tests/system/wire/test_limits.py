"""Limits of time and of size: which connections get TIMED_OUT."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest

from tests.system.wire import frames
from tests.system.wire.client import Address, Wire
from tests.system.wire.conftest import Serve
from tests.system.wire.frames import FOREVER, S, T, frame

#: In seconds.
HANDSHAKE, IDLE, FRAME = 1.5, 2.0, 1.5


@pytest.fixture(scope="module")
def hasty(serve: Serve) -> Iterator[Address]:
    """A server without patience."""
    limits = {"handshake": HANDSHAKE, "idle": IDLE, "frame": FRAME, "max_frame": 65_536}
    with serve(limits=limits, workers=1) as server:
        yield server.address


@pytest.fixture
def wire(hasty: Address) -> Iterator[Wire]:
    with Wire(hasty) as wire:
        yield wire


@pytest.fixture
def queue(hasty: Address) -> Iterator[str]:
    with Wire(hasty) as wire:
        wire.create("work", dead_letter=None)
    yield "work"
    with Wire(hasty) as wire:
        wire.ok(T.DELETE, frames.name("work"))


def timed_out(wire: Wire) -> bool:
    """Whether what still comes is TIMED_OUT with id 0, and the end."""
    (answer,) = wire.rest()
    return (answer.kind, answer.status, answer.id) == (T.REPLY, S.TIMED_OUT, 0)


@pytest.mark.prove
def test_a_connection_that_sends_nothing_is_timed_out(wire: Wire) -> None:
    began = time.monotonic()
    assert timed_out(wire)
    assert time.monotonic() - began >= HANDSHAKE * 0.9


@pytest.mark.prove
@pytest.mark.parametrize("first", [True, False])
def test_a_frame_that_is_never_whole_is_timed_out(hasty: Address, first: bool) -> None:
    with contextlib.ExitStack() as stack:
        wires = []
        for size in (1, 4, 15, 16, 17, 60):
            wire = stack.enter_context(Wire(hasty))
            wires.append(wire)
            if not first:
                wire.still_answers()
            wire.send(frame(T.PING, bytes(64))[:size])

        assert all(map(timed_out, wires))


@pytest.mark.prove
def test_a_frame_that_comes_a_byte_at_a_time_is_timed_out_all_the_same(wire: Wire) -> None:
    wire.still_answers()
    whole = frame(T.PRODUCE, bytes(1000))
    with contextlib.suppress(ConnectionError):
        for byte in whole:
            wire.send(bytes([byte]))
            time.sleep(FRAME / 20)
    assert timed_out(wire)


@pytest.mark.prove
def test_a_connection_that_is_silent_too_long_is_timed_out(wire: Wire) -> None:
    wire.still_answers()
    began = time.monotonic()
    assert timed_out(wire)
    assert time.monotonic() - began >= IDLE * 0.9


@pytest.mark.prove
def test_a_connection_that_speaks_is_not_idle(wire: Wire) -> None:
    end = time.monotonic() + 2 * IDLE
    while time.monotonic() < end:
        wire.still_answers()
        time.sleep(IDLE / 4)


@pytest.mark.prove
def test_a_connection_with_a_waiting_consume_is_not_idle(wire: Wire, queue: str) -> None:
    waits = wire.post(T.CONSUME, frames.consume(queue, 1, FOREVER))
    time.sleep(2 * IDLE)

    put = wire.post(T.PRODUCE, frames.produce(queue, b"at last"))

    answers = {each.id: each for each in (wire.receive(), wire.receive())}
    assert frames.read_delivery(answers[waits].payload).body == b"at last"
    assert answers[put].status == S.OK


@pytest.mark.prove
def test_a_connection_with_a_subscription_is_not_idle(
    hasty: Address, wire: Wire, queue: str
) -> None:
    subscription = wire.subscribe(queue, 5)
    time.sleep(2 * IDLE)

    with Wire(hasty) as another:
        another.put(queue, b"at last")

    assert wire.delivered(subscription).body == b"at last"


@pytest.mark.prove
def test_a_connection_is_idle_again_once_its_wait_is_over(wire: Wire, queue: str) -> None:
    assert wire.take(queue, 1, 100) == []
    assert timed_out(wire)


@pytest.mark.prove
def test_what_a_silent_connection_held_is_back_when_it_is_timed_out(
    hasty: Address, wire: Wire, queue: str
) -> None:
    wire.put(queue, b"held")
    wire.take_one(queue)

    with Wire(hasty) as another:
        assert another.take_one(queue, 20_000).deliveries == 2


def test_a_waiting_consume_does_not_excuse_half_a_frame(wire: Wire, queue: str) -> None:
    wire.post(T.CONSUME, frames.consume(queue, 1, FOREVER))
    wire.send(frame(T.PING)[:7])
    assert timed_out(wire)


def test_the_configured_max_frame_is_what_hello_says_and_what_holds(wire: Wire, queue: str) -> None:
    hello = frames.unpack(wire.ok(T.HELLO, frames.pack({"client": "c"})))
    assert hello["max_frame"] == 65_536
    head = frames.produce(queue)
    wire.ok(T.PRODUCE, head + bytes(65_536 - len(head)))

    # An answer may be longer: this one is a DELIVER with 24 bytes more than the request.
    (delivery,) = wire.take(queue)
    assert len(delivery.body) == 65_536 - len(head)

    wire.send(frame(T.PRODUCE, b"", 8, length=65_537))
    assert [(each.status, each.id) for each in wire.rest()] == [(S.FRAME_TOO_LARGE, 8)]
