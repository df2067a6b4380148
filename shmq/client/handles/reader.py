"""An iterator over a stream's records that follows it, for any transport."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, Literal

from shmq import api
from shmq.api.options import check_one_of, check_whole
from shmq.client.ports.steps import Steps, arun, run
from shmq.client.shared.policy import POLICY
from shmq.errors import DamagedFile, InvalidOption, OffsetOutOfRange, ShmqError
from shmq.model.expression.record_fields import RecordWhere
from shmq.native import _clock as time
from shmq.native import _core, _stream

#: The longest wait of a reader of all partitions before it checks for new ones, in seconds.
_SLICE: Final = 1.0
#: The most bytes that one read fetches from a partition.
READ_BYTES: Final = 1 << 20

# The binding of streams gets its policy, and its records their contract, before a record is read.
_stream.set_policy(POLICY)
api.Record.register(_stream.Record)
api.Records.register(_stream.Records)


class Position:
    """A reader's position in each of its partitions, and its lost records.

    It reads a partition only once it has reached the end of the earlier ones sealed for it.
    ``follows``: it reads partitions that the stream gets, too. ``hold``: the number of a hold that
    moves with the reader, see `StreamPort.fetch`.
    """

    def __init__(
        self,
        stream: Any,
        offsets: dict[int, int],
        follows: bool,
        limit: int,
        lapped: Literal["raise", "skip"],
        where: str | None,
        on_damage: api.OnDamage,
        hold: int | None = None,
    ) -> None:
        self.stream = stream
        self._limit = check_whole("limit", limit, 1)
        self._skips = check_one_of("lapped", lapped, ("raise", "skip")) == "skip"
        self._skips_damage = check_one_of("on_damage", on_damage, ("raise", "skip")) == "skip"
        if where is not None:
            RecordWhere(where)
        self._where = where
        self._hold = hold
        #: The partitions that were read least recently come first.
        self.offsets = offsets
        self.lost = 0
        self.damaged = 0
        #: The partitions that cannot be read on, which are reported once others were read.
        self._problems: dict[int, DamagedFile | OffsetOutOfRange] = {}
        self._follows = follows
        self._known = 0
        self._behind: dict[int, int] = {}
        self._ends: dict[int, int] = {}

    def seek(self, position: Mapping[int, int]) -> None:
        """Continue at other offsets of these partitions."""
        self.offsets.update(checked_position(position, self.offsets))
        self._known = 0
        self._problems.clear()

    def take(self, timeout: float | None) -> Steps[list[api.Records]]:
        """The next records, once there are some; none after ``timeout`` seconds.

        Raises DamagedFile or OffsetOutOfRange if a partition cannot be read on, once the others'
        records were returned.
        """
        self._raise_problem()
        until = None if timeout is None else time.monotonic() + timeout
        left = timeout
        while True:
            if self.stream.partitions != self._known:
                yield from self._take_up()
            clear = not self._ends and not self._problems
            found = yield from self.stream.fetch(
                self.offsets if clear else self._list_readable(),
                self._limit,
                READ_BYTES,
                (wait := self._limit_wait(left)),
                self._where,
                None if self._hold is None else (self._hold, self.offsets),
            )
            records, again = self._move(found)
            if records:
                return records
            self._raise_problem()
            if self._follows and not again:
                yield from self.stream.refresh(bool(wait))
                again = self.stream.partitions != self._known
            left = None if until is None else max(0.0, until - time.monotonic())
            if left == 0 and not again:
                return []

    def take_now(self) -> list[api.Records]:
        """The next records, if no step is needed for them: faster than `take`."""
        stream = self.stream
        if self._ends or self._problems or stream.partitions != self._known:
            return []
        found = stream.fetch_now(self.offsets, self._limit, READ_BYTES, self._where)
        return self._move(found)[0] if found else []

    def _limit_wait(self, left: float | None) -> float | None:
        """How long to wait now, if ``left`` seconds are left."""
        if self._problems:
            return 0.0
        if not self._follows:
            return left
        return _SLICE if left is None else min(left, _SLICE)

    def _take_up(self) -> Steps[None]:
        """Add partitions that the stream has got; they are read from their beginning."""
        count = self.stream.partitions
        if (self._follows and count > len(self.offsets)) or self.stream.open_partitions.start:
            found: list[api.PartitionOffsets] = yield from self.stream.describe()
            count = len(found)
            if self._follows:
                for each in found[len(self.offsets) :]:
                    self.offsets[each.partition] = each.earliest
            mine = [each for each in found if each.partition in self.offsets]
            self._behind = {each.partition: each.behind for each in mine}
            self._ends = {each.partition: each.latest for each in mine if each.sealed}
        self._known = count

    def _list_readable(self) -> dict[int, int]:
        """The positions that may be read now, without partitions that cannot be read on."""
        unread = [p for p, end in self._ends.items() if self.offsets[p] < end]
        if not unread:
            self._ends = {}  # sealed partitions get no more records
        return {
            p: at
            for p, at in self.offsets.items()
            if (not unread or self._behind[p] <= min(unread)) and p not in self._problems
        }

    def _move(self, found: Mapping[int, Any]) -> tuple[list[api.Records], bool]:
        """Move past these; returns the non-empty ones, and whether to read again at once."""
        records, again = [], False
        for partition, one in found.items():
            if isinstance(one, Exception):
                again = self._pass(partition, one) or again
                continue
            del self.offsets[partition]
            self.offsets[partition] = one.next_offset
            if one:
                records.append(one)
        return records, again

    def _pass(self, partition: int, error: Any) -> bool:
        """Skip what cannot be read, if it may be skipped, or keep the error for later."""
        offset = self.offsets[partition]
        if isinstance(error, OffsetOutOfRange):
            if self._skips and error.asked <= error.latest:
                self.offsets[partition] = error.earliest
                self.lost += error.earliest - offset
                return True
        elif self._skips_damage:
            self.offsets[partition] = behind_damage(error, offset)
            self.damaged += self.offsets[partition] - offset
            return True
        self._problems[partition] = error
        return False

    def _raise_problem(self) -> None:
        """Raise the error that was met before the other partitions were read, if there is one."""
        if self._problems:
            raise self._problems.pop(next(iter(self._problems)))


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
    ends: list[api.PartitionOffsets] = stream.offsets() if partitions is None else []
    wanted = range(len(ends)) if partitions is None else list(partitions)
    if not wanted:
        raise InvalidOption("partitions is empty: a reader reads one at least")
    for partition in (*wanted, *(start if isinstance(start, Mapping) else ())):
        stream.check_partition(partition)
    if isinstance(start, str):
        check_one_of("start", start, ("earliest", "latest"))
    elif not isinstance(start, Mapping):
        return {partition: stream.at(start, partition) for partition in wanted}
    given = start if isinstance(start, Mapping) else {}
    if not ends and any(partition not in given for partition in wanted):
        ends = stream.offsets()
    edge = "latest" if start == "latest" else "earliest"
    return {
        partition: check_whole("start", given[partition], 0)
        if partition in given
        else getattr(ends[partition], edge)
        for partition in wanted
    }


class _Reading:
    """What a reader and its twin for asyncio have in common.

    Beyond the contract, the stream is a :class:`shmq.client.ports.stream.StreamPort`.
    """

    def __init__(
        self,
        stream: Any,
        start: api.Start,
        partitions: Iterable[int] | None,
        limit: int = 1000,
        timeout: float | None = None,
        lapped: Literal["raise", "skip"] = "raise",
        where: str | None = None,
        on_damage: api.OnDamage = "raise",
    ) -> None:
        timeout = _core.check_timeout(timeout)
        offsets = where_from(stream, start, partitions)
        self._at = Position(stream, offsets, partitions is None, limit, lapped, where, on_damage)
        self._timeout = timeout
        self._ready: list[api.Records] = []
        self._records: Iterator[api.Record] | None = None
        self._current: tuple[int, int] | None = None
        self._closed = False

    @property
    def position(self) -> dict[int, int]:
        position = dict(sorted(self._at.offsets.items()))
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

    def _forget(self) -> None:
        """Read again what was read ahead."""
        if self._ready or self._current is not None:
            self._at.offsets.update(self.position)
            self._drop()

    def _drop(self) -> None:
        self._ready.clear()
        self._records = self._current = None

    def _get_next(self) -> api.Record | None:
        """The next record that was read ahead; None: there is none."""
        while True:
            if self._records is not None:
                for record in self._records:
                    self._current = record.partition, record.offset + 1
                    return record
                self._records = self._current = None
            if not self._ready:
                return None
            self._records = iter(self._ready.pop())


class Reader(_Reading, api.Reader):
    """Implements :class:`shmq.api.Reader`."""

    def seek(self, position: Mapping[int, int]) -> None:
        self._forget()
        self._at.seek(position)

    def poll(self, timeout: float | None = 0.0) -> list[api.Records]:
        if self._closed:
            raise ShmqError("this reader is closed")
        timeout = _core.check_timeout(timeout)
        self._forget()
        return self._at.take_now() or run(self._at.take(timeout))

    def __next__(self) -> api.Record:
        while True:
            if self._records is not None:  # as `_get_next`, for speed
                for record in self._records:
                    self._current = record.partition, record.offset + 1
                    return record
                self._records = self._current = None
            if not self._ready and not self._closed:
                found = self._at.take_now() or run(self._at.take(self._timeout))
                self._ready = found[::-1]
            if not self._ready:
                raise StopIteration
            self._records = iter(self._ready.pop())

    def close(self) -> None:
        self._closed = True
        self._drop()


class AsyncReader(_Reading, api.AsyncReader):
    """Implements :class:`shmq.api.AsyncReader`."""

    async def __anext__(self) -> api.Record:
        record = None if self._closed else self._get_next()
        if record is None and not self._closed:
            import asyncio  # noqa: PLC0415 - callers that await have it loaded

            await asyncio.sleep(0)  # lets other tasks run, even if records are always there
            self._ready = (await arun(self._at.take(self._timeout)))[::-1]
            record = None if self._closed else self._get_next()
        if record is None:
            raise StopAsyncIteration
        return record

    async def aclose(self) -> None:
        self._closed = True
        self._drop()
