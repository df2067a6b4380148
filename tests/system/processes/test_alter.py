"""Processes that alter the options of one queue at the same time."""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Any

import pytest

import shmq
from tests.support.processes import Start, is_sound

ROUNDS = 100
MESSAGES = 3000


def alter(pipe: Connection, namespace: str, names: tuple[str, str]) -> None:
    """Give both options the same value, again and again."""
    with shmq.connect(namespace) as broker:
        for value in range(1, ROUNDS + 1):
            options: dict[str, Any] = dict.fromkeys(names, value)
            broker.alter_queue("q", **options)
    pipe.send("done")
    pipe.recv()


def test_both_alterations_survive_and_no_reader_sees_half_of_one(
    queue: shmq.Queue, namespace: str, start: Start
) -> None:
    with shmq.connect(namespace) as broker:
        broker.alter_queue("q", ttl=ROUNDS, dead_letter_ttl=ROUNDS, max_deliveries=1, retry_delay=1)
        children = [
            start(alter, namespace, names)
            for names in (("ttl", "dead_letter_ttl"), ("max_deliveries", "retry_delay"))
        ]

        found = queue.options
        for _ in range(20_000):
            found = queue.options
            assert found.ttl == found.dead_letter_ttl
            assert found.max_deliveries == found.retry_delay

        assert [child.hear() for child in children] == ["done", "done"]
        found = queue.options
        assert (found.ttl, found.max_deliveries) == (ROUNDS, ROUNDS)
        is_sound(queue)


def produce(pipe: Connection, namespace: str, producer: int) -> None:
    """Put numbered messages into a queue that is full most of the time."""
    with shmq.connect(namespace) as broker, broker.queue("small") as queue:
        pipe.send("attached")
        pipe.recv()
        for number in range(MESSAGES):
            queue.put((producer, number, b"x" * (number % 3000)), block=True)
        pipe.send("done")
        pipe.recv()


def test_a_queue_grows_and_shrinks_under_its_producers(namespace: str, start: Start) -> None:
    with shmq.connect(namespace) as broker:
        sizes = [(4, 16 << 10), (64, 256 << 10), (16, 64 << 10), (9, 200 << 10), (1, 8 << 10)]
        queue = broker.create_queue(
            "small", capacity=4, arena_bytes=16 << 10, max_message_bytes=4096
        )
        children = [start(produce, namespace, producer) for producer in range(2)]
        assert [child.hear() for child in children] == ["attached", "attached"]
        for child in children:
            child.tell()
        following, altered = [0, 0], 0
        while sum(following) < 2 * MESSAGES:
            for message in queue.get_many(20, timeout=30):
                producer, number, body = message.body
                assert (number, bytes(body)) == (following[producer], b"x" * (number % 3000))
                following[producer] += 1
                message.ack()
            capacity, arena = sizes[sum(following) % len(sizes)]
            try:
                broker.alter_queue("small", capacity=capacity, arena_bytes=arena)
                altered += 1
            except shmq.InvalidOption as error:
                assert "unchanged: its" in str(error)
        assert [child.hear() for child in children] == ["done", "done"]
        assert altered > ROUNDS
        broker.alter_queue("small", capacity=64, arena_bytes=256 << 10)
        is_sound(queue)


def test_a_queue_grows_beyond_what_shared_memory_has(namespace: str) -> None:
    """The room is paid for as it is used: a put is refused, and no process is killed."""
    with shmq.connect(namespace) as broker:
        queue = broker.create_queue("q", arena_bytes=4 << 30, max_message_bytes=1 << 20)
        assert broker.alter_queue("q", arena_bytes=64 << 30).arena_bytes == 64 << 30
        queue.put(b"x" * 1000)
        assert queue.stats().shm_bytes < 1 << 20
        with pytest.raises(shmq.InvalidOption, match="arena_bytes"):
            broker.alter_queue("q", arena_bytes=1 << 37)
