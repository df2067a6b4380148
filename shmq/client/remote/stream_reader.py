"""Readers that follow a stream of a server, and the hold of a subscription that blocks."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, Literal

from shmq import api
from shmq.api.options import check_one_of, check_whole
from shmq.client.handles.reader import behind_damage, checked_position
from shmq.errors import DamagedFile, OffsetOutOfRange, ShmqError
from shmq.model.expression.record_fields import RecordWhere
from shmq.native import _clock as time
from shmq.native import _core
from shmq.native._stream import MAX_PARTITIONS
from shmq.protocol.messages.stream import Hold
from shmq.protocol.opcodes import Type

#: The longest wait of one FETCH, in seconds; a longer wait takes several.
_WAIT: Final = 20.0
#: The most bytes of entries that one FETCH returns.
_BYTES: Final = 1 << 20
#: The longest wait of a following reader before it checks for new partitions, in seconds.
_SLICE: Final = 1.0

Lapped = Literal["raise", "skip"]


class _Place:
    """A reader's position in each partition, and the order in which partitions take turns.

    A reader that ``follows`` adds new partitions, and reads them only once it has reached the end
    of those that were sealed for them.
    """

    def __init__(
        self,
        stream: Any,
        position: dict[int, int],
        limit: int,
        lapped: Lapped,
        where: str | None,
        on_damage: api.OnDamage,
        *,
        follows: bool,
    ) -> None:
        check_one_of("lapped", lapped, ("raise", "skip"))
        check_one_of("on_damage", on_damage, ("raise", "skip"))
        if where is not None:
            RecordWhere(where)
        self.where = where
        self.limit = check_whole("limit", limit, 1)
        self._stream = stream
        self.position = position
        self.lost = 0
        self.damaged = 0
        self._lapped = lapped
        self._on_damage = on_damage
        #: The partitions that cannot be read on, which are reported once others were read.
        self._problems: dict[int, DamagedFile | OffsetOutOfRange] = {}
        self._follows = follows
        self._looked_at = time.monotonic()
        self._behind: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        if follows and stream.open_partitions.start:
            self.take_up(stream.offsets())

    def wait(self, until: float | None) -> float:
        """How long a FETCH waits, in seconds; a following reader also checks for partitions."""
        left = 0.0 if self._problems else left_of(until)
        return min(left, _SLICE) if self._follows else left

    def now(self) -> dict[int, int]:
        """The positions that may be read now, without partitions that cannot be read on."""
        unread = [p for p, end in self._ends.items() if self.position[p] < end]
        first = min(unread, default=MAX_PARTITIONS)
        return {
            p: at
            for p, at in self.position.items()
            if self._behind.get(p, 0) <= first and p not in self._problems
        }

    def looks(self, waited: float) -> bool:
        """Whether it is time to check for partitions, after a FETCH without records."""
        now = time.monotonic()
        if not self._follows or (not waited and now < self._looked_at + _SLICE):
            return False
        self._looked_at = now
        return True

    def take_up(self, offsets: list[api.PartitionOffsets]) -> bool:
        """Add new partitions; whether there were any."""
        known = len(self.position)
        for found in offsets[known:]:
            self.position[found.partition] = found.earliest
        self._behind = {found.partition: found.behind for found in offsets}
        self._ends = {found.partition: found.latest for found in offsets if found.sealed}
        return len(offsets) > known

    def seek(self, position: Mapping[int, int]) -> None:
        self.position.update(checked_position(position, self.position))
        self._problems.clear()

    def move(self, found: list[api.Records]) -> list[api.Records]:
        """Move past these; returns the non-empty ones. Partitions without records go first."""
        for records in found:
            self.position.pop(records.partition)
            self.position[records.partition] = records.next_offset
        return [records for records in found if len(records)]

    def pass_gap(self, error: OffsetOutOfRange, offsets: list[api.PartitionOffsets]) -> None:
        """Skip records that are gone, or read other partitions first.

        The server's error does not name the partition: ``offsets`` do. Raises it if there are no
        others.
        """
        now = self.now()
        gaps = [found for found in offsets if not _has(found, now.get(found.partition))]
        if not gaps:
            raise error
        for found in gaps:
            at = now[found.partition]
            if self._lapped == "skip" and at < found.earliest:
                self.lost += found.earliest - at
                self.position[found.partition] = found.earliest
            else:
                self._problems[found.partition] = OffsetOutOfRange.of(
                    self._stream.name, found.partition, at, found.earliest, found.latest
                )
        if not self.now():
            self.raise_problem()

    def pass_damage(self, error: DamagedFile) -> None:
        """Continue after the damage, or read others first. Raises it if there are no others."""
        partition = -1 if error.partition is None else error.partition
        if partition not in self.position:
            raise error
        if self._on_damage == "skip":
            offset = self.position[partition]
            self.position[partition] = behind_damage(error, offset)
            self.damaged += self.position[partition] - offset
            return
        self._problems[partition] = error
        if not self.now():
            self.raise_problem()

    def raise_problem(self) -> None:
        """Raise the error that was met before the other partitions were read, if there is one."""
        if self._problems:
            raise self._problems.pop(next(iter(self._problems)))


def _has(found: api.PartitionOffsets, offset: int | None) -> bool:
    """Whether the partition has the offset, or is not read."""
    return offset is None or found.earliest <= offset <= found.latest


class _RemoteReading:
    """What a reader of a server's stream and its twin for asyncio have in common.

    ``hold``: the number of a hold that moves with the reader; only for a stream that can be held
    back.
    """

    def __init__(
        self,
        stream: Any,
        position: dict[int, int],
        limit: int,
        timeout: float | None,
        lapped: Lapped,
        where: str | None,
        on_damage: api.OnDamage,
        *,
        follows: bool,
        hold: int | None = None,
    ) -> None:
        _core.check_timeout(timeout)
        self._stream = stream
        self._place = _Place(stream, position, limit, lapped, where, on_damage, follows=follows)
        self._hold = hold
        self._timeout = timeout
        self._ready: deque[api.Record] = deque()
        self._closed = False

    @property
    def position(self) -> dict[int, int]:
        found = dict(sorted(self._place.position.items()))
        for record in reversed(self._ready):
            found[record.partition] = record.offset
        return found

    @property
    def lost(self) -> int:
        return self._place.lost

    @property
    def damaged(self) -> int:
        return self._place.damaged


class RemoteReader(_RemoteReading, api.Reader):
    """An iterator over records of a :class:`~shmq.client.remote.stream.RemoteStream`."""

    def seek(self, position: Mapping[int, int]) -> None:
        self._forget()
        self._place.seek(position)

    def _forget(self) -> None:
        """Read again what was read ahead."""
        here = self.position
        self._ready.clear()
        self._place.position.update(here)

    def poll(self, timeout: float | None = 0.0) -> list[api.Records]:
        if self._closed:
            raise ShmqError("this reader is closed")
        self._forget()
        return self._poll(timeout)

    def _poll(self, timeout: float | None) -> list[api.Records]:
        until = deadline(timeout)
        self._place.raise_problem()
        while True:
            wait = self._place.wait(until)
            try:
                found = self._place.move(self._fetched(wait))
            except OffsetOutOfRange as error:
                self._place.pass_gap(error, self._stream.offsets())
                continue
            except DamagedFile as error:
                self._place.pass_damage(error)
                continue
            if found:
                return found
            self._place.raise_problem()
            over = until is not None and time.monotonic() >= until
            came = self._place.looks(wait) and self._place.take_up(self._stream.offsets())
            if over and not came:
                return found

    def _fetched(self, wait: float) -> list[api.Records]:
        place = self._place
        hold = None if self._hold is None else (self._hold, place.position)
        found: list[api.Records] = self._stream.fetched(
            place.now(), place.limit, _BYTES, wait, place.where, hold
        )
        return found

    def __next__(self) -> api.Record:
        if not self._ready:
            if self._closed:
                raise StopIteration
            for records in self._poll(self._timeout):
                self._ready.extend(records)
            if not self._ready:
                raise StopIteration
        return self._ready.popleft()

    def close(self) -> None:
        self._closed = True
        self._ready.clear()


class RemoteAsyncReader(_RemoteReading, api.AsyncReader):
    """:class:`RemoteReader` for asyncio."""

    async def __anext__(self) -> api.Record:
        if not self._ready:
            if self._closed:
                raise StopAsyncIteration
            await self._fill(deadline(self._timeout))
            if not self._ready:
                raise StopAsyncIteration
        return self._ready.popleft()

    async def _fill(self, until: float | None) -> None:
        place = self._place
        place.raise_problem()
        while not self._ready:
            wait = place.wait(until)
            try:
                found = await self._stream.afetched(
                    place.now(), place.limit, _BYTES, wait, place.where
                )
            except OffsetOutOfRange as error:
                place.pass_gap(error, await self._stream.aoffsets())
                continue
            except DamagedFile as error:
                place.pass_damage(error)
                continue
            for records in place.move(found):
                self._ready.extend(records)
            if not self._ready:
                place.raise_problem()
            over = until is not None and time.monotonic() >= until
            looks = not self._ready and place.looks(wait)
            came = looks and place.take_up(await self._stream.aoffsets())
            if over and not came:
                return

    async def aclose(self) -> None:
        self._closed = True
        self._ready.clear()


def deadline(timeout: float | None) -> float | None:
    """The monotonic time at which the timeout passes. Raises TypeError, InvalidOption."""
    _core.check_timeout(timeout)
    return None if timeout is None else time.monotonic() + timeout


def left_of(until: float | None) -> float:
    """How long the next FETCH waits, in seconds."""
    return _WAIT if until is None else max(0.0, min(_WAIT, until - time.monotonic()))


class RemoteRetentionHold:
    """Keeps records of a server's stream. ``number`` identifies it within its connection.

    The server keeps the hold for the connection. Each FETCH of the reader includes its position:
    the server releases the records before it. After a reconnection the hold is taken again before
    the reader reads.

    Raises Unsupported if the server has no HOLD.
    """

    def __init__(self, stream: Any, number: int) -> None:
        self._stream = stream
        self._number = number
        self._ended = False

    def take(self, position: Mapping[int, int]) -> None:
        """Hold the records from these offsets on; moves a hold that exists."""
        self._stream.ask(Type.HOLD, self._said(position))

    def move(self, position: Mapping[int, int]) -> None:
        """Nothing to do: the reader's next FETCH includes the position."""

    def reader(self, position: dict[int, int], limit: int, on_damage: api.OnDamage) -> api.Reader:
        """Create the reader of a subscription that has this hold."""
        hold = self._number
        return RemoteReader(
            self._stream, position, limit, None, "skip", None, on_damage, follows=True, hold=hold
        )

    def close(self) -> None:
        """Release the records. May be called again."""
        self._end(wait=True)

    def drop(self) -> None:
        """Release the records, from a destructor."""
        self._end(wait=False)

    def _said(self, position: Mapping[int, int]) -> bytes:
        return Hold(self._stream.identity, self._number, list(position.items())).pack()

    def _end(self, *, wait: bool) -> None:
        """Release the hold; with a lost connection, the server has already dropped it."""
        connection = self._stream.connection
        wire = connection.wire
        if self._ended or wire is None or wire.is_broken or not wire.is_of_this_process:
            return
        self._ended = True
        with contextlib.suppress(ShmqError):
            answer = wire.request(Type.HOLD, True, self._said({}))
            if wait:
                connection.await_(wire, answer, connection.target.request_timeout)
            else:
                wire.forget(answer)
                wire.send()
