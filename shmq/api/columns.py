"""Messages as columns, and runs of leased messages: for those who take very many at a time."""

from __future__ import annotations

import dataclasses
from typing import Any

from shmq.native import _core

__all__ = ["REASONS", "STATES", "Columns", "Run"]

#: What a message is doing, by the number in the column ``state``.
STATES = (None, "ready", "delayed", "leased", "dying")
#: Why a message is dying, by the number in the column ``reason``; None if it is not.
REASONS = (None, "rejected", "max_deliveries", "expired")


@dataclasses.dataclass(slots=True, init=False, repr=False, eq=False)
class Columns:
    """A run of messages as columns, in one block of bytes that can go anywhere.

    Made of a block: ``Columns(data)``.

    Each column is a memoryview of the block, of one number for each message, but for the
    offsets, which have one more: body i goes from ``body_offsets[i]`` to
    ``body_offsets[i + 1]`` of ``bodies``, and the properties, a msgpack map or no bytes,
    likewise in ``metas``. Times are in microseconds since 1970, 0 where there is none. Arrow
    and numpy take the columns as they are. Raises ValueError for bytes that are no block.
    """

    #: The block: what `Columns` can be made of again.
    data: bytes
    #: How many messages there are.
    count: int
    #: Sequence numbers, unsigned 64-bit.
    sequence: memoryview
    #: When it was put, signed 64-bit as all times.
    put_at: memoryview
    #: When a delayed one becomes visible.
    visible_at: memoryview
    #: When the lease of a leased one ends.
    lease_until: memoryview
    #: When its ``ttl`` ends.
    expires: memoryview
    #: When a dying one became a dead letter.
    dead_at: memoryview
    #: How often it has been delivered, a lease that is under way included, signed 32-bit.
    deliveries: memoryview
    #: Its priority, signed 32-bit.
    priority: memoryview
    #: What it is doing, unsigned 8-bit: see `STATES`.
    state: memoryview
    #: Why it is dying, unsigned 8-bit: see `REASONS`.
    reason: memoryview
    #: The number of its codec, unsigned 8-bit: see ``shmq.codec.codecs``.
    codec: memoryview
    #: Where the bodies begin and end, signed 32-bit.
    body_offsets: memoryview
    #: The bodies, one behind the other.
    bodies: memoryview
    #: Where the properties begin and end, signed 32-bit.
    meta_offsets: memoryview
    #: The properties, one map behind the other.
    metas: memoryview

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.count, places = _core.columns_of(data)
        view = memoryview(data)
        for (name, kind), (at, size) in zip(_core.COLUMN_FORMATS, places, strict=True):
            column: Any = view[at : at + size]
            setattr(self, name, column.cast(kind))

    def __len__(self) -> int:
        return self.count

    def body(self, at: int) -> memoryview:
        """The bytes of the body of message ``at``. Raises IndexError."""
        return self.bodies[self._within(self.body_offsets, at)]

    def meta(self, at: int) -> memoryview:
        """The properties of message ``at``: a msgpack map, or no bytes. Raises IndexError."""
        return self.metas[self._within(self.meta_offsets, at)]

    def _within(self, offsets: memoryview, at: int) -> slice:
        if not 0 <= at < self.count:
            raise IndexError(f"there is no message {at} of {self.count}")
        return slice(offsets[at], offsets[at + 1])

    def __reduce__(self) -> tuple[Any, ...]:
        return Columns, (self.data,)

    def __repr__(self) -> str:
        return f"<Columns of {self.count} messages, {len(self.data)} bytes>"


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """Messages that were leased together: numbers, one for each, as bytes."""

    #: Sequence numbers, unsigned 64-bit.
    sequences: bytes
    #: Receipts, unsigned 64-bit: what settles each, from any process.
    receipts: bytes
    #: Where they stand, unsigned 32-bit: what ``BulkQueue.read_run`` finds them by.
    slots: bytes

    def __len__(self) -> int:
        return len(self.slots) // 4
