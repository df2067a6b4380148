"""What is acknowledged without waiting for the answer, and what becomes of it."""

from __future__ import annotations

import itertools
import logging
import time

import pytest

import shmq
from shmq import Broker, Queue
from shmq.protocol.opcodes import Type
from tests.conformance.tools import MOMENT
from tests.support.proxy import Proxy
from tests.support.waiting import PATIENCE, eventually


@pytest.mark.prove
def test_acks_of_a_consumer_are_sent_together(proxy: Proxy, afar: Broker, queue: Queue) -> None:
    queue.put_many(range(64))
    with afar.queue("q").consume(prefetch=64) as messages:
        for _ in range(64):
            next(messages).ack()
        messages.flush()

        assert queue.stats().acked == 64
        assert proxy.requests.count(Type.ACK) < 16


@pytest.mark.parametrize("pause", [0, 0.02])
def test_what_is_sent_ahead_to_a_consumer_at_its_limit_is_not_kept_back(
    broker: Broker, queue: Queue, pause: float
) -> None:
    queue.put_many(range(4))
    with queue.consume(prefetch=2) as messages:
        other = broker.queue("q")
        # Settled elsewhere: for all that the consumer knows it has its whole prefetch in hand.
        assert other.ack_many([next(messages), next(messages)]) == []
        eventually(lambda: other.stats().in_flight == 2, "the next two were sent ahead")
        time.sleep(pause)

        assert [next(messages).body for _ in range(2)] == [2, 3]
    assert other.stats().redelivered == 0


def test_acks_do_not_wait_for_the_next_call(broker: Broker, queue: Queue) -> None:
    queue.put_many(range(5))
    with queue.consume(prefetch=64) as messages:
        for _ in range(5):
            next(messages).ack()

        eventually(lambda: broker.queue("q").stats().acked == 5, "the postman has been")


def test_an_ack_that_comes_too_late_is_told_by_the_flush(broker: Broker, queue: Queue) -> None:
    queue.put(b"x")
    with queue.consume(prefetch=2) as messages:
        message = next(messages)
        broker.queue("q").nack(message.receipt, 0)  # it is no longer this consumer's
        message.ack()

        with pytest.raises(shmq.LeaseExpired, match=str(message.receipt)):
            messages.flush()
        messages.flush()
    assert queue.stats().acked == 0


def test_an_ack_that_comes_too_late_is_logged_by_the_close(
    broker: Broker, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    queue.put(b"x")
    with caplog.at_level(logging.WARNING, "shmq"), queue.consume(prefetch=2) as messages:
        message = next(messages)
        broker.queue("q").nack(message.receipt, 0)
        message.ack()

    assert "delivered again" in caplog.text


def test_an_ack_whose_lease_is_over_by_the_clock_asks_the_server(broker: Broker) -> None:
    queue = broker.create_queue("jobs", visibility_timeout=MOMENT)
    queue.put(b"x")
    with queue.consume(prefetch=2) as messages:
        message = next(messages)
        eventually(lambda: queue.stats().expired == 1, "the lease runs out")

        with pytest.raises(shmq.LeaseExpired):
            message.ack()


def test_a_consumer_goes_on_though_all_its_credit_is_in_hand(queue: Queue) -> None:
    queue.put_many(range(100))
    with queue.consume(prefetch=4) as messages:
        held = list(itertools.islice(messages, 100))

    assert [message.body for message in held] == list(range(100))
    for message in held:
        message.ack()
    assert queue.stats().acked == 100


@pytest.mark.prove
def test_the_lease_of_a_message_that_waited_begins_anew(broker: Broker) -> None:
    queue = broker.create_queue("jobs", visibility_timeout=4.0)
    queue.put_many(range(4))
    slow = broker.create_queue("slow")
    with queue.consume(prefetch=4) as messages:
        for _ in range(4):
            message = next(messages)
            with pytest.raises(shmq.Empty):
                slow.get(timeout=1.5)
            message.ack()

    stats = queue.stats()
    assert (stats.acked, stats.expired) == (4, 0)


def test_a_message_that_waited_is_sent_on_where_it_is_not_wanted(
    broker: Broker, queue: Queue
) -> None:
    with queue.consume(prefetch=8, timeout=0.05) as messages:
        assert list(messages) == []
    queue.put(b"x")

    assert broker.queue("q").get(timeout=PATIENCE).delivery_count == 1


@pytest.mark.parametrize("timeout", [0.0, 1e-9, 1e-6, 1e-4])
def test_what_is_there_comes_however_short_the_wait_is(queue: Queue, timeout: float) -> None:
    queue.put_many([b"x"] * 50)
    with queue.consume(timeout=timeout) as messages:
        assert sum(message.ack() is None for message in messages) == 50
    queue.put_many([b"x"] * 50)
    with queue.bodies(timeout=timeout) as bodies:
        assert sum(1 for _ in bodies) == 50


def test_a_server_that_knows_no_return_gets_a_nack(broker: Broker, queue: Queue) -> None:
    queue.put_many([1, 2, 3])
    with queue.consume(prefetch=3) as messages:
        next(messages).ack()
        queue.connection.wire.extended = False  # type: ignore[attr-defined]

    stats = queue.stats()
    assert (stats.depth, stats.acked, stats.nacked) == (2, 1, 2)
