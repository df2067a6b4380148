"""A verifiable message body: producer, number, time of the put, and a CRC."""

from __future__ import annotations

import random
import struct
import time
import zlib

from shmq.extras.stress.journal import NUMBER_BITS
from shmq.extras.stress.plan import LEAST_SIZE

#: Producer, number, monotonic ns, and the CRC-32 of the rest.
_HEAD = struct.Struct("<IIQ")
_CRC = struct.Struct("<I")
_CRC_AT = _HEAD.size

#: Bodies rotate through this many fillings, so that a mix of two bodies is detected.
_FILLINGS = 16


class TornBody(ValueError):
    """A body differs from what was put."""


class Bodies:
    """Makes the bodies of one producer, all of ``size`` bytes."""

    def __init__(self, producer: int, size: int) -> None:
        chance = random.Random(producer)
        self._producer = producer
        self._fillings = [chance.randbytes(size - LEAST_SIZE) for _ in range(_FILLINGS)]

    def make(self, number: int) -> bytes:
        """The body of the message with that number, stamped with the current time."""
        head = _HEAD.pack(self._producer, number, time.monotonic_ns())
        filling = self._fillings[number % _FILLINGS]
        return head + _CRC.pack(zlib.crc32(filling, zlib.crc32(head))) + filling


def opened(body: bytes, size: int) -> tuple[int, int]:
    """The message's id in the journals, and when it was put, in monotonic ns.

    Raises :class:`TornBody`.
    """
    if len(body) != size:
        raise TornBody(f"a body has {len(body)} bytes, {size} were put")
    producer, number, at = _HEAD.unpack_from(body)
    (crc,) = _CRC.unpack_from(body, _CRC_AT)
    if zlib.crc32(body[LEAST_SIZE:], zlib.crc32(body[:_CRC_AT])) != crc:
        raise TornBody(f"the checksum of message {number} of producer {producer} is wrong")
    return producer << NUMBER_BITS | number, at
