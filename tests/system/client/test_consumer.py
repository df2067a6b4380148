"""What a consumer promises about the acknowledgements that it gathers, and its leases."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

import shmq
from shmq.client.local.broker import LocalBroker
from shmq.native import _core

SECOND = 1_000_000_000


@pytest.fixture
def local(namespace: str) -> Iterator[LocalBroker]:
    with LocalBroker(namespace) as broker:
        yield broker


@pytest.fixture
def clock() -> Iterator[int]:
    """The real time, standing still for this process's queue operations."""
    now = time.monotonic_ns()
    _core.set_clock(now)
    yield now
    _core.set_clock(None)


def test_an_ack_in_time_counts_however_late_it_is_flushed(local: LocalBroker, clock: int) -> None:
    queue = local.create_queue("q", visibility_timeout=10)
    queue.put_many([b"quick", b"slow"])
    consumer = queue.consume(prefetch=2, block=False)

    next(consumer).ack()
    slow = next(consumer)
    _core.set_clock(clock + 20 * SECOND)

    assert (queue.qsize(), queue.stats().acked, queue.stats().expired) == (1, 1, 1)
    with pytest.raises(shmq.LeaseExpired):
        slow.ack()
    queue.check()
    consumer.close()
    queue.check()


def test_an_ack_stands_though_its_process_is_killed_before_the_flush(local: LocalBroker) -> None:
    queue = local.create_queue("q")
    queue.put_many([b"a", b"b"], group="g")
    child = os.fork()
    if child == 0:
        consumer = queue.consume()
        next(consumer).ack()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)

    assert [message.body for message in queue.consume(block=False)] == [b"b"]
    assert queue.stats().acked == 1


def test_a_loop_that_is_left_gives_back_what_it_had_ahead(local: LocalBroker) -> None:
    queue = local.create_queue("q")
    queue.put_many([b"a", b"b", b"c"])

    for message in queue.consume(timeout=0):
        message.ack()
        break

    stats = queue.stats()
    assert (message.body, stats.acked, stats.in_flight, stats.depth) == (b"a", 1, 0, 2)


def test_a_message_may_be_acked_after_its_consumer_is_gone(local: LocalBroker) -> None:
    queue = local.create_queue("q")
    queue.put_many([b"a", b"b"])

    message = next(iter(queue.consume(timeout=0)))
    message.ack()

    assert (queue.stats().acked, queue.qsize()) == (1, 1)


def test_a_lease_counts_from_when_the_message_is_handed_out(local: LocalBroker, clock: int) -> None:
    queue = local.create_queue("q", visibility_timeout=8)
    queue.put_many([b"a", b"b", b"c", b"d"])
    consumer = queue.consume(prefetch=4, block=False)

    for number in range(4):
        message = next(consumer)
        _core.set_clock(clock + (number + 1) * 6 * SECOND)
        message.ack()
    consumer.close()

    stats = queue.stats()
    assert (stats.acked, stats.expired, stats.redelivered) == (4, 0, 0)
    queue.check()


def test_what_a_consumer_acked_cannot_be_settled_again(local: LocalBroker) -> None:
    queue = local.create_queue("q")
    queue.put(b"a")
    consumer = queue.consume(block=False)
    message = next(consumer)
    message.ack()

    for settle in (queue.nack, queue.reject, lambda receipt: queue.extend(receipt, 5)):
        with pytest.raises(shmq.LeaseExpired):
            settle(message.receipt)

    assert queue.ack_many([message.receipt]) == [message.receipt]
    consumer.close()
    assert queue.stats().acked == 1
