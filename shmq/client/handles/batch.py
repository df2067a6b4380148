"""Messages of a network transport that are leased and settled together."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from shmq import api
from shmq.client.ports.queue import Settlement
from shmq.display import sample
from shmq.native import _core


def returning(delay: float | None, counted: bool) -> tuple[Settlement, int | None]:
    """Return the settlement that returns messages after ``delay`` seconds, and its time in ms."""
    if counted:
        return "nack", None if delay is None else _core.milliseconds("delay", delay)
    return "return", _core.milliseconds("delay", delay or 0)


class _Run:
    """The common part of a batch and a packed batch."""

    def __init__(self, queue: Any, messages: list[Any]) -> None:
        self._queue = queue
        self._receipts: list[int] = queue.port.receipts_of(messages)
        self._last = messages[-1] if messages else None  # delivered: none of them was settled
        self._settled = False

    def __del__(self) -> None:
        last = getattr(self, "_last", None)
        if last is not None and self._queue.port.is_leased(last):
            _core.warn_dropped(
                f"a batch of {len(self._receipts)} messages, up to {last.sequence}, of queue "
                f"{self._queue.name!r}",
                frames=2,
            )

    @property
    def receipts(self) -> list[int]:
        self._last = None
        return list(self._receipts)

    @property
    def settled(self) -> bool:
        return self._settled

    def ack(self) -> list[int]:
        return self._settle("ack", None)

    def nack(
        self,
        delay: float | None = None,
        *,
        counted: bool = True,
        error: BaseException | api.Failure | str | None = None,
    ) -> list[int]:
        return self._settle(*returning(delay, counted), _core.pack_error(error, counted))

    def _settle(self, kind: Settlement, ms: int | None, error: bytes | None = None) -> list[int]:
        refused: list[int] = []
        if not self._settled and self._receipts:
            refused = self._queue.port.settle(kind, self._receipts, ms, error)
        self._settled = True
        self._receipts = []
        self._last = None
        return refused


class Batch(_Run, api.Batch):
    """Implements :class:`shmq.api.Batch`."""

    def __init__(self, queue: Any, messages: list[Any], bodies: list[Any]) -> None:
        super().__init__(queue, messages)
        self._bodies = bodies

    @property
    def bodies(self) -> list[Any]:
        return self._bodies

    def __len__(self) -> int:
        return len(self._bodies)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._bodies)

    def __rich_repr__(self) -> Iterator[tuple[str, object]]:
        yield "queue", self._queue.name
        yield "messages", len(self._bodies)
        yield from sample(self._bodies)

    def __repr__(self) -> str:
        return f"<Batch of {len(self._bodies)} messages of {self._queue.name!r}>"


class Packed(_Run, api.Packed):
    """Implements :class:`shmq.api.Packed`."""

    def __init__(self, queue: Any, messages: list[Any]) -> None:
        super().__init__(queue, messages)
        self._data: bytes
        self._count: int
        self._size: int | None
        self._data, self._count, self._size, self._each = queue.port.packed_of(messages)

    @property
    def data(self) -> bytes:
        return self._data

    @property
    def size(self) -> int | None:
        return self._size

    @property
    def lengths(self) -> memoryview:
        if self._each is None:
            self._each = array("I", [self._size or 0]).tobytes() * self._count
        return memoryview(self._each).cast("I")

    @property
    def offsets(self) -> memoryview:
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
