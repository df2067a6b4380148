"""Appenders and members of a group, each to be killed at any moment."""

from __future__ import annotations

import contextlib
import random
import zlib
from collections.abc import Iterable
from pathlib import Path

import shmq
from tests.prove.soak.stops import insist
from tests.prove.soak.streams.history import key_of
from tests.prove.soak.streams.notes import Kind, Notes

STREAM = "history"
GROUP = "members"
BATCH = 32
LARGE = 9_000


def value_of(message: int) -> bytes:
    """The message, and behind it what can be derived from it, of some length or other."""
    size = LARGE if message % 61 == 0 else message * 7 % 200
    return message.to_bytes(8, "big") + message.to_bytes(8, "little") * (size // 8)


def message_of(record: shmq.Record) -> int:
    """The message of a record. Raises ValueError if its bytes are not what was appended."""
    message = int.from_bytes(record.value[:8], "big")
    if record.value != value_of(message) or record.key not in (None, key_of(message)):
        raise ValueError(f"the record at {record.offset} of partition {record.partition} was torn")
    return message


def append(namespace: str, directory: Path, worker: int) -> None:
    """Append messages in every way there is, until killed."""
    notes, chance = Notes(directory, worker), random.Random(worker)
    stream = insist(lambda: shmq.connect(namespace).stream(STREAM))
    message, sequence = worker << 32, 0
    while True:
        size = chance.choice((1, 1, 1, chance.randrange(2, BATCH)))
        messages = range(message + 1, message + 1 + size)
        message += size
        notes.write(Kind.APPENDING, ((0, 0, each) for each in messages))
        # What a full disk does not confirm is in memory; nothing is promised of it.
        with contextlib.suppress(shmq.NotConfirmed):
            if worker % 3 == 0:
                steps = append_once(stream, messages, worker, sequence)
            elif size == 1:
                done = stream.append(value_of(message), key=key_of(message), block=True)
                steps = [(done.partition, done.offset, message)]
            else:
                steps = append_batch(stream, messages)
            notes.write(Kind.APPENDED, steps)
        sequence += size


def append_batch(stream: shmq.Stream, messages: range) -> list[tuple[int, int, int]]:
    """Append them by their keys; where each is."""
    keys = [key_of(each) for each in messages]
    ranges = stream.append_many(map(value_of, messages), keys=keys, block=True)
    # Within a partition they are in the order in which they were given.
    offsets: dict[int, list[int]] = {}
    for piece in ranges:
        offsets.setdefault(piece.partition, []).extend(
            range(piece.first, piece.first + piece.count)
        )
    steps = []
    partitions = stream.partitions
    for each in messages:
        partition = zlib.crc32(key_of(each)) % partitions
        steps.append((partition, offsets[partition].pop(0), each))
    return steps


def append_once(
    stream: shmq.Stream, messages: Iterable[int], worker: int, sequence: int
) -> list[tuple[int, int, int]]:
    """Append them as a producer that tries again, though it had been told."""
    partition = worker % stream.partitions
    values = list(map(value_of, messages))
    for again in (False, True):
        ranges = stream.append_many(
            values, partition=partition, producer=worker, sequence=sequence, block=True
        )
        if again and not all(piece.duplicate for piece in ranges):
            raise AssertionError("what was appended before was appended again")
    first = ranges[0].first
    return [(partition, first + at, each) for at, each in enumerate(messages)]


def take_part(namespace: str, directory: Path, worker: int) -> None:
    """Read as a member of the group, until killed."""
    notes, chance = Notes(directory, worker), random.Random(worker)
    stream = insist(lambda: shmq.connect(namespace).stream(STREAM))
    with insist(lambda: stream.group(GROUP).join()) as member:
        while True:
            batches = insist(lambda: member.poll(chance.randrange(1, 200), timeout=0.1))
            for records in batches:
                notes.write(
                    Kind.READ, ((one.partition, one.offset, message_of(one)) for one in records)
                )
            try:
                insist(member.commit)
            except shmq.MemberFenced:
                continue  # the owner of the partition reads them again
