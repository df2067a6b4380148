"""What a server counts as a delivery when a connection ends: what the application received."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

import shmq
from shmq.client.ports.steps import run
from shmq.protocol.opcodes import Flag, Type
from tests.support.peer import Peer, frame, name_of
from tests.support.processes import Start
from tests.support.waiting import eventually
from tests.system.server.conftest import Serve

pytestmark = pytest.mark.prove

MESSAGES = 100
LIMIT = 3


@pytest.fixture
def start(namespace: str) -> Iterator[Start]:
    starter = Start()
    yield starter
    starter.close()


@pytest.fixture
def queue(broker: shmq.Broker) -> shmq.Queue:
    return broker.create_queue("jobs", max_deliveries=LIMIT)


#: What follows the flags.
TOLD = {0: b"", Flag.TELLS: b"\x01"}


def subscribe(peer: Peer, credit: int, flags: int) -> int:
    """A subscription of which the first message has come; its id."""
    number = peer.post(
        Type.SUBSCRIBE, name_of("jobs") + struct.pack("!IB", credit, flags) + TOLD[flags]
    )
    while peer.receive().kind != Type.DELIVER:
        continue
    return number


def tell(peer: Peer, subscription: int, count: int) -> None:
    peer.socket.sendall(frame(Type.HANDED, struct.pack("!I", count), subscription))


def leave(peer: Peer, how: str) -> None:
    if how == "reset":
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.socket.close()


def all_are_back(queue: shmq.Queue) -> None:
    eventually(lambda: queue.stats().in_flight == 0, "all messages are back")


@pytest.mark.parametrize("how", ["orderly", "reset"])
def test_two_hundred_subscribers_that_connect_and_leave_make_no_dead_letter(
    served: Serve, queue: shmq.Queue, broker: shmq.Broker, how: str
) -> None:
    server = served()
    queue.put_many(range(MESSAGES))
    for _ in range(200):
        with Peer(server) as peer:
            subscribe(peer, 64, Flag.TELLS)
            leave(peer, how)
    all_are_back(queue)

    assert broker.queue("jobs.dlq").qsize() == 0
    assert [message.delivery_count for message in queue.peek(MESSAGES)] == [0] * MESSAGES


def test_what_was_told_as_handed_counts_and_what_was_not_does_not(
    served: Serve, queue: shmq.Queue
) -> None:
    server = served()
    queue.put_many(range(10))
    with Peer(server) as peer:
        number = subscribe(peer, 10, Flag.TELLS)
        tell(peer, number, 4)
        tell(peer, number, 2)  # it does not fall
    all_are_back(queue)

    assert [message.delivery_count for message in queue.peek(10)] == [1] * 4 + [0] * 6


@pytest.mark.parametrize("how", ["orderly", "reset"])
def test_of_a_client_that_tells_nothing_all_that_was_sent_counts(
    served: Serve, queue: shmq.Queue, how: str
) -> None:
    server = served()
    queue.put_many(range(10))
    with Peer(server) as peer:
        subscribe(peer, 10, 0)
        leave(peer, how)
    all_are_back(queue)

    assert [message.delivery_count for message in queue.peek(10)] == [1] * 10


def test_what_an_ended_subscription_has_brought_counts(served: Serve, queue: shmq.Queue) -> None:
    server = served()
    queue.put_many(range(10))
    with Peer(server) as peer:
        number = subscribe(peer, 10, Flag.TELLS)
        peer.post(Type.UNSUBSCRIBE, struct.pack("!I", number))
    all_are_back(queue)

    assert [message.delivery_count for message in queue.peek(10)] == [1] * 10


def _loop(pipe: Any, url: str, poison: bytes) -> None:
    """Take bodies until it is the poison, and die of it."""
    for body in shmq.connect(url).queue("jobs").bodies(prefetch=64):
        if body == poison:
            os.kill(os.getpid(), signal.SIGKILL)


def _take(pipe: Any, url: str, poison: bytes | None) -> None:
    """Take messages until it is the poison, and die of it; without any, before the first."""
    consumer: Any = shmq.connect(url).queue("jobs").consume(prefetch=64)
    if poison is None:
        assert run(consumer._more())
        os.kill(os.getpid(), signal.SIGKILL)
    for message in consumer:
        if message.body == poison:
            os.kill(os.getpid(), signal.SIGKILL)
        message.ack()


def die(start: Start, *arguments: Any, how: Any = _take) -> None:
    assert start(how, *arguments).reap() == -signal.SIGKILL


@pytest.fixture
def url(served: Serve) -> str:
    return str(served().url)


def test_clients_that_are_killed_before_they_hand_out_anything_make_no_dead_letter(
    url: str, queue: shmq.Queue, broker: shmq.Broker, start: Start
) -> None:
    queue.put_many(range(MESSAGES))
    for _ in range(2 * LIMIT):
        die(start, url, None)
    all_are_back(queue)

    assert broker.queue("jobs.dlq").qsize() == 0
    assert {message.delivery_count for message in queue.peek(MESSAGES)} == {0}


@pytest.mark.parametrize("how", [_take, _loop])
@pytest.mark.parametrize("at", [0, 1, 30])
def test_a_message_that_kills_each_consumer_ends_and_takes_no_other_with_it(
    url: str, queue: shmq.Queue, broker: shmq.Broker, start: Start, at: int, how: Any
) -> None:
    bodies = [b"%d" % number for number in range(MESSAGES)]
    bodies[at] = b"poison"
    queue.put_many(bodies)
    for _ in range(LIMIT):
        die(start, url, b"poison", how=how)
    all_are_back(queue)

    dead_letter_queue = broker.queue("jobs.dlq")
    eventually(lambda: dead_letter_queue.qsize() > 0, "it is a dead letter")
    assert [message.body for message in dead_letter_queue.peek(10)] == [b"poison"]
    left = []
    with contextlib.suppress(shmq.Empty):
        while True:
            message = queue.get_nowait()
            left.append(message.body)
            message.ack()
    assert set(bodies[at + 1 :]) <= set(left), "what came behind it was lost"
