"""Acknowledgements that ride with the next request: ``wait_for_acks=False``."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

import shmq
from shmq import Broker, Queue
from shmq.protocol.opcodes import Type
from tests.conformance.tools import LATER, MOMENT, SOON
from tests.support.proxy import Proxy
from tests.support.waiting import PATIENCE, eventually

MANY = 200


@pytest.fixture
def afar(proxy: Proxy) -> Iterator[Broker]:
    """A client whose acknowledgements ride, and which speaks through the proxy."""
    with shmq.connect(proxy.url, request_timeout=30, wait_for_acks=False) as broker:
        yield broker


@pytest.fixture
def riding(queue: Queue, afar: Broker) -> Queue:
    return afar.queue("q")


def test_an_ack_leaves_with_the_next_request_and_precedes_it(
    proxy: Proxy, queue: Queue, riding: Queue
) -> None:
    queue.put_many(range(3), group="g")  # the next is visible once the one before is acknowledged
    proxy.requests.clear()
    for number in range(3):
        message = riding.get(block=False)
        assert message.body == number
        message.ack()
        assert message.settled

    assert riding.stats().acked == 3
    assert proxy.requests == [Type.CONSUME, Type.ACK] * 3 + [Type.STATS]


def test_an_ack_does_not_wait_for_a_next_request(queue: Queue, riding: Queue) -> None:
    queue.put(b"x")

    riding.get().ack()

    eventually(lambda: queue.stats().acked == 1, "the acknowledgement is sent by itself")


def test_many_acks_without_another_request_all_arrive(queue: Queue, riding: Queue) -> None:
    queue.put_many(range(MANY))

    for message in riding.get_many(MANY):
        message.ack()

    assert riding.stats().acked == MANY


def test_a_message_that_was_waited_for_is_acknowledged_so_too(
    proxy: Proxy, queue: Queue, riding: Queue
) -> None:
    with pytest.raises(shmq.Empty):
        riding.get(timeout=MOMENT)  # by a subscription, after the first look
    queue.put(b"x")
    riding.get(timeout=PATIENCE).ack()

    assert riding.stats().acked == 1


@pytest.mark.parametrize("end", ["close", "drop", "close the broker"])
def test_the_end_of_a_handle_sends_its_acks(queue: Queue, url: str, end: str) -> None:
    queue.put(b"x")
    broker = shmq.connect(url, wait_for_acks=False)
    riding = broker.queue("q")
    message = riding.get()
    message.ack()

    if end == "close":
        riding.close()
    elif end == "drop":
        del riding, message
    else:
        broker.close()

    eventually(lambda: queue.stats().in_flight == 0, "the connection has ended")
    assert (queue.stats().acked, queue.stats().redelivered) == (1, 0)
    broker.close()


TAKER = """
import os, signal, sys, shmq
broker = shmq.connect(sys.argv[1], wait_for_acks=False)
queue = broker.queue("q")
keep = [queue]; keep.append(keep)
message = queue.get()
message.ack()
print(message.body.decode(), flush=True)
if len(sys.argv) > 2:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_end_of_the_interpreter_sends_acks(queue: Queue, url: str) -> None:
    queue.put(b"x")

    subprocess.run([sys.executable, "-c", TAKER, url], check=True, capture_output=True)

    eventually(lambda: queue.stats().in_flight == 0, "the connection has ended")
    assert (queue.stats().acked, queue.qsize()) == (1, 0)


def test_a_kill_after_an_ack_loses_no_message(queue: Queue, url: str) -> None:
    """The acknowledgement has been sent, or the message is delivered again."""
    bodies = [b"%d" % number for number in range(5)]
    for body in bodies:
        queue.put(body)
        taker = subprocess.run(
            [sys.executable, "-c", TAKER, url, "die"], capture_output=True, check=False
        )
        assert taker.returncode == -signal.SIGKILL
        eventually(lambda: queue.stats().in_flight == 0, "its connection has ended")
        again = queue.get_many(1, 0)
        assert [(message.body, message.delivery_count) for message in again] in ([], [(body, 2)])
        assert queue.ack_many(again) == []

    assert (queue.stats().acked, queue.qsize()) == (5, 0)


def test_an_ack_after_the_lease_raises_at_once(broker: Broker, afar: Broker) -> None:
    broker.create_queue("short", visibility_timeout=SOON).put(b"x")
    message = afar.queue("short").get()
    time.sleep(2 * SOON)

    with pytest.raises(shmq.LeaseExpired):
        message.ack()


def test_an_ack_at_the_end_of_a_lease_waits_for_its_answer(
    proxy: Proxy, broker: Broker, afar: Broker
) -> None:
    """It might arrive too late, which only the server can tell."""
    short = broker.create_queue("short", visibility_timeout=1.0)
    short.put(b"x")
    message = afar.queue("short").get()
    short.extend(message.receipt, LATER)  # which the client does not know
    time.sleep(1.0 - SOON / 2)

    message.ack()

    assert short.stats().acked == 1


def test_a_refusal_is_logged(queue: Queue, riding: Queue, caplog: pytest.LogCaptureFixture) -> None:
    queue.put(b"x")
    message = riding.get()
    queue.nack(message.receipt, 0)

    with caplog.at_level(logging.WARNING, "shmq"):
        message.ack()
        assert riding.qsize() == 1

    (line,) = caplog.messages
    assert "queue q: " in line
    assert str(message.receipt) in line


def test_an_ack_after_a_lost_connection_raises(proxy: Proxy, queue: Queue, riding: Queue) -> None:
    queue.put_many([1, 2])
    message = riding.get()
    proxy.cut()
    eventually(lambda: queue.stats().in_flight == 0, "the connection has ended")
    other = riding.get()

    with pytest.raises(shmq.LeaseExpired):
        message.ack()
    other.ack()

    assert riding.stats().acked == 1


def test_acks_that_are_lost_with_the_connection_are_delivered_again(
    proxy: Proxy, queue: Queue, riding: Queue
) -> None:
    queue.put(b"x")
    message = riding.get()
    proxy.cut_before(lambda kind, _: kind == Type.ACK)
    message.ack()

    again = riding.get(timeout=30)
    assert (again.body, again.delivery_count) == (b"x", 2)
    again.ack()
    assert riding.stats().acked == 1


def test_tasks_do_not_wait_for_their_acks(proxy: Proxy, queue: Queue, riding: Queue) -> None:
    queue.put_many(range(20))

    async def work() -> list[int]:
        got = []
        for _ in range(20):
            message = await riding.aget()
            got.append(message.body)
            message.ack()
        return got

    assert asyncio.run(work()) == list(range(20))
    assert riding.stats().acked == 20


def test_a_child_has_its_own_acks(queue: Queue, riding: Queue) -> None:
    queue.put_many([1, 2])
    message = riding.get()
    message.ack()
    child = os.fork()
    if child == 0:
        try:
            riding.get().ack()
            riding.close()
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0

    eventually(lambda: queue.stats().acked == 2, "both are acknowledged")


def test_a_handle_keeps_the_choice_when_it_is_pickled(
    proxy: Proxy, queue: Queue, riding: Queue
) -> None:
    queue.put(b"x")
    with pickle.loads(pickle.dumps(riding)) as copy:
        assert copy.connection.target.wait_for_acks is False
        copy.get().ack()
        assert copy.stats().acked == 1


def test_the_choice_is_a_bool(url: str) -> None:
    with pytest.raises(TypeError, match="wait_for_acks='no'"):
        shmq.connect(url, wait_for_acks="no")  # type: ignore[arg-type]
