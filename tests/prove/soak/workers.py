"""Producers and consumers, each to be killed at any moment."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import shmq
from shmq.extras.stress.journal import ACKED, ACKING, GOT, INTENT, PUT, RETURNED, Journal
from tests.prove.soak.stops import insist

GROUPS = 8
BATCH = 16
LARGE = 9_000


def produce(namespace: str, directory: Path, worker: int) -> None:
    """Put messages in every way there is, until killed."""
    journal, chance = Journal(directory, worker), random.Random(worker)
    queue = insist(lambda: shmq.connect(namespace).queue("work"))
    number = worker << 32
    while True:
        number += 1
        journal.write(INTENT, number)
        queue.put(body_of(number, chance), True, **properties(chance))
        journal.write(PUT, number)
        if chance.random() < 0.1:
            number = put_batch(queue, journal, number, packed=chance.random() < 0.5)


def put_batch(queue: Any, journal: Journal, number: int, *, packed: bool) -> int:
    numbers = range(number + 1, number + 1 + BATCH)
    for each in numbers:
        journal.write(INTENT, each)
    bodies = [each.to_bytes(8, "big") for each in numbers]
    if packed:
        queue.put_packed(b"".join(bodies), 8, True)
    else:
        queue.put_many(bodies, True)
    for each in numbers:
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


def numbers_of(body: Any) -> list[int]:
    """Those of all records, if it is a packed batch."""
    return [number_of(record) for record in (body if isinstance(body, list) else [body])]


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
    queue = insist(lambda: shmq.connect(namespace).queue("work"))
    while True:
        way = chance.randrange(5)
        if way == 0:
            for _ in range(20):
                settle(queue.get(), journal, chance)
        elif way == 1:
            messages = queue.get_many(BATCH)
            numbers = [number for each in messages for number in numbers_of(body_in(each))]
            settle_all(functools.partial(queue.ack_many, messages), numbers, journal)
        elif way == 2:
            batch = queue.get_batch(BATCH)
            numbers = [number for body in batch for number in numbers_of(body)]
            settle_all(batch.ack, numbers, journal)
        elif way == 3:
            packed = queue.get_packed(2 * BATCH)
            settle_all(packed.ack, numbers_of(list(packed)), journal)
        else:
            consume_some(queue, journal, chance)


def body_in(message: Any) -> Any:
    """The body; a large one is read with the lock."""
    return insist(lambda: message.body)


def settle(message: Any, journal: Journal, chance: random.Random) -> None:
    viewed = message.codec == "bytes" and chance.random() < 0.1
    body = insist(lambda: bytes(message.view) if viewed else message.body)
    numbers = numbers_of(body)
    write_all(journal, GOT, numbers)
    if chance.random() < 0.02:
        write_all(journal, RETURNED, numbers)
        insist(lambda: message.nack(delay=0))
        return
    write_all(journal, ACKING, numbers)
    insist(message.ack)
    write_all(journal, ACKED, numbers)


def settle_all(ack: Callable[[], list[int]], numbers: list[int], journal: Journal) -> None:
    write_all(journal, GOT, numbers)
    write_all(journal, ACKING, numbers)
    if insist(ack):
        raise AssertionError("a lease was lost although no other process could have had it")
    write_all(journal, ACKED, numbers)


def write_all(journal: Journal, kind: int, numbers: list[int]) -> None:
    for number in numbers:
        journal.write(kind, number)


def consume_some(queue: Any, journal: Journal, chance: random.Random) -> None:
    with queue.consume(prefetch=chance.randrange(1, 64)) as consumer:
        for _, message in zip(range(100), consumer, strict=False):
            numbers = numbers_of(body_in(message))
            write_all(journal, GOT, numbers)
            write_all(journal, ACKING, numbers)
            insist(message.ack)
            write_all(journal, ACKED, numbers)
