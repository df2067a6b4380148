"""Subscriptions: a reader of a stream, a pattern of keys, and what came before."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol

from shmq import contract
from shmq.core import _core
from shmq.errors import OffsetOutOfRange, Unsupported
from shmq.options import check_one_of, check_whole
from shmq.routing.topic import Topics, check_pattern

__all__ = ["Floors", "NoFloors", "Subscription", "subscribe"]

#: The most records that are asked for at once while the history is looked for.
_MOST: Final = 4096

#: The most keys that are known to match, or not to.
_MOST_KEYS: Final = 65536

_TARGET: Final = ("queue", "")

Lost = Callable[[int], object]


class Floors(Protocol):
    """What keeps records from being overwritten that a subscription has not had."""

    def move(self, position: dict[int, int]) -> None:
        """Let what is before these offsets go."""

    def drop(self) -> None:
        """Let everything go. May be called again."""


class NoFloors:
    """Of a subscription that holds nothing back."""

    def move(self, position: dict[int, int]) -> None:
        """Nothing is held."""

    def drop(self) -> None:
        """Nothing is held."""


class _Keys:
    """Which keys match the pattern."""

    def __init__(self, pattern: str) -> None:
        self._topics = Topics()
        self._topics.add(check_pattern(pattern), _TARGET)
        self._all = pattern == "#"
        self._known: dict[bytes | None, bool] = {}

    def select(self, records: Iterable[contract.Record]) -> list[contract.Record]:
        """Those of the records whose keys match; one without a key has no word."""
        if self._all:
            return list(records)
        return [record for record in records if self._matches(record.key)]

    def _matches(self, key: bytes | None) -> bool:
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST_KEYS:
                self._known.clear()
            text = (key or b"").decode("utf-8", "surrogateescape")
            known = self._known[key] = bool(self._topics.match(text))
        return known


class Subscription(contract.Subscription):
    """See :class:`shmq.contract.Subscription`. ``hold`` makes the floors of a position."""

    def __init__(
        self,
        stream: Any,
        pattern: str,
        history: int | None,
        policy: contract.Policy,
        timeout: float | None,
        limit: int,
        on_lost: Lost | None,
        hold: Callable[[dict[int, int]], Floors],
    ) -> None:
        _core.check_timeout(timeout)
        check_one_of("policy", policy, ("drop-oldest", "block"))
        if on_lost is not None and not callable(on_lost):
            raise TypeError(f"on_lost={on_lost!r} must be called with a number, and cannot be")
        self._pattern = pattern
        self._policy = policy
        self._timeout = timeout
        self._on_lost = on_lost
        self._told = 0
        self._keys = _Keys(pattern)
        history = None if history is None else check_whole("history", history, 0)
        first = stream.earliest if history is None else stream.latest
        position, self._floors = _begin(stream, first, hold if policy == "block" else None)
        self._ready = deque(_history(stream, position, self._keys, history or 0))
        self._reader = stream.reader(position, limit=limit, lapped="skip")
        self._closed = False

    @property
    def pattern(self) -> str:
        """See :class:`shmq.contract.Subscription`."""
        return self._pattern

    @property
    def policy(self) -> contract.Policy:
        """See :class:`shmq.contract.Subscription`."""
        return self._policy

    @property
    def position(self) -> dict[int, int]:
        """See :class:`shmq.contract.Subscription`."""
        return dict(self._reader.position)

    @property
    def lost(self) -> int:
        """See :class:`shmq.contract.Subscription`."""
        return int(self._reader.lost)

    def poll(self, timeout: float | None = 0.0) -> list[contract.Record]:
        """See :class:`shmq.contract.Subscription`."""
        _core.check_timeout(timeout)
        if not self._ready:
            self._fill(timeout)
        found = list(self._ready)
        self._ready.clear()
        return found

    def __next__(self) -> contract.Record:
        if self._closed:
            raise StopIteration
        if not self._ready:
            self._fill(self._timeout)
        if not self._ready:
            raise StopIteration
        return self._ready.popleft()

    def _fill(self, timeout: float | None) -> None:
        """Read until something matches, or the time is over; then nothing is ready."""
        until = None if timeout is None else time.monotonic() + timeout
        left = timeout
        while not self._ready:
            self._floors.move(self._reader.position)
            found = self._reader.poll(left)
            self._tell()
            for records in found:
                self._ready += self._keys.select(records)
            left = None if until is None else until - time.monotonic()
            if not found and left is not None and left <= 0:
                return
            left = None if left is None else max(0.0, left)

    def _tell(self) -> None:
        """Say what is lost, before what came behind it."""
        lost = self.lost
        if lost > self._told:
            more, self._told = lost - self._told, lost
            if self._on_lost is not None:
                self._on_lost(more)

    def close(self) -> None:
        """See :class:`shmq.contract.Subscription`."""
        if not self._closed:
            self._closed = True
            self._ready.clear()
            self._reader.close()
            self._floors.drop()

    def __del__(self) -> None:
        floors = getattr(self, "_floors", None)
        if floors is not None:
            floors.drop()


def subscribe(
    stream: Any,
    pattern: str = "#",
    history: int | None = 0,
    *,
    policy: contract.Policy = "drop-oldest",
    timeout: float | None = None,
    limit: int = 1000,
    on_lost: Lost | None = None,
) -> contract.Subscription:
    """``Stream.subscribe`` of a stream that cannot be held back from here."""

    def hold(_: dict[int, int]) -> Floors:
        raise Unsupported(
            f"policy='block': stream {stream.name!r} can only be held back on its own host: "
            f"subscribe there, or with policy='drop-oldest'"
        )

    return Subscription(stream, pattern, history, policy, timeout, limit, on_lost, hold)


def _begin(
    stream: Any, first: Callable[[int], int], hold: Callable[[dict[int, int]], Floors] | None
) -> tuple[dict[int, int], Floors]:
    """Where to begin, and what keeps it there."""
    while True:
        position = {partition: first(partition) for partition in range(stream.partitions)}
        if hold is None:
            return position, NoFloors()
        with contextlib.suppress(OffsetOutOfRange):  # it went meanwhile
            return position, hold(position)


# ---- what came before ----


def _history(
    stream: Any, position: dict[int, int], keys: _Keys, most: int
) -> list[contract.Record]:
    """The newest records before the position that match, of all partitions, by their time."""
    if not most:
        return []
    found = [
        record
        for partition, end in position.items()
        for record in _newest(stream, partition, end, keys, most)
    ]
    found.sort(key=lambda record: record.timestamp_ns)
    return found[-most:]


def _newest(stream: Any, partition: int, end: int, keys: _Keys, most: int) -> list[contract.Record]:
    """The newest of one partition, looked for from the end, in steps that grow."""
    found: list[contract.Record] = []
    step = max(64, most)
    while len(found) < most and end > (earliest := stream.earliest(partition)):
        begin = max(earliest, end - step)
        found = keys.select(_between(stream, partition, begin, end)) + found
        end, step = begin, 2 * step
    return found[-most:]


def _between(stream: Any, partition: int, begin: int, end: int) -> Iterator[contract.Record]:
    """The records between two offsets that are still there."""
    while begin < end:
        try:
            records = stream.read(partition, begin, min(end - begin, _MOST))
        except OffsetOutOfRange as error:
            begin = error.earliest
            continue
        for record in records:
            if record.offset < end:
                yield record
        if records.next_offset <= begin:
            return
        begin = records.next_offset
