"""Messages as columns, and runs of leased messages, for very many messages at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from shmq.display import Displayed
from shmq.native import _core

#: The states of a message, by the number in the column ``state``.
STATES = (None, "ready", "delayed", "leased", "dying")
#: The reasons why a message is dying, by the number in the column ``reason``; None if it is not.
REASONS = (None, "rejected", "max_deliveries", "expired")


@dataclasses.dataclass(slots=True, init=False, repr=False, eq=False)
class Columns(Displayed):
    """A run of messages as columns, in one block of bytes that can be passed to any process.

    ``Columns(data)`` makes it from a block.

    Each column is a memoryview of the block with one number for each message; the offsets have one
    more: body i goes from ``body_offsets[i]`` to ``body_offsets[i + 1]`` of ``bodies``, and its
    properties, a msgpack map or no bytes, likewise in ``metas``. Times are in microseconds since
    1970; 0 means none. Arrow and numpy take the columns without conversion. Raises ValueError for
    bytes that are not a block.
    """

    #: The block, from which `Columns` can be made again.
    data: bytes
    #: How many messages there are.
    count: int
    #: Sequence numbers, unsigned 64-bit.
    sequence: memoryview
    #: When the message was put, signed 64-bit like all times.
    put_at: memoryview
    #: When a delayed message becomes visible.
    visible_at: memoryview
    #: When the lease of a leased message ends.
    lease_until: memoryview
    #: When the message's ``ttl`` ends.
    expires: memoryview
    #: When a dying message became a dead letter.
    dead_at: memoryview
    #: How often the message has been delivered, including the current lease, signed 32-bit.
    deliveries: memoryview
    #: Its priority, signed 32-bit.
    priority: memoryview
    #: Its state, unsigned 8-bit: see `STATES`.
    state: memoryview
    #: Why it is dying, unsigned 8-bit: see `REASONS`.
    reason: memoryview
    #: The number of its codec, unsigned 8-bit: see ``shmq.model.codec.codecs``.
    codec: memoryview
    #: Where the bodies begin and end, signed 32-bit.
    body_offsets: memoryview
    #: The concatenated bodies.
    bodies: memoryview
    #: Where the properties begin and end, signed 32-bit.
    meta_offsets: memoryview
    #: The concatenated property maps.
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
        return self.bodies[self._slice_at(self.body_offsets, at)]

    def meta(self, at: int) -> memoryview:
        """The properties of message ``at``: a msgpack map, or no bytes. Raises IndexError."""
        return self.metas[self._slice_at(self.meta_offsets, at)]

    def _slice_at(self, offsets: memoryview, at: int) -> slice:
        if not 0 <= at < self.count:
            raise IndexError(f"message {at} does not exist: there are {self.count}")
        return slice(offsets[at], offsets[at + 1])

    def __reduce__(self) -> tuple[Any, ...]:
        return Columns, (self.data,)

    def __rich_repr__(self) -> Iterator[tuple[str, object]]:
        yield "messages", self.count
        yield "bytes", len(self.data)

    def __repr__(self) -> str:
        return f"<Columns of {self.count} messages, {len(self.data)} bytes>"


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """Messages that were leased together, as buffers of one number for each message."""

    #: Sequence numbers, unsigned 64-bit.
    sequences: bytes
    #: Receipts, unsigned 64-bit, which settle the messages from any process.
    receipts: bytes
    #: Slots, unsigned 32-bit, by which ``BulkQueue.read_run`` finds the messages.
    slots: bytes

    def __len__(self) -> int:
        return len(self.slots) // 4


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """What a process shows to lease in a name: see ``BulkQueue.take_over``."""

    #: The name.
    name: str
    #: The number of this claim: a newer claim of the name has another one.
    token: int


@dataclasses.dataclass(frozen=True, slots=True)
class Takeover:
    """What ``BulkQueue.take_over`` has taken over."""

    #: The claim, to lease further runs.
    claim: Claim
    #: The messages of the epoch that was asked for, leased again; it may be empty.
    run: Run
    #: How many messages were acknowledged.
    settled: int
    #: How many messages were returned.
    returned: int
