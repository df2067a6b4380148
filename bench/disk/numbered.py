"""Messages that carry the numbers of their producer and of themselves, and their check."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable

from bench.disk.figures import SIZE
from bench.stage import Failed

#: The numbers of the producer and of its message.
NUMBERS = struct.Struct("<II")
FILLER = random.Random(SIZE).randbytes(SIZE - NUMBERS.size)


def bodies_of(producer: int, count: int, first: int = 0) -> list[bytes]:
    """Messages of a producer in order, from the one with that number."""
    return [NUMBERS.pack(producer, number) + FILLER for number in range(first, first + count)]


def check(bodies: Iterable[bytes], producers: int, each: int) -> None:
    """Check that each message is there once, whole, and in its producer's order.

    Raises Failed.
    """
    expected = [0] * producers
    for body in bodies:
        producer, number = NUMBERS.unpack_from(body)
        if body[NUMBERS.size :] != FILLER or producer >= producers:
            raise Failed(f"message {number} came from the disk with other bytes")
        if number != expected[producer]:
            raise Failed(
                f"message {number} of producer {producer} came from the disk in place "
                f"of message {expected[producer]}"
            )
        expected[producer] += 1
    if expected != [each] * producers:
        short = min(range(producers), key=lambda producer: expected[producer])
        raise Failed(
            f"of producer {short}, {expected[short]} messages are on disk where {each} were "
            f"confirmed"
        )
