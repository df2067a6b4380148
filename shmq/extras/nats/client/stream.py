"""A stream of a cluster: one stream of JetStream for each partition."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import struct
import zlib
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NoReturn, TypeVar

from nats.aio.msg import Msg

from shmq import api, errors
from shmq.api.options import Confirm, check_one_of, check_whole
from shmq.api.stream_options import StreamOptions
from shmq.client.handles.group import Group
from shmq.client.handles.reader import AsyncReader, Reader
from shmq.client.handles.subscription import BaseStream, RetentionFloors
from shmq.errors import InvalidOption, NoSuchStream, StreamDeleted, Unsupported
from shmq.extras.nats.client.address import ClusterTarget
from shmq.extras.nats.client.connection import ClusterConnection
from shmq.extras.nats.client.definitions import Definitions
from shmq.extras.nats.client.group import delete_group, groups_of, open_group
from shmq.extras.nats.client.names import kv_key
from shmq.extras.nats.client.partition import Partition, Row, StreamGone, compressed_block, rows_of
from shmq.extras.nats.client.queue_layout import check_synced
from shmq.model.expression.record_fields import RecordWhere
from shmq.native import _clock as time
from shmq.native import _stream

#: The most partitions of a stream: each is a raft group of the cluster.
MOST_PARTITIONS: Final = 64
_MOST_BLOCK: Final = 1 << 19
#: How many records go to one partition before those without a key go to the next.
_STICKY: Final = 16
_PAUSE: Final = 0.005
#: How often a reader that waits asks what is there, if nothing is published, in seconds.
_LOOK: Final = 1.0
#: How many records one read leaves out at most.
_MOST_LEFT_OUT: Final = 10_000
_T = TypeVar("_T")


def check_possible(connection: ClusterConnection, name: str, options: StreamOptions) -> None:
    """Raise Unsupported for options that JetStream cannot keep."""
    what = f"stream {name!r}"
    if options.confirm == "disk":
        check_synced(connection, what)
    if options.partitions > MOST_PARTITIONS:
        raise Unsupported(
            f"{what}: partitions={options.partitions} is not possible on a cluster, where each is "
            f"a raft group of its own: use at most {MOST_PARTITIONS}"
        )
    if options.overflow == "block":
        raise Unsupported(
            f"{what}: overflow='block' is not possible on a cluster, which does not hold records "
            f"back for groups: set retention_bytes and retention_seconds to what they need"
        )


class NatsStream(BaseStream):
    """A stream of a cluster. Threads, tasks and the children of forks may use a handle."""

    def __init__(
        self,
        connection: ClusterConnection,
        definitions: Definitions,
        name: str,
        definition: Mapping[str, Any],
        *,
        owns_connection: bool = False,
    ) -> None:
        self.connection = connection
        self.definitions = definitions
        self._name = name
        self._options = StreamOptions(**definition["options"])
        self._identity = int(definition["identity"])
        self._created_at = float(definition["created_at"])
        self.logs_of = [
            Partition(connection, name, number, self._options)
            for number in range(self._options.partitions)
        ]
        self._owns_connection = owns_connection
        self._closed = False
        self._turn = itertools.count(random.randrange(1 << 16))

    @property
    def name(self) -> str:
        return self._name

    @property
    def options(self) -> StreamOptions:
        return self._options

    @property
    def identity(self) -> int:
        return self._identity

    @property
    def partitions(self) -> int:
        return self._options.partitions

    def repartition(self, partitions: int) -> range:
        check_whole("partitions", partitions, 1)
        self._unsupported(
            f"repartition({partitions})", "make another stream, and move its producers first"
        )

    # ---- the loop ----

    async def _checked(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        try:
            return await coroutine
        except StreamGone:
            raise StreamDeleted(f"stream {self._name!r} was deleted") from None

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run it in the process's loop, and wait for it."""
        if self._closed:
            coroutine.close()
            self._check_open()
        return self.connection.run(self._checked(coroutine))

    async def arun(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """``run`` for a task of any loop."""
        if self._closed:
            coroutine.close()
            self._check_open()
        return await self.connection.arun(self._checked(coroutine))

    def _check_open(self) -> None:
        if self._closed:
            raise errors.ShmqError(f"this handle of stream {self._name!r} is closed")

    def _unsupported(self, what: str, why: str) -> NoReturn:
        self._check_open()
        raise Unsupported(f"stream {self._name!r}: {what} is not possible on a cluster: {why}")

    def partition(self, number: int) -> Partition:
        """A partition. Raises InvalidOption and TypeError."""
        return self.logs_of[check_whole("partition", number, 0, self.partitions - 1)]

    # ---- appending ----

    def place_of(self, key: bytes | None, partition: int | None = None) -> int:
        """The number of the partition of a record."""
        if partition is not None:
            return self.partition(partition).number
        if key is not None:
            return zlib.crc32(key) % self.partitions
        return next(self._turn) // _STICKY % self.partitions

    def check_append(self, confirm: Confirm | None, timeout: float | None) -> None:
        """Raise for a ``confirm`` that the stream or the cluster cannot give."""
        _stream.check_timeout(timeout)
        if confirm is None:
            return
        check_one_of("confirm", confirm, ("memory", "disk"))
        if confirm == "disk":
            if self._options.durability != "journal":
                raise InvalidOption(
                    f"confirm='disk': stream {self._name!r} keeps no journal: make it with "
                    f"durability='journal', or take confirm='memory'"
                )
            check_synced(self.connection, f"stream {self._name!r}")

    def append(
        self,
        value: Any,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, Any] | None = None,
        timestamp: float | None = None,
        partition: int | None = None,
        codec: str | None = None,
        block: bool | None = None,  # noqa: ARG002 - there is always room: the oldest go
        timeout: float | None = None,
        confirm: Confirm | None = None,
        producer: int | None = None,
        sequence: int | None = None,
    ) -> api.Appended:
        self.check_append(confirm, timeout)
        _check_producer(producer, sequence, partition)
        keys = None if key is None else [key]
        packed = _stream.pack_records(
            [value], keys, None if headers is None else [headers], codec, timestamp
        )
        row = rows_of(packed, time.time_ns())[0]
        place = self.place_of(row.key, partition)
        ids = _ids(producer, sequence, 1)
        offset, duplicate = self.run(self.logs_of[place].append([row], ids))
        return _stream.Appended(place, offset, row.timestamp_ns, duplicate)

    def append_many(
        self,
        values: Iterable[Any],
        *,
        keys: Sequence[bytes | str | None] | None = None,
        headers: Sequence[Mapping[str, Any] | None] | None = None,
        timestamp: float | None = None,
        partition: int | None = None,
        codec: str | None = None,
        block: bool | None = None,  # noqa: ARG002 - there is always room: the oldest go
        timeout: float | None = None,
        confirm: Confirm | None = None,
        producer: int | None = None,
        sequence: int | None = None,
        gaps: bool = False,  # noqa: ARG002 - sequences are ids here
    ) -> list[api.AppendedRange]:
        self.check_append(confirm, timeout)
        _check_producer(producer, sequence, partition)
        _stream.check_many(values)
        every = list(values)
        _stream.check_each("keys", keys, len(every))
        _stream.check_each("headers", headers, len(every))
        rows = rows_of(_stream.pack_records(every, keys, headers, codec, timestamp), time.time_ns())
        places: dict[int, list[Row]] = {}
        sticky = self.place_of(None, partition)
        for row in rows:
            place = sticky if row.key is None else self.place_of(row.key, partition)
            places.setdefault(place, []).append(row)
        return self.run(self._append_rows(places, producer, sequence))

    async def _append_rows(
        self, places: Mapping[int, list[Row]], producer: int | None, sequence: int | None
    ) -> list[api.AppendedRange]:
        done: list[api.AppendedRange] = []
        try:
            for place, rows in places.items():
                ids = _ids(producer, sequence, len(rows))
                first, duplicate = await self.logs_of[place].append(rows, ids)
                done.append(_stream.AppendedRange(place, first, len(rows), duplicate))
        except errors.ShmqError as error:
            error.appended = done  # type: ignore[attr-defined]
            raise
        return done

    @property
    def max_block_bytes(self) -> int:
        return min(_MOST_BLOCK, self._options.ring_bytes // 2)

    def append_block(
        self,
        block: bytes,
        *,
        partition: int,
        count: int | None = None,
        compression: api.Compression | None = None,
        raw_bytes: int | None = None,
        wait: bool | None = None,  # noqa: ARG002 - there is always room: the oldest go
        timeout: float | None = None,
        confirm: Confirm | None = None,
        producer: int | None = None,
        sequence: int | None = None,
        gaps: bool = False,  # noqa: ARG002 - sequences are ids here
    ) -> api.AppendedRange:
        # The records are messages of their own: expanded.
        self.check_append(confirm, timeout)
        _check_producer(producer, sequence, partition)
        place = self.partition(partition)
        try:
            if compression is not None:
                block = compressed_block(block, compression, count or 0, raw_bytes or 0)
            rows = rows_of(block, time.time_ns())
        except (errors.ShmqError, ValueError, struct.error) as error:
            raise InvalidOption(f"the block is no block of records: {error}") from None
        if not rows or (count is not None and count != len(rows)):
            raise InvalidOption(f"count={count}, and the block has {len(rows)} records")
        first, duplicate = self.run(place.append(rows, _ids(producer, sequence, len(rows))))
        return _stream.AppendedRange(partition, first, len(rows), duplicate)

    # ---- reading ----

    def _check_read(self, partition: int, where: str | None, **whole: int | None) -> Partition:
        if where is not None:
            RecordWhere(where)
        for name, value in whole.items():
            if value is not None:
                check_whole(name, value, 0 if name in {"offset", "end"} else 1)
        return self.partition(partition)

    def read(
        self,
        partition: int,
        offset: int,
        limit: int = 1000,
        *,
        max_bytes: int = 1 << 20,
        block: bool = False,
        timeout: float | None = None,
        view: bool = False,  # noqa: ARG002 - it is a copy in any case
        pin: bool = False,  # noqa: ARG002 - and stays
        where: str | None = None,
        end: int | None = None,
    ) -> api.Records:
        # What came over the network is a copy in any case.
        _stream.check_timeout(timeout)
        place = self._check_read(
            partition, where, offset=offset, limit=limit, max_bytes=max_bytes, end=end
        )
        until = (None if timeout is None else time.monotonic() + timeout) if block else 0.0
        return self.run(self._read(place, offset, limit, max_bytes, until, end, where))

    async def aread(
        self,
        partition: int,
        offset: int,
        limit: int = 1000,
        *,
        max_bytes: int = 1 << 20,
        timeout: float | None = None,
        where: str | None = None,
        end: int | None = None,
    ) -> api.Records:
        _stream.check_timeout(timeout)
        place = self._check_read(
            partition, where, offset=offset, limit=limit, max_bytes=max_bytes, end=end
        )
        until = None if timeout is None else time.monotonic() + timeout
        return await self.arun(self._read(place, offset, limit, max_bytes, until, end, where))

    async def _read(
        self,
        place: Partition,
        offset: int,
        limit: int,
        max_bytes: int,
        until: float | None,
        end: int | None,
        where: str | None,
    ) -> api.Records:
        """The records; without any it waits until then (monotonic; None: no limit).

        This client leaves out what ``where`` does not mean; what is read for that has a bound.
        """
        wanted = None if where is None else RecordWhere(where)
        left_out = 0
        while True:
            most = limit if end is None else min(limit, end - offset)
            if most < 1:
                return _stream.records_of(b"", place.number, offset)
            records = await place.read(offset, most, max_bytes)
            came, offset = len(records), records.next_offset
            if wanted is not None:
                records = records.select([wanted.matches(record) for record in records])
                left_out += came
            left = None if until is None else until - time.monotonic()
            if len(records) or left_out >= _MOST_LEFT_OUT:
                return records
            if came:
                continue
            if left is not None and left <= 0:
                return _stream.records_of(b"", place.number, offset, next_offset=offset)
            await self._beyond({place.number: offset}, left)

    async def _beyond(self, position: Mapping[int, int], timeout: float | None) -> bool:
        """Whether one of these partitions has a record at or after the offset, in time."""
        came, look = asyncio.Event(), _LOOK

        async def take(_message: Msg) -> None:
            came.set()

        until = None if timeout is None else time.monotonic() + timeout
        client = await self.connection.client()
        subjects = [self.logs_of[number].subject for number in position]
        listening = [await client.subscribe(subject, cb=take) for subject in subjects]
        try:
            await client.flush()
            while not await self._is_beyond(position):
                left = look if until is None else min(look, until - time.monotonic())
                if left <= 0:
                    return False
                look = min(2 * look, _LOOK)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await came.wait()
                        came.clear()
                        look = _PAUSE  # it comes before it is stored, and may never be
                        await asyncio.sleep(_PAUSE)
            return True
        finally:
            for subscription in listening:
                with contextlib.suppress(Exception):
                    await subscription.unsubscribe()

    async def _is_beyond(self, position: Mapping[int, int]) -> bool:
        found = await asyncio.gather(*(self.logs_of[number].bounds() for number in position))
        return any(one.latest > at for one, at in zip(found, position.values(), strict=True))

    def wait_for_any(self, position: Mapping[int, int], timeout: float | None) -> bool:
        """Wait for a record beyond the position; return whether there is one."""
        return self.run(self._beyond(position, timeout))

    async def abeyond_any(self, position: Mapping[int, int], timeout: float | None) -> bool:
        """``wait_for_any`` for asyncio."""
        return await self.arun(self._beyond(position, timeout))

    def reader(
        self,
        start: api.Start = "earliest",
        partitions: Iterable[int] | None = None,
        *,
        limit: int = 1000,
        timeout: float | None = None,
        lapped: Literal["raise", "skip"] = "raise",
        where: str | None = None,
        on_damage: api.OnDamage = "raise",
    ) -> api.Reader:
        self._check_read(0, where)
        return Reader(self, start, partitions, limit, timeout, lapped, where, on_damage)

    def areader(
        self,
        start: api.Start = "earliest",
        partitions: Iterable[int] | None = None,
        *,
        limit: int = 1000,
        timeout: float | None = None,
        lapped: Literal["raise", "skip"] = "raise",
        where: str | None = None,
        on_damage: api.OnDamage = "raise",
    ) -> api.AsyncReader:
        self._check_read(0, where)
        return AsyncReader(self, start, partitions, limit, timeout, lapped, where, on_damage)

    # ---- looking ----

    def offsets(self) -> list[api.PartitionOffsets]:
        return self.run(self._offsets())

    async def _offsets(self) -> list[api.PartitionOffsets]:
        found = await asyncio.gather(*(log.bounds() for log in self.logs_of))
        return [
            api.PartitionOffsets(
                partition=number,
                earliest=one.earliest,
                latest=one.latest,
                earliest_timestamp=one.earliest_at,
                latest_timestamp=one.latest_at,
                bytes=one.bytes,
                created_at=self._created_at,
            )
            for number, one in enumerate(found)
        ]

    def earliest(self, partition: int) -> int:
        return self.run(self.partition(partition).bounds()).earliest

    def latest(self, partition: int) -> int:
        return self.run(self.partition(partition).bounds()).latest

    def at(self, timestamp: float, partition: int) -> int:
        # It goes by the time at which a server stored a record.
        return self.run(self.partition(partition).at(_stream.least_ns(timestamp)))

    def _new_hold(self) -> RetentionFloors:
        self._unsupported("policy='block'", "its servers hold no records back for subscribers")

    # ---- groups ----

    def group(
        self,
        name: str,
        assignment: api.Assignment | None = None,
        *,
        session_timeout: float | None = None,
        start: api.GroupStart = "earliest",
    ) -> Group:
        self._check_open()
        return open_group(
            self, name, assignment=assignment, session_timeout=session_timeout, start=start
        )

    def share(self, name: str, *, member: str | None = None, **options: Any) -> api.Share:
        del member, options
        self._unsupported(f"share({name!r})", "use a queue, whose messages consumers share")

    def groups(self) -> list[api.GroupSummary]:
        self._check_open()
        return groups_of(self)

    def delete_group(self, name: str) -> None:
        self._check_open()
        delete_group(self, name)

    # ---- the end ----

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._owns_connection:
                self.connection.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return attach_stream, (self.connection.target, self._name)

    def __repr__(self) -> str:
        return f"<NatsStream {self._name!r} of {self.connection.url}>"


def _check_producer(producer: int | None, sequence: int | None, partition: int | None) -> None:
    if (producer is None) != (sequence is None):
        raise InvalidOption("producer and sequence go together: give both, or neither")
    if producer is not None:
        check_whole("producer", producer, 1)
        check_whole("sequence", sequence, 0)
        if partition is None:
            raise InvalidOption("a producer's sequence is of one partition: give it")


def _ids(producer: int | None, sequence: int | None, count: int) -> list[str] | None:
    """The ids of a producer's records; None: they get ids of their own."""
    if producer is None or sequence is None:
        return None
    return [f"{producer:x}.{number}" for number in range(sequence, sequence + count)]


def attach_stream(target: ClusterTarget, name: str) -> NatsStream:
    """Attach to an existing stream with a connection of its own. Raises NoSuchStream."""
    connection = ClusterConnection(target)
    try:
        definitions = Definitions(connection)
        found = connection.run(definitions.get(kv_key("stream", name)))
        if found is None:
            raise NoSuchStream(f"there is no stream {name!r} in {connection.url}: create it first")
        return NatsStream(connection, definitions, name, found.value, owns_connection=True)
    except BaseException:
        connection.close()
        raise
