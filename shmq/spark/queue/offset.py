"""The messages of a micro-batch, as the offset that Spark keeps in the checkpoint.

An offset has the number of its batch and, for each queue with messages in it, the queue's
identity and the sequence numbers, in delivery order. So exactly the same messages can be
leased again after any process has died. As JSON::

    {"version": 1, "batch": 7, "queues": {"orders": {"id": "00c0ffee…", "count": 3, "taken": "…"}}}

``taken`` is the zlib-compressed differences between the numbers, in base64. The first
difference is the first number itself. The differences are little-endian integers of the
smallest width that holds them all; a byte in front of them has the width.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import zlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Self

import numpy as np

from shmq.errors import ShmqError

__all__ = ["NOTHING", "Offset", "QueueOffset"]

VERSION: Final = 1

#: The most messages that a queue, and so an offset, can hold.
MOST: Final = 1 << 24


@dataclasses.dataclass(frozen=True, slots=True)
class QueueOffset:
    """Messages of one queue: its identity, and the sequence numbers as bytes of u64."""

    identity: int
    sequences: bytes

    def __len__(self) -> int:
        return len(self.sequences) // 8

    def as_json(self) -> dict[str, Any]:
        """The JSON that the checkpoint keeps."""
        return {"id": f"{self.identity:016x}", "count": len(self), "taken": _pack(self.sequences)}

    @classmethod
    def of_json(cls, given: Any) -> Self:
        """The inverse of :meth:`as_json`. Raises ValueError and its like for other JSON."""
        count = given["count"]
        if type(count) is not int or not 0 < count <= MOST:
            raise ValueError(f"a count of {count!r}")
        return cls(int(given["id"], 16), _unpack(given["taken"], count))


@dataclasses.dataclass(frozen=True, slots=True)
class Offset:
    """The end of a micro-batch: its number, counted from 1, and its messages by queue."""

    batch: int
    queues: Mapping[str, QueueOffset]

    def __len__(self) -> int:
        return sum(map(len, self.queues.values()))

    def as_json(self) -> dict[str, Any]:
        """The JSON for Spark, always with the same keys in the same order."""
        queues = {name: self.queues[name].as_json() for name in sorted(self.queues)}
        return {"version": VERSION, "batch": self.batch, "queues": queues}

    @classmethod
    def of_json(cls, given: Mapping[str, Any]) -> Self:
        """The offset in Spark's JSON. Raises ShmqError for JSON that is not of this source."""
        try:
            if given["version"] != VERSION or type(given["batch"]) is not int:
                raise ValueError(f"version {given['version']!r}, batch {given['batch']!r}")
            queues = {name: QueueOffset.of_json(each) for name, each in given["queues"].items()}
        except (LookupError, TypeError, ValueError, AttributeError, zlib.error) as error:
            raise ShmqError(
                f"the checkpoint has an offset that is not one of format('shmq') for queues, "
                f"version {VERSION}: {str(given)[:200]} ({error}); give the query a checkpoint of "
                f"its own"
            ) from None
        return cls(given["batch"], MappingProxyType(queues))


#: Where every stream begins: before its first batch.
NOTHING: Final = Offset(0, MappingProxyType({}))


def _pack(sequences: bytes) -> str:
    numbers = np.frombuffer(sequences, dtype="<u8").astype("<i8")
    steps = np.diff(numbers, prepend=0)
    low, high = int(steps.min()), int(steps.max())
    width = next(w for w in (1, 2, 4, 8) if -(1 << (8 * w - 1)) <= low and high < 1 << (8 * w - 1))
    return base64.b64encode(
        zlib.compress(bytes((width,)) + steps.astype(f"<i{width}").tobytes(), 1)
    ).decode()


def _unpack(text: str, count: int) -> bytes:
    try:
        packed = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
    inflate = zlib.decompressobj()
    data = inflate.decompress(packed, 8 * count + 2)
    if not inflate.eof or data[0] not in (1, 2, 4, 8) or len(data) != data[0] * count + 1:
        raise ValueError(f"{len(data)} bytes for {count} numbers")
    steps = np.frombuffer(data, dtype=f"<i{data[0]}", offset=1)
    return np.cumsum(steps, dtype="<i8").astype("<u8").tobytes()
