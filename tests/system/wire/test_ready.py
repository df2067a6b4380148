"""READY: a client is told that a message is visible, and has no lease of it."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

import shmq
from tests.system.wire import frames
from tests.system.wire.client import Address, Wire
from tests.system.wire.conftest import Serve
from tests.system.wire.frames import FOREVER, S, T

MakeQueue = Callable[..., str]


def ready(queue: str, wait: int = FOREVER) -> bytes:
    return frames.name(queue) + frames.u32(wait)


def told(wire: Wire, id: int) -> S:
    """The status of the answer to that READY, which is the next frame."""
    answer = wire.receive()
    assert (answer.kind, answer.id, answer.payload) == (T.REPLY, id, b""), answer
    return S(answer.status)


def test_a_look_says_whether_a_message_is_visible_and_leases_none(wire: Wire, queue: str) -> None:
    assert wire.status(T.READY, ready(queue, 0)) == S.QUEUE_EMPTY
    wire.put(queue, b"1")

    assert wire.ok(T.READY, ready(queue, 0)) == b""
    assert wire.ok(T.READY, ready(queue)) == b""
    assert wire.counts(queue) == (1, 0, 0)
    assert wire.take_one(queue).deliveries == 1
    assert wire.status(T.READY, ready(queue, 0)) == S.QUEUE_EMPTY


def test_a_bounded_wait_ends_as_queue_empty(wire: Wire, queue: str) -> None:
    assert wire.status(T.READY, ready(queue, 20)) == S.QUEUE_EMPTY


def test_a_wait_is_ended_by_a_message_of_any_client(
    address: Address, wire: Wire, queue: str, broker: shmq.Broker
) -> None:
    waiting = wire.post(T.READY, ready(queue))
    wire.still_answers()
    with Wire(address) as another:
        another.put(queue)
    assert told(wire, waiting) == S.OK
    wire.take_one(queue)

    waiting = wire.post(T.READY, ready(queue))
    wire.still_answers()
    with broker.queue(queue) as local:
        local.put(b"from next door")
    assert told(wire, waiting) == S.OK


def test_a_wait_is_ended_by_what_becomes_due_or_comes_back(
    address: Address, wire: Wire, make_queue: MakeQueue
) -> None:
    queue = make_queue(retry_delay=0)
    wire.put(queue, b"due", {"delay": 100})
    assert wire.status(T.READY, ready(queue)) == S.OK

    with Wire(address) as another:
        another.take_one(queue)
        waiting = wire.post(T.READY, ready(queue))
        wire.still_answers()
    assert told(wire, waiting) == S.OK


def test_all_who_wait_are_told_of_one_message(address: Address, wire: Wire, queue: str) -> None:
    waiting = [Wire(address) for _ in range(20)]
    ids = [each.post(T.READY, ready(queue)) for each in waiting]
    for each in waiting:
        each.still_answers()

    wire.put(queue)

    assert [told(each, n) for each, n in zip(waiting, ids, strict=True)] == [S.OK] * 20
    for each in waiting:
        each.close()


def test_a_consume_that_waits_behind_it_gets_the_message(wire: Wire, queue: str) -> None:
    waiting = wire.post(T.READY, ready(queue))
    consuming = wire.post(T.CONSUME, frames.consume(queue, 1, FOREVER))
    wire.post(T.PRODUCE, frames.produce(queue, b"1"), 0)

    assert told(wire, waiting) == S.OK
    assert [each.body for each in wire.taken(consuming)] == [b"1"]


def test_one_connection_waits_for_many_queues(wire: Wire, make_queue: MakeQueue) -> None:
    queues = [make_queue() for _ in range(5)]
    ids = {queue: wire.post(T.READY, ready(queue)) for queue in queues}

    wire.post(T.PRODUCE, frames.produce(queues[3], b"1"), 0)

    assert told(wire, ids[queues[3]]) == S.OK
    wire.still_answers()


def test_unsubscribe_ends_a_wait_without_an_answer_to_it(wire: Wire, queue: str) -> None:
    waiting = wire.post(T.READY, ready(queue))
    assert wire.ok(T.UNSUBSCRIBE, frames.u32(waiting)) == b""
    assert wire.status(T.UNSUBSCRIBE, frames.u32(waiting)) == S.BAD_REQUEST

    wire.put(queue)

    wire.still_answers()
    assert wire.counts(queue) == (1, 0, 0)


def test_the_id_of_a_wait_is_taken_until_its_end(wire: Wire, queue: str) -> None:
    wire.post(T.READY, ready(queue), 7)
    assert wire.status(T.READY, ready(queue), 7) == S.BAD_REQUEST
    wire.post(T.PRODUCE, frames.produce(queue), 0)
    assert told(wire, 7) == S.OK

    assert wire.status(T.READY, ready(queue), 7) == S.OK


def test_a_deleted_queue_ends_a_wait_at_once(address: Address, wire: Wire, queue: str) -> None:
    waiting = wire.post(T.READY, ready(queue))
    wire.still_answers()
    with Wire(address) as another:
        another.ok(T.DELETE, frames.name(queue))

    answer = wire.receive()
    assert (answer.id, answer.status) == (waiting, S.NO_QUEUE)
    assert wire.status(T.READY, ready(queue)) == S.NO_QUEUE


def test_a_connection_that_ends_leaves_no_wait(
    address: Address, wire: Wire, queue: str, broker: shmq.Broker
) -> None:
    with Wire(address) as another:
        another.post(T.READY, ready(queue))
        another.still_answers()

    with broker.queue(queue) as local:
        local.put(b"1")
        while local.stats().waiting_get:
            wire.still_answers()  # the server ends the waits of closed connections soon
    assert wire.take_one(queue).body == b"1"


@pytest.mark.prove
def test_a_server_that_drains_ends_a_wait_at_once(serve: Serve) -> None:
    with serve() as server:
        with Wire(server.address) as wire:
            wire.create("q")
            waiting = wire.post(T.READY, ready("q"))
            wire.still_answers()

            server.signal(signal.SIGTERM)

            answer = wire.receive()
            assert (answer.id, answer.status) == (waiting, S.SHUTTING_DOWN)
            assert wire.status(T.READY, ready("q")) == S.SHUTTING_DOWN
        assert server.ends() == 0


def test_a_ready_of_another_length_is_bad_request(wire: Wire, queue: str) -> None:
    payload = ready(queue)
    for at in range(len(frames.name(queue)), len(payload)):
        assert wire.status(T.READY, payload[:at]) == S.BAD_REQUEST
    assert wire.status(T.READY, payload + b"\x00") == S.BAD_REQUEST
    assert wire.status(T.READY, b"\x00") == S.BAD_REQUEST
