"""Memory: taken in steps, given back, and never blocked by one message.

Other levels: c/test_arena.c, system/processes/test_full_memory.py.
"""

from __future__ import annotations

import random

import pytest

import shmq
from shmq import Broker, Queue
from tests.support.processes import HOUR

from .tools import drain

KIB = 1024


def test_an_empty_queue_and_its_dead_letters_take_little(broker: Broker) -> None:
    queue = broker.create_queue("jobs")

    taken = queue.stats().shm_bytes + broker.queue("jobs.dlq").stats().shm_bytes

    assert 0 < taken <= 64 * KIB


def test_memory_is_taken_as_messages_need_it(queue: Queue) -> None:
    empty = queue.stats().shm_bytes
    queue.put(bytes(1000 * KIB))
    one = queue.stats().shm_bytes
    queue.put(bytes(1000 * KIB))
    two = queue.stats().shm_bytes

    assert empty + 1000 * KIB <= one
    assert one + 900 * KIB <= two <= queue.options.arena_bytes


def test_memory_that_was_taken_is_used_again(queue: Queue) -> None:
    queue.put(bytes(1000 * KIB))
    drain(queue)
    taken = queue.stats().shm_bytes

    for _ in range(50):
        queue.put(bytes(1000 * KIB))
        drain(queue)

    assert queue.stats().shm_bytes == taken


def test_purge_gives_memory_back(queue: Queue) -> None:
    empty = queue.stats().shm_bytes
    queue.put_many([bytes(500 * KIB)] * 10)
    full = queue.stats().shm_bytes

    queue.purge()

    assert queue.stats().shm_bytes <= empty + (full - empty) // 10
    queue.put(b"\x01" * 500 * KIB)
    assert drain(queue) == [b"\x01" * 500 * KIB]


def test_purge_leaves_the_bytes_of_leased_messages_alone(queue: Queue) -> None:
    queue.put_many([bytes([number]) * 100 * KIB for number in range(20)])
    held = queue.get_many(3)

    queue.purge()

    assert [message.body for message in held] == [bytes([n]) * 100 * KIB for n in range(3)]
    queue.ack_many(held)
    assert queue.stats().arena_used == 0


@pytest.mark.parametrize("held_size", [10, 5000, 60_000])
def test_a_message_held_for_long_blocks_no_space_but_its_own(
    broker: Broker, held_size: int
) -> None:
    queue = broker.create_queue(
        "jobs", arena_bytes=512 * KIB, max_message_bytes=64 * KIB, visibility_timeout=HOUR
    )
    queue.put(b"\x01" * held_size)
    held = queue.get()

    for number in range(500):
        queue.put_many([bytes([number % 256]) * 60_000] * 3)
        assert drain(queue) == [bytes([number % 256]) * 60_000] * 3

    assert held.body == b"\x01" * held_size


@pytest.mark.parametrize("settle", ["ack_many", "receipts", "one by one"])
@pytest.mark.parametrize("looked_at", ["not at all", "body", "view"])
def test_settled_messages_take_no_room_though_their_objects_live(
    broker: Broker, settle: str, looked_at: str
) -> None:
    queue = broker.create_queue("jobs", capacity=4)
    queue.put_many([bytes(10_000)] * 4)
    messages = queue.get_many(4)
    for message in messages:
        if looked_at == "body":
            assert message.body == bytes(10_000)
        elif looked_at == "view":
            message.view.release()

    if settle == "one by one":
        for message in messages:
            message.ack()
    else:
        batch = messages if settle == "ack_many" else [message.receipt for message in messages]
        assert queue.ack_many(batch) == []

    assert queue.put_many([bytes(10_000)] * 4) == 4
    assert len(messages) == 4


def test_any_mix_of_body_sizes_goes_through(broker: Broker) -> None:
    queue = broker.create_queue("jobs", arena_bytes=1024 * KIB, max_message_bytes=64 * KIB)
    chance = random.Random(7)
    sizes = [0, 1, 63, 64, 65, 511, 4095, 4096, 4097, 20_000, 64 * KIB]
    expected: list[bytes] = []
    for number in range(1500):
        body = bytes([number % 256]) * chance.choice(sizes)
        while not queue.put_many([body]):
            with queue.get() as message:
                assert message.body == expected.pop(0)
        expected.append(body)

    assert drain(queue) == expected
    assert queue.stats().arena_used == 0


def test_after_any_mix_of_sizes_the_largest_message_fits_again(broker: Broker) -> None:
    queue = broker.create_queue("jobs", arena_bytes=512 * KIB, max_message_bytes=256 * KIB)
    chance = random.Random(11)
    for _ in range(20):
        queue.put_many([bytes(chance.randrange(1, 30_000)) for _ in range(100)])
        messages = queue.get_many(1000)
        chance.shuffle(messages)
        assert queue.ack_many(messages) == []

    queue.put(bytes(256 * KIB))

    assert len(queue.get().body) == 256 * KIB


def test_the_arena_counts_what_it_holds(queue: Queue) -> None:
    assert queue.stats().arena_used == 0
    queue.put(bytes(100_000))

    stats = queue.stats()

    assert 100_000 <= stats.arena_used <= stats.arena_bytes == queue.options.arena_bytes
    assert stats.arena_largest_free <= stats.arena_bytes - stats.arena_used


def test_a_body_of_the_largest_free_size_fits(broker: Broker) -> None:
    queue = broker.create_queue("jobs", arena_bytes=256 * KIB, max_message_bytes=256 * KIB)
    queue.put(bytes(50_000))
    size = queue.stats().arena_largest_free
    assert size > 0

    queue.put(bytes(size))

    with pytest.raises(shmq.Full):
        queue.put(bytes(size))
