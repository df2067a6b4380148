"""Subscriptions: a reader of a stream, a key pattern, and the matching history."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from shmq import api
from shmq.api.options import check_one_of, check_whole
from shmq.client.handles.reader import Reader, behind_damage
from shmq.client.ports.stream import Floors
from shmq.errors import DamagedFile, OffsetOutOfRange, ShmqError
from shmq.model.routing.topic import Topics, check_pattern
from shmq.native import _clock as time
from shmq.native import _core

#: The most records that one read of the history search fetches.
_MOST: Final = 4096

#: The most keys whose match result is cached.
_MOST_KEYS: Final = 65536

_TARGET: Final = ("queue", "")

Lost = Callable[[int], object]


class _NoFloors:
    """The floors of a subscription that holds nothing back."""

    number = None

    def take(self, position: Mapping[int, int]) -> None:
        """Nothing is held."""

    move = take

    def close(self) -> None:
        """Nothing is held."""

    drop = close


class _Keys:
    """Decides which keys match the pattern."""

    def __init__(self, pattern: str) -> None:
        self._topics = Topics()
        self._topics.add(check_pattern(pattern), _TARGET)
        self._all = pattern == "#"
        self._known: dict[bytes | None, bool] = {}

    def select(self, records: Iterable[api.Record]) -> list[api.Record]:
        """The records whose keys match; a record without a key has no words."""
        if self._all:
            return list(records)
        return [record for record in records if self._is_match(record.key)]

    def _is_match(self, key: bytes | None) -> bool:
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST_KEYS:
                self._known.clear()
            text = (key or b"").decode("utf-8", "surrogateescape")
            known = self._known[key] = bool(self._topics.match(text))
        return known


class Subscription(api.Subscription):
    """Implements :class:`shmq.api.Subscription`."""

    def __init__(
        self,
        stream: Any,
        pattern: str,
        history: int | None,
        policy: api.Policy,
        timeout: float | None,
        limit: int,
        on_lost: Lost | None,
        on_damage: api.OnDamage,
    ) -> None:
        _core.check_timeout(timeout)
        check_one_of("policy", policy, ("drop-oldest", "block"))
        check_one_of("on_damage", on_damage, ("raise", "skip"))
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
        self._floors: Floors = _NoFloors()
        if policy == "block":
            self._floors = stream.new_floors()
        try:
            position = _begin(stream, first, self._floors)
            before = _History(stream, self._keys, history or 0, on_damage)
            self._ready = deque(before.newest(position))
            self._damaged_before = before.damaged
            self._reader = Reader(
                stream,
                position,
                None,
                limit,
                lapped="skip",
                on_damage=on_damage,
                hold=self._floors.number,
            )
        except BaseException:
            self._floors.close()
            raise
        self._closed = False

    @property
    def pattern(self) -> str:
        return self._pattern

    @property
    def policy(self) -> api.Policy:
        return self._policy

    @property
    def position(self) -> dict[int, int]:
        return dict(self._reader.position)

    @property
    def lost(self) -> int:
        return int(self._reader.lost)

    @property
    def damaged(self) -> int:
        return self._damaged_before + int(self._reader.damaged)

    def poll(self, timeout: float | None = 0.0) -> list[api.Record]:
        _core.check_timeout(timeout)
        self._check_open()
        if not self._ready:
            self._fill(timeout)
        found = list(self._ready)
        self._ready.clear()
        return found

    def __next__(self) -> api.Record:
        if self._closed:
            raise StopIteration
        if not self._ready:
            self._fill(self._timeout)
        if not self._ready:
            raise StopIteration
        return self._ready.popleft()

    def _fill(self, timeout: float | None) -> None:
        """Read until a record matches, or the time has expired; then nothing is ready."""
        until = None if timeout is None else time.monotonic() + timeout
        left = timeout
        while not self._ready:
            self._check_open()  # before it holds anything back again
            self._floors.move(self._reader.position)
            found = self._reader.poll(left)
            self._report_lost()
            for records in found:
                self._ready += self._keys.select(records)
            left = None if until is None else until - time.monotonic()
            if not found and left is not None and left <= 0:
                return
            left = None if left is None else max(0.0, left)

    def _check_open(self) -> None:
        if self._closed:
            raise ShmqError("this subscription is closed: subscribe again")

    def _report_lost(self) -> None:
        """Report the lost records before the records that follow them."""
        lost = self.lost
        if lost > self._told:
            more, self._told = lost - self._told, lost
            if self._on_lost is not None:
                self._on_lost(more)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._ready.clear()
            self._reader.close()
            self._floors.close()

    def __del__(self) -> None:
        floors = getattr(self, "_floors", None)
        if floors is not None:
            floors.drop()


def _begin(stream: Any, first: Callable[[int], int], floors: Floors) -> dict[int, int]:
    """Where to begin; the floors keep the records from there on."""
    while True:
        position = {partition: first(partition) for partition in range(stream.partitions)}
        with contextlib.suppress(OffsetOutOfRange):  # some were overwritten in the meantime
            floors.take(position)
            return position


# ---- what came before ----


class _History:
    """The newest matching records before a position, up to a limit.

    ``damaged`` counts the skipped records, unless damage raises DamagedFile.
    """

    def __init__(self, stream: Any, keys: _Keys, most: int, on_damage: api.OnDamage) -> None:
        self._stream = stream
        self._keys = keys
        self._most = most
        self._skips = on_damage == "skip"
        self.damaged = 0

    def newest(self, position: dict[int, int]) -> list[api.Record]:
        """The records of all partitions, by their time."""
        if not self._most:
            return []
        found = [
            record
            for partition, end in position.items()
            for record in self._find_newest(partition, end)
        ]
        found.sort(key=lambda record: record.timestamp_ns)
        return found[-self._most :]

    def _find_newest(self, partition: int, end: int) -> list[api.Record]:
        """The records of one partition, searched from the end in growing steps."""
        found: list[api.Record] = []
        step = max(64, self._most)
        while len(found) < self._most and end > (earliest := self._stream.earliest(partition)):
            begin = max(earliest, end - step)
            found = self._keys.select(self._read_between(partition, begin, end)) + found
            end, step = begin, 2 * step
        return found[-self._most :]

    def _read_between(self, partition: int, begin: int, end: int) -> Iterator[api.Record]:
        """The remaining records between two offsets."""
        while begin < end:
            try:
                records = self._stream.read(partition, begin, min(end - begin, _MOST))
            except OffsetOutOfRange as error:
                begin = error.earliest
                continue
            except DamagedFile as error:
                if not self._skips:
                    raise
                behind = min(behind_damage(error, begin), end)
                self.damaged += behind - begin
                begin = behind
                continue
            for record in records:
                if record.offset < end:
                    yield record
            if records.next_offset <= begin:
                return
            begin = records.next_offset
