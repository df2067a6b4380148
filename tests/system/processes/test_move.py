"""Moves whose process is killed, whose messages expire, and whose queues are durable."""

from __future__ import annotations

import collections
import itertools
import random
import time
from multiprocessing.connection import Connection

import pytest

import shmq
from shmq import Broker
from tests.support.processes import Start
from tests.support.waiting import eventually

_MESSAGES = 600


def move_to_and_fro(pipe: Connection, where: str) -> None:
    """Move all messages from one queue to the other and back until killed."""
    broker = shmq.connect(where)
    pipe.send("begins")
    for source, target in itertools.cycle([("a", "b"), ("b", "a")]):
        broker.queue(source).move_to(target)


@pytest.mark.prove
def test_each_message_is_in_one_queue_whoever_is_killed(start: Start, namespace: str) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    pauses = random.Random(seed)
    with shmq.connect(namespace) as broker:
        queues = [broker.create_queue(name, max_deliveries=None, dead_letter=None) for name in "ab"]
        queues[0].put_many([(number % 7, number) for number in range(_MESSAGES)])
        for _ in range(40):
            movers = [start(move_to_and_fro, namespace) for _ in range(2)]
            for mover in movers:
                assert mover.hear() == "begins"
            time.sleep(pauses.random() * 0.05)
            for mover in movers:
                mover.kill()

        def count_all() -> bool:
            return sum(queue.qsize() for queue in queues) == _MESSAGES

        eventually(count_all, "all are visible")
        found = collections.Counter(
            tuple(message.body)
            for queue in queues
            for message in queue.get_many(_MESSAGES, block=False)
        )
        assert found == {(number % 7, number): 1 for number in range(_MESSAGES)}


def test_the_rest_of_a_ttl_moves_with_the_message(broker: Broker) -> None:
    source = broker.create_queue("a", dead_letter=None)
    target = broker.create_queue("b", dead_letter=None)
    source.put("short", ttl=0.5)
    source.put("long", ttl=3600)
    source.put("none")
    time.sleep(0.2)
    assert source.move_to("b") == 3
    eventually(lambda: target.qsize() == 2, "the short one has expired")
    assert target.stats().dropped_expired == 1


def test_a_message_without_a_ttl_gets_that_of_the_target(broker: Broker) -> None:
    source = broker.create_queue("a")
    target = broker.create_queue("b", ttl=0.2, dead_letter=None)
    source.put("x")
    assert source.move_to("b") == 1
    eventually(lambda: target.qsize() == 0, "it has expired")
    assert target.stats().dropped_expired == 1


def test_a_message_of_a_transaction_gets_the_ttl_of_its_queue(broker: Broker) -> None:
    target = broker.create_queue("b", ttl=0.2, dead_letter=None)
    with broker.transaction() as transaction:
        transaction.put(target, "x")
    eventually(lambda: target.stats().dropped_expired == 1, "it has expired")


def test_more_bytes_move_than_one_batch_holds(broker: Broker) -> None:
    source = broker.create_queue("a", arena_bytes=64 << 20)
    target = broker.create_queue("b", arena_bytes=64 << 20)
    for number in range(20):
        source.put(bytes([number]) * (1 << 20))
    assert source.move_to("b") == 20
    assert [message.body[0] for message in target.get_many(20)] == list(range(20))
    assert (source.stats().in_flight, source.stats().depth) == (0, 0)
