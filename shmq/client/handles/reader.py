"""An iterator over a stream's records that follows it, for any transport."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, Literal

from shmq import api
from shmq.api.options import check_one_of, check_whole
from shmq.client.shared.policy import POLICY
from shmq.errors import DamagedFile, InvalidOption, OffsetOutOfRange, ShmqError
from shmq.model.expression.record_fields import RecordWhere
from shmq.native import _clock as time
from shmq.native import _stream

#: The longest wait of a reader of all partitions before it checks for new ones, in seconds.
_SLICE: Final = 1.0

# The binding of streams gets its policy, and its records their contract, before a record is read.
_stream.set_policy(POLICY)
api.Record.register(_stream.Record)
api.Records.register(_stream.Records)


class Position:
    """A reader's position in each of its partitions, and its lost records.

    It reads a partition only once it has reached the end of the earlier ones sealed for it.
    """

    def __init__(
        self,
        stream: Any,
        start: api.Start,
        partitions: Iterable[int] | None,
        limit: int,
        lapped: Literal["raise", "skip"],
        where: str | None,
        on_damage: api.OnDamage,
    ) -> None:
        self.stream = stream
        self.limit = check_whole("limit", limit, 1)
        self.skips = check_one_of("lapped", lapped, ("raise", "skip")) == "skip"
        self.skips_damage = check_one_of("on_damage", on_damage, ("raise", "skip")) == "skip"
        if where is not None:
            RecordWhere(where)
        self.where = where
        self.offsets = where_from(stream, start, partitions)
        self.lost = 0
        self.damaged = 0
        self._problem: DamagedFile | OffsetOutOfRange | None = None
        self._turn = 0
        self._all = partitions is None
        self._behind: dict[int, int] = {}
        self._known = 0

    def seek(self, position: Mapping[int, int]) -> None:
        """Continue at other offsets of these partitions."""
        self.offsets.update(checked_position(position, self.offsets))
        self._known = 0
        self._problem = None

    def take(self) -> list[api.Records]:
        """The records available now; the partitions take turns.

        Raises DamagedFile or OffsetOutOfRange if a partition cannot be read on, once the others'
        records were returned.
        """
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem
        found = []
        self._take_up()
        order = sorted(self.offsets)
        if self._behind:
            order = self._without_waiting(order)
        self._turn = (self._turn + 1) % len(order)
        for partition in order[self._turn :] + order[: self._turn]:
            try:
                records = self._read(partition)
            except (DamagedFile, OffsetOutOfRange) as error:
                problem = problem or error
                continue
            if len(records):
                found.append(records)
        if problem is not None and not found:
            raise problem
        self._problem = problem
        return found

    def slice(self, left: float | None) -> float | None:
        """How long to wait now, if ``left`` seconds are left."""
        if not self._all:
            return left
        return _SLICE if left is None else min(left, _SLICE)

    def _take_up(self) -> None:
        """Add partitions that the stream has got; they are read from their beginning."""
        count = self.stream.partitions
        if count == self._known:
            return
        if self._all:
            for partition in range(len(self.offsets), count):
                self.offsets[partition] = self.stream.earliest(partition)
        if self.stream.open_partitions.start:
            behind = {each.partition: each.behind for each in self.stream.offsets()}
            self._behind = {p: behind[p] for p in self.offsets if behind[p]}
        self._known = count

    def _without_waiting(self, order: list[int]) -> list[int]:
        """The partitions that may be read now."""
        ends = {p: self.stream.latest(p) for p in order if p < max(self._behind.values())}
        unread = [p for p, end in ends.items() if self.offsets[p] < end]
        if not unread:
            self._behind = {}  # sealed partitions get no more records
            return order
        return [p for p in order if self._behind.get(p, 0) <= unread[0]]

    def _read(self, partition: int) -> api.Records:
        while True:
            offset = self.offsets[partition]
            try:
                records: api.Records = self.stream.read(
                    partition, offset, self.limit, where=self.where
                )
            except OffsetOutOfRange as error:
                if not self.skips or error.asked > error.latest:
                    raise
                self.offsets[partition] = error.earliest
                self.lost += error.earliest - offset
                continue
            except DamagedFile as error:
                if not self.skips_damage:
                    raise
                self.offsets[partition] = behind_damage(error, offset)
                self.damaged += self.offsets[partition] - offset
                continue
            self.offsets[partition] = records.next_offset
            return records


def behind_damage(error: DamagedFile, offset: int) -> int:
    """The offset after the damage at ``offset``. Raises the error if it does not name it."""
    if error.next_offset is None or error.next_offset <= offset:
        raise error
    return error.next_offset


def checked_position(position: Mapping[int, int], known: Collection[int]) -> dict[int, int]:
    """The position, if all its partitions are ``known``. Raises InvalidOption, TypeError."""
    if not isinstance(position, Mapping):
        raise TypeError(
            f"position={position!r:.80} must be a map of offsets by partition, not "
            f"{type(position).__name__}"
        )
    for partition in position:
        if partition not in known:
            raise InvalidOption(f"partition={partition!r} is none of this reader's")
    return {at: check_whole("offset", offset, 0) for at, offset in position.items()}


def where_from(stream: Any, start: api.Start, partitions: Iterable[int] | None) -> dict[int, int]:
    """The first offset of each partition. Raises InvalidOption, TypeError."""
    wanted = range(stream.partitions) if partitions is None else list(partitions)
    if not wanted:
        raise InvalidOption("partitions is empty: a reader reads one at least")
    for partition in start if isinstance(start, Mapping) else ():
        check_whole("partition", partition, 0, stream.partitions - 1)
    return {
        check_whole("partition", partition, 0, stream.partitions - 1): _first(
            stream, start, partition
        )
        for partition in wanted
    }


def _first(stream: Any, start: api.Start, partition: int) -> int:
    if isinstance(start, Mapping):
        offset = start.get(partition)
        return stream.earliest(partition) if offset is None else check_whole("start", offset, 0)
    if isinstance(start, str):
        check_one_of("start", start, ("earliest", "latest"))
        found: int = getattr(stream, start)(partition)
        return found
    at: int = stream.at(start, partition)
    return at


class Reader(api.Reader):
    """Implements :class:`shmq.api.Reader`.

    Beyond the contract, the stream has ``wait_for_any(position, timeout)``: whether one of these
    partitions has a record at or after the offset, in time.
    """

    def __init__(
        self,
        stream: Any,
        start: api.Start,
        partitions: Iterable[int] | None,
        limit: int,
        timeout: float | None,
        lapped: Literal["raise", "skip"],
        where: str | None,
        on_damage: api.OnDamage,
    ) -> None:
        _stream.check_timeout(timeout)
        self._at = Position(stream, start, partitions, limit, lapped, where, on_damage)
        self._timeout = timeout
        self._ready: list[api.Records] = []
        self._records: Iterator[api.Record] | None = None
        self._current: tuple[int, int] | None = None
        self._closed = False

    @property
    def position(self) -> dict[int, int]:
        position = dict(self._at.offsets)
        for records in self._ready:
            position[records.partition] = records[0].offset
        if self._current is not None:
            position[self._current[0]] = self._current[1]
        return position

    @property
    def lost(self) -> int:
        return self._at.lost

    @property
    def damaged(self) -> int:
        return self._at.damaged

    def seek(self, position: Mapping[int, int]) -> None:
        now = self.position
        self._forget()
        self._at.offsets.update(now)
        self._at.seek(position)

    def _forget(self) -> None:
        self._ready.clear()
        self._records = self._current = None

    def poll(self, timeout: float | None = 0.0) -> list[api.Records]:
        self._check_open()
        _stream.check_timeout(timeout)
        now = self.position
        self._forget()
        self._at.offsets.update(now)
        return self._poll(timeout)

    def _poll(self, timeout: float | None) -> list[api.Records]:
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            found = self._at.take()
            if found:
                return found
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return []
            self._at.stream.wait_for_any(self._at.offsets, self._at.slice(left))

    def __next__(self) -> api.Record:
        if self._closed:
            raise StopIteration
        while True:
            if self._records is not None:
                for record in self._records:
                    self._current = record.partition, record.offset + 1
                    return record
                self._records = self._current = None
            if not self._ready:
                self._ready = self._poll(self._timeout)[::-1]
            if not self._ready:
                raise StopIteration
            self._records = iter(self._ready.pop())

    def close(self) -> None:
        self._closed = True
        self._forget()

    def _check_open(self) -> None:
        if self._closed:
            raise ShmqError("this reader is closed")


class AsyncReader(api.AsyncReader):
    """Implements :class:`shmq.api.AsyncReader`.

    Beyond the contract, the stream has ``abeyond_any(position, timeout)``: an awaitable
    ``wait_for_any``.
    """

    def __init__(
        self,
        stream: Any,
        start: api.Start,
        partitions: Iterable[int] | None,
        limit: int,
        timeout: float | None,
        lapped: Literal["raise", "skip"],
        where: str | None,
        on_damage: api.OnDamage,
    ) -> None:
        _stream.check_timeout(timeout)
        self._at = Position(stream, start, partitions, limit, lapped, where, on_damage)
        self._timeout = timeout
        self._ready: list[api.Record] = []
        self._position = dict(self._at.offsets)
        self._closed = False

    @property
    def position(self) -> dict[int, int]:
        return dict(self._position if self._ready else self._at.offsets)

    @property
    def lost(self) -> int:
        return self._at.lost

    @property
    def damaged(self) -> int:
        return self._at.damaged

    async def __anext__(self) -> api.Record:
        if not self._ready and not self._closed:
            await self._poll()
        if self._closed or not self._ready:
            raise StopAsyncIteration
        record = self._ready.pop()
        self._position[record.partition] = record.offset + 1
        return record

    async def _poll(self) -> None:
        """Read once, yielding to other tasks at each read."""
        until = None if self._timeout is None else time.monotonic() + self._timeout
        import asyncio  # noqa: PLC0415 - callers that await have it loaded

        await asyncio.sleep(0)
        while True:
            self._position = dict(self._at.offsets)
            found = [record for records in self._at.take() for record in records]
            left = None if until is None else until - time.monotonic()
            if found or (left is not None and left <= 0):
                self._ready = found[::-1]
                return
            await self._at.stream.abeyond_any(self._at.offsets, self._at.slice(left))

    async def aclose(self) -> None:
        self._closed = True
        self._ready = []
