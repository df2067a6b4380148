"""Messages of a server that are leased and settled together."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from shmq import api
from shmq.native import _core
from shmq.protocol.opcodes import FOREVER, Type

__all__ = ["RemoteBatch", "RemotePacked"]


class _Run:
    """The common part of a batch and a packed batch."""

    def __init__(self, queue: Any, messages: list[Any]) -> None:
        self._queue = queue
        self._receipts = _core.receipts_of(messages)
        self._last = messages[-1] if messages else None  # handed out: none of them was settled
        self._settled = False

    def __del__(self) -> None:
        last = getattr(self, "_last", None)
        if last is not None and _core.is_leased(last):
            _core.warn_dropped(
                f"a batch of {len(self._receipts)} messages, up to {last.sequence}, of queue "
                f"{self._queue.name!r}",
                frames=2,
            )

    @property
    def receipts(self) -> list[int]:
        """See :class:`shmq.api.Batch`."""
        self._last = None
        return list(self._receipts)

    @property
    def settled(self) -> bool:
        """See :class:`shmq.api.Batch`."""
        return self._settled

    def ack(self) -> list[int]:
        """See :class:`shmq.api.Batch`."""
        return self._settle(Type.ACK, None)

    def nack(self, delay: float | None = None) -> list[int]:
        """See :class:`shmq.api.Batch`."""
        return self._settle(
            Type.NACK, FOREVER if delay is None else _core.milliseconds("delay", delay)
        )

    def _settle(self, kind: int, argument: int | None) -> list[int]:
        refused: list[int] = []
        if not self._settled and self._receipts:
            refused = self._queue.settle(kind, self._receipts, argument)
        self._settled = True
        self._receipts = []
        self._last = None
        return refused


class RemoteBatch(_Run, api.Batch):
    """See :class:`shmq.api.Batch`."""

    def __init__(self, queue: Any, bodies: list[Any], messages: list[Any]) -> None:
        super().__init__(queue, messages)
        self._bodies = bodies

    @property
    def bodies(self) -> list[Any]:
        """See :class:`shmq.api.Batch`."""
        return self._bodies

    def __len__(self) -> int:
        return len(self._bodies)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._bodies)

    def __repr__(self) -> str:
        return f"<Batch of {len(self._bodies)} messages of {self._queue.name!r}>"


class RemotePacked(_Run, api.Packed):
    """See :class:`shmq.api.Packed`."""

    def __init__(self, queue: Any, messages: list[Any]) -> None:
        super().__init__(queue, messages)
        self._data, self._count, self._size, self._each = _core.packed_of(messages)

    @property
    def data(self) -> bytes:
        """See :class:`shmq.api.Packed`."""
        return self._data

    @property
    def size(self) -> int | None:
        """See :class:`shmq.api.Packed`."""
        return self._size

    @property
    def lengths(self) -> memoryview:
        """See :class:`shmq.api.Packed`."""
        if self._each is None:
            self._each = array("I", [self._size or 0]).tobytes() * self._count
        return memoryview(self._each).cast("I")

    @property
    def offsets(self) -> memoryview:
        """See :class:`shmq.api.Packed`."""
        places = array("Q", accumulate(self.lengths, initial=0))
        return memoryview(places.tobytes()).cast("Q")

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        start = 0
        for length in self.lengths:
            yield self._data[start : start + length]
            start += length

    def __repr__(self) -> str:
        return f"<Packed of {len(self)} records, {len(self._data)} bytes, of {self._queue.name!r}>"
