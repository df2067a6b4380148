"""A stream of a cluster: one stream of JetStream for each partition."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Coroutine, Mapping
from typing import Any, Final, NoReturn, TypeVar

from nats.aio.msg import Msg

from shmq import api, errors
from shmq.api.options import check_whole
from shmq.api.stream_options import StreamOptions
from shmq.client.handles.stream import StreamHandle
from shmq.client.ports.group import GroupStore
from shmq.client.ports.share import Lender
from shmq.client.ports.steps import Steps
from shmq.client.ports.stream import AppendedEntries, Entries, Floors, Found
from shmq.client.shared.pickling import reduce
from shmq.errors import InvalidOption, NoSuchStream, StreamDeleted, Unsupported
from shmq.extras.nats.client.address import ClusterTarget
from shmq.extras.nats.client.connection import ClusterConnection
from shmq.extras.nats.client.definitions import Definitions
from shmq.extras.nats.client.group import delete_group, groups_of, open_group
from shmq.extras.nats.client.names import kv_key
from shmq.extras.nats.client.partition import Partition, StreamGone, compressed_block, rows_of
from shmq.extras.nats.client.queue_layout import check_synced
from shmq.model.expression.record_fields import RecordWhere
from shmq.native import _clock as time

#: The most partitions of a stream: each is a raft group of the cluster.
MOST_PARTITIONS: Final = 64
_MOST_BLOCK: Final = 1 << 19
_PAUSE: Final = 0.005
#: How often a reader that waits asks what is there, if nothing is published, in seconds.
_LOOK: Final = 1.0
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


class NatsStream(StreamHandle):
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

    def change_partitions(self, partitions: int) -> range:
        self._raise_unsupported(
            f"repartition({partitions})", "make another stream, and move its producers first"
        )

    # ---- the loop ----

    async def _wait_checked(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        try:
            return await coroutine
        except StreamGone:
            raise StreamDeleted(f"stream {self._name!r} was deleted") from None

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run it in the process's loop, and wait for it."""
        if self._closed:
            coroutine.close()
            self._check_open()
        return self.connection.run(self._wait_checked(coroutine))

    async def arun(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """``run`` for a task of any loop."""
        if self._closed:
            coroutine.close()
            self._check_open()
        return await self.connection.arun(self._wait_checked(coroutine))

    def _check_open(self) -> None:
        if self._closed:
            raise errors.closed_handle("stream", self._name)

    def _raise_unsupported(self, what: str, why: str) -> NoReturn:
        self._check_open()
        raise Unsupported(f"stream {self._name!r}: {what} is not possible on a cluster: {why}")

    def partition(self, number: int) -> Partition:
        """A partition. Raises InvalidOption and TypeError."""
        return self.logs_of[check_whole("partition", number, 0, self.partitions - 1)]

    # ---- appending ----

    @property
    def max_block_bytes(self) -> int:
        return min(_MOST_BLOCK, self._options.ring_bytes // 2)

    def append_entries(self, entries: Entries) -> AppendedEntries:
        # The records are messages of their own: expanded.
        if entries.durable:
            check_synced(self.connection, f"stream {self._name!r}")
        block, count = entries.block, entries.count
        try:
            if entries.compression is not None:
                block = compressed_block(block, entries.compression, count, entries.raw_bytes)
            rows = rows_of(block, time.time_ns())
        except (errors.ShmqError, ValueError, struct.error) as error:
            raise InvalidOption(f"the block is not a block of records: {error}") from None
        if not rows or count != len(rows):
            raise InvalidOption(f"count={count}, and the block has {len(rows)} records")
        ids = None
        if entries.producer is not None and entries.sequence is not None:
            sequences = range(entries.sequence, entries.sequence + count)
            ids = [f"{entries.producer:x}.{sequence}" for sequence in sequences]
        first, duplicate = self.run(self.logs_of[entries.partition].append(rows, ids))
        return AppendedEntries(first, count, rows[0].timestamp_ns, duplicate)

    # ---- reading ----

    def fetch(
        self,
        places: Mapping[int, int],
        limit: int,
        max_bytes: int,
        wait: float | None,
        where: str | None = None,
        hold: tuple[int, Mapping[int, int]] | None = None,
    ) -> Steps[Found]:
        del hold
        asked = places, limit, max_bytes, wait, where
        found: Found = yield (
            lambda: self.run(self._fetch(*asked)),
            lambda: self.arun(self._fetch(*asked)),
        )
        return found

    async def _fetch(
        self,
        places: Mapping[int, int],
        limit: int,
        max_bytes: int,
        wait: float | None,
        where: str | None,
    ) -> dict[int, Any]:
        while True:
            found = await asyncio.gather(
                *(self._read_one(p, at, limit, max_bytes, where) for p, at in places.items())
            )
            read = {p: one for p, one in zip(places, found, strict=True) if one is not None}
            if read or wait == 0 or not await self._wait_beyond(places, wait):
                return read
            wait = 0

    async def _read_one(
        self, partition: int, offset: int, limit: int, max_bytes: int, where: str | None
    ) -> Any:
        """The records of one partition, why there can be none, or None; this client filters."""
        try:
            records = await self.logs_of[partition].read(offset, limit, max_bytes)
        except errors.OffsetOutOfRange as error:
            return error
        if where is not None and len(records):
            meant = RecordWhere(where)
            return records.select([meant.matches(record) for record in records])
        return records if len(records) else None

    async def _wait_beyond(self, position: Mapping[int, int], timeout: float | None) -> bool:
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
        return self.run(self._wait_beyond(position, timeout))

    async def abeyond_any(self, position: Mapping[int, int], timeout: float | None) -> bool:
        """``wait_for_any`` for asyncio."""
        return await self.arun(self._wait_beyond(position, timeout))

    # ---- looking ----

    def describe(self) -> Steps[list[api.PartitionOffsets]]:
        found: list[api.PartitionOffsets] = yield (
            lambda: self.run(self._describe()),
            lambda: self.arun(self._describe()),
        )
        return found

    async def _describe(self) -> list[api.PartitionOffsets]:
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

    def find(self, partition: int, timestamp_ns: int) -> int:
        # It goes by the time at which a server stored a record.
        return self.run(self.logs_of[partition].at(timestamp_ns))

    def new_floors(self) -> Floors:
        self._raise_unsupported(
            "policy='block'", "its servers hold no records back for subscribers"
        )

    # ---- groups ----

    def open_group(self, name: str, options: Mapping[str, Any], create: bool) -> GroupStore:
        self._check_open()
        return open_group(self, name, options, create)

    def open_lender(
        self, name: str, member: str, on_damage: api.OnDamage, options: Mapping[str, Any]
    ) -> Lender:
        del member, on_damage, options
        self._raise_unsupported(f"share({name!r})", "use a queue, whose messages consumers share")

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
        return reduce(self, attach_stream, self.connection.target, self._name)

    def __repr__(self) -> str:
        return f"<NatsStream {self._name!r} of {self.connection.url}>"


def attach_stream(target: ClusterTarget, name: str) -> NatsStream:
    """Attach to an existing stream with a connection of its own. Raises NoSuchStream."""
    connection = ClusterConnection(target)
    try:
        definitions = Definitions(connection)
        found = connection.run(definitions.get(kv_key("stream", name)))
        if found is None:
            raise NoSuchStream.of(name, connection.where)
        return NatsStream(connection, definitions, name, found.value, owns_connection=True)
    except BaseException:
        connection.close()
        raise
