"""Producers and consumers, each to be killed at any moment."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import shmq
from shmq.stress.journal import ACKED, ACKING, GOT, INTENT, PUT, RETURNED, Journal

GROUPS = 8
BATCH = 16
LARGE = 9_000


def produce(namespace: str, directory: Path, worker: int) -> None:
    """Put messages in every way there is, until killed."""
    journal, chance = Journal(directory, worker), random.Random(worker)
    queue = shmq.connect(namespace).queue("work")
    number = worker << 32
    while True:
        number += 1
        journal.write(INTENT, number)
        queue.put(body_of(number, chance), True, **properties(chance))
        journal.write(PUT, number)
        if chance.random() < 0.1:
            number = put_batch(queue, journal, number)


def put_batch(queue: Any, journal: Journal, number: int) -> int:
    numbers = range(number + 1, number + 1 + BATCH)
    for each in numbers:
        journal.write(INTENT, each)
    done = queue.put_many([each.to_bytes(8, "big") for each in numbers], True)
    for each in numbers[:done]:
        journal.write(PUT, each)
    return number + BATCH


def body_of(number: int, chance: random.Random) -> bytes:
    """The number, and behind it what can be derived from it."""
    size = LARGE if chance.random() < 0.05 else chance.randrange(200)
    return number.to_bytes(8, "big") + number.to_bytes(8, "little") * (size // 8)


def number_of(body: bytes) -> int:
    """The number in a body. Raises ValueError if the bytes are not what was put."""
    number = int.from_bytes(body[:8], "big")
    if body[8:] != number.to_bytes(8, "little") * (len(body) // 8 - 1):
        raise ValueError(f"the body of message {number} was torn")
    return number


def properties(chance: random.Random) -> dict[str, Any]:
    draw = chance.random()
    if draw < 0.3:
        return {"group": f"g{chance.randrange(GROUPS)}"}
    if draw < 0.4:
        return {"priority": chance.randrange(3), "headers": {"draw": draw}}
    if draw < 0.45:
        return {"delay": chance.random() / 100}
    return {}


def consume(namespace: str, directory: Path, worker: int) -> None:
    """Take messages in every way there is, until killed."""
    journal, chance = Journal(directory, worker), random.Random(worker)
    queue = shmq.connect(namespace).queue("work")
    while True:
        way = chance.randrange(3)
        if way == 0:
            for _ in range(20):
                settle(queue.get(), journal, chance)
        elif way == 1:
            settle_batch(queue, queue.get_many(BATCH), journal)
        else:
            consume_some(queue, journal, chance)


def settle(message: Any, journal: Journal, chance: random.Random) -> None:
    number = number_of(bytes(message.view) if chance.random() < 0.1 else message.body)
    journal.write(GOT, number)
    if chance.random() < 0.02:
        journal.write(RETURNED, number)
        message.nack(delay=0)
        return
    journal.write(ACKING, number)
    message.ack()
    journal.write(ACKED, number)


def settle_batch(queue: Any, messages: list[Any], journal: Journal) -> None:
    numbers = [number_of(message.body) for message in messages]
    for kind in (GOT, ACKING):
        for number in numbers:
            journal.write(kind, number)
    if queue.ack_many(messages):
        raise AssertionError("a lease was lost although nobody else could have had it")
    for number in numbers:
        journal.write(ACKED, number)


def consume_some(queue: Any, journal: Journal, chance: random.Random) -> None:
    with queue.consume(prefetch=chance.randrange(1, 64)) as consumer:
        for _, message in zip(range(100), consumer, strict=False):
            number = number_of(message.body)
            journal.write(GOT, number)
            journal.write(ACKING, number)
            message.ack()
            journal.write(ACKED, number)
