"""Subscriptions: a reader of a stream, a key pattern, and the matching history."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Self, Unpack

from shmq import api
from shmq.api.keywords import SubscribeOptions
from shmq.api.options import check_one_of, check_whole
from shmq.client.handles.reader import READ_BYTES, Position, behind_damage
from shmq.client.ports.steps import Steps, arun, pause, run
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

    def taking(self, position: Mapping[int, int]) -> Steps[None]:
        """Nothing is held."""
        del position
        yield from ()

    def move(self, position: Mapping[int, int]) -> None:
        """Nothing is held."""

    def closing(self) -> Steps[None]:
        """Nothing is held."""
        yield from ()

    def drop(self) -> None:
        """Nothing is held."""


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


class _Subscribing:
    """What a subscription and its twin for asyncio have in common."""

    def __init__(
        self,
        pattern: str,
        history: int | None,
        *,
        policy: api.Policy = "drop-oldest",
        timeout: float | None = None,
        limit: int = 1000,
        on_lost: Lost | None = None,
        on_damage: api.OnDamage = "raise",
    ) -> None:
        timeout = _core.check_timeout(timeout)
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
        self._history = None if history is None else check_whole("history", history, 0)
        self._limit = check_whole("limit", limit, 1)
        self._on_damage = on_damage
        self._floors: Floors = _NoFloors()
        self._ready: deque[api.Record] = deque()
        self._damaged_before = 0
        #: None: it has not started.
        self._at: Position | None = None
        self._closed = False

    @property
    def pattern(self) -> str:
        return self._pattern

    @property
    def policy(self) -> api.Policy:
        return self._policy

    @property
    def position(self) -> dict[int, int]:
        return {} if self._at is None else dict(sorted(self._at.offsets.items()))

    @property
    def lost(self) -> int:
        return 0 if self._at is None else self._at.lost

    @property
    def damaged(self) -> int:
        return self._damaged_before + (0 if self._at is None else self._at.damaged)

    def _start(self, stream: Any) -> Steps[None]:
        if self._policy == "block":
            self._floors = stream.new_floors()
        edge = "earliest" if self._history is None else "latest"
        try:
            offsets = yield from _begin(stream, edge, self._floors)
            before = _History(stream, self._keys, self._history or 0, self._on_damage)
            found = yield from before.newest(offsets)
        except BaseException:
            self._floors.drop()
            raise
        self._ready.extend(found)
        self._damaged_before = before.damaged
        number = self._floors.number
        self._at = Position(
            stream, offsets, True, self._limit, "skip", None, self._on_damage, number
        )

    def _fill(self, at: Position, timeout: float | None) -> Steps[None]:
        """Read until a record matches, or the time has expired; then nothing is ready."""
        until = None if timeout is None else time.monotonic() + timeout
        left = timeout
        while not self._ready:
            self._check_open()  # before it holds anything back again
            self._floors.move(at.offsets)
            found = at.take_now() or (yield from at.take(left))
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

    def _closing(self) -> Steps[None]:
        if not self._closed:
            self._closed = True
            self._ready.clear()
            yield from self._floors.closing()

    def __del__(self) -> None:
        floors = getattr(self, "_floors", None)
        if floors is not None:
            floors.drop()


class Subscription(_Subscribing, api.Subscription):
    """Implements :class:`shmq.api.Subscription`."""

    _at: Position

    def __init__(
        self, stream: Any, pattern: str, history: int | None, **how: Unpack[SubscribeOptions]
    ) -> None:
        super().__init__(pattern, history, **how)
        run(self._start(stream))

    def poll(self, timeout: float | None = 0.0) -> list[api.Record]:
        timeout = _core.check_timeout(timeout)
        self._check_open()
        if not self._ready:
            run(self._fill(self._at, timeout))
        found = list(self._ready)
        self._ready.clear()
        return found

    def __next__(self) -> api.Record:
        if self._closed:
            raise StopIteration
        if not self._ready:
            run(self._fill(self._at, self._timeout))
        if not self._ready:
            raise StopIteration
        return self._ready.popleft()

    def close(self) -> None:
        run(self._closing())


class AsyncSubscription(_Subscribing, api.AsyncSubscription):
    """Implements :class:`shmq.api.AsyncSubscription`.

    ``open_stream`` returns the stream ``name``.
    """

    def __init__(
        self,
        name: str,
        open_stream: Callable[[], Awaitable[Any]],
        pattern: str,
        history: int | None,
        **how: Unpack[SubscribeOptions],
    ) -> None:
        super().__init__(pattern, history, **how)
        self.name = name
        self._open_stream = open_stream

    async def _ensure_started(self) -> Position:
        if self._at is None:
            await arun(self._start(await self._open_stream()))
            assert self._at is not None
        return self._at

    async def __aenter__(self) -> Self:
        self._check_open()
        await self._ensure_started()
        return self

    async def __anext__(self) -> api.Record:
        if not self._closed:
            at = await self._ensure_started()
            if not self._ready:
                import asyncio  # noqa: PLC0415 - callers that await have it loaded

                await asyncio.sleep(0)  # lets other tasks run, even if records are always there
                await arun(self._fill(at, self._timeout))
        if self._closed or not self._ready:
            raise StopAsyncIteration
        return self._ready.popleft()

    async def aclose(self) -> None:
        await arun(self._closing())


def _begin(stream: Any, edge: str, floors: Floors) -> Steps[dict[int, int]]:
    """Where to begin; the floors keep the records from there on."""
    while True:
        found: list[api.PartitionOffsets] = yield from stream.describe()
        position = {each.partition: getattr(each, edge) for each in found}
        with contextlib.suppress(OffsetOutOfRange):  # some were overwritten in the meantime
            yield from floors.taking(position)
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

    def newest(self, position: dict[int, int]) -> Steps[list[api.Record]]:
        """The records of all partitions, by their time."""
        if not self._most:
            return []
        found: list[api.Record] = []
        for each in (yield from self._stream.describe()):
            if each.partition in position:
                found += yield from self._find_newest(each, position[each.partition])
        found.sort(key=lambda record: record.timestamp_ns)
        return found[-self._most :]

    def _find_newest(self, partition: api.PartitionOffsets, end: int) -> Steps[list[api.Record]]:
        """The records of one partition, searched from the end in growing steps."""
        found: list[api.Record] = []
        step = max(64, self._most)
        while len(found) < self._most and end > partition.earliest:
            begin = max(partition.earliest, end - step)
            found = (yield from self._read_between(partition.partition, begin, end)) + found
            end, step = begin, 2 * step
        return found[-self._most :]

    def _read_between(self, partition: int, begin: int, end: int) -> Steps[list[api.Record]]:
        """The remaining records between two offsets whose keys match."""
        found: list[api.Record] = []
        while begin < end:
            yield pause(0.0)  # other tasks run: a read of this host takes no step
            limit = min(end - begin, _MOST)
            part = yield from self._stream.fetch({partition: begin}, limit, READ_BYTES, 0.0)
            records = part.get(partition)
            if isinstance(records, OffsetOutOfRange):
                begin = records.earliest
            elif isinstance(records, DamagedFile):
                if not self._skips:
                    raise records
                behind = min(behind_damage(records, begin), end)
                self.damaged += behind - begin
                begin = behind
            elif records is None:
                break
            else:
                found += self._keys.select(record for record in records if record.offset < end)
                begin = records.next_offset
        return found
