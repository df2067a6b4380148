"""A stream of a server."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from shmq import api, errors
from shmq.api.names import check_name
from shmq.api.options import Confirm, check_whole
from shmq.api.stream_options import StreamOptions
from shmq.client.handles.group import Group
from shmq.client.handles.share import Share
from shmq.client.handles.subscription import BaseStream
from shmq.client.remote.address import Target
from shmq.client.remote.connection import Connection, RemoteHandle
from shmq.client.remote.group import delete_group, groups_of, open_group, open_share
from shmq.client.remote.stream_appender import Appender, AppendOptions
from shmq.client.remote.stream_reader import (
    RemoteAsyncReader,
    RemoteReader,
    RemoteRetentionHold,
    deadline,
    left_of,
)
from shmq.model.expression.record_fields import RecordWhere
from shmq.native import _clock as time
from shmq.native import _core, _stream
from shmq.native._stream import MAX_PARTITIONS
from shmq.protocol.messages.stream import (
    Fetch,
    FetchedPart,
    Hold,
    OffsetAt,
    Repartition,
    StreamInfo,
)
from shmq.protocol.opcodes import Status, Type
from shmq.protocol.status import stream_error_of


class RemoteStream(RemoteHandle, BaseStream):
    """A stream of a server, with a connection of its own. Threads may share a handle.

    A handle used in the child of a fork connects anew, and so does one that is unpickled.
    """

    def __init__(self, connection: Connection, namespace: str) -> None:
        super().__init__(connection, namespace)
        answer = self._ask_info()
        if answer.status == Status.NO_QUEUE:
            raise errors.NoSuchStream(
                f"there is no stream {self._name!r} in namespace {namespace!r} of "
                f"{connection.url}: create it first, or see `shmq stream list`"
            )
        info = StreamInfo.unpack(self._checked(answer))
        self._identity = info.identity
        self._take_shape(info)
        self._appender = Appender(self)
        self._holds = itertools.count(1)  # the numbers of its holds

    # ---- what it is ----

    @property
    def options(self) -> StreamOptions:
        return self._options

    @property
    def identity(self) -> int:
        return self._identity

    @property
    def partitions(self) -> int:
        # Those that it has heard of.
        return self._partitions

    @property
    def open_partitions(self) -> range:
        # Those that it has heard of.
        return range(self._partitions - self._options.partitions, self._partitions)

    def repartition(self, partitions: int) -> range:
        check_whole("partitions", partitions, 1, MAX_PARTITIONS)
        rest = Repartition(self._identity, partitions).pack()
        answer = self._checked(
            self._connection.call(lambda wire: wire.request(Type.REPARTITION, True, rest))
        )
        self.refresh()
        return Repartition.unpack_answer(answer)

    def refresh(self) -> None:
        """Fetch the partitions that were added."""
        self._info()

    def _take_shape(self, info: StreamInfo) -> None:
        self._options = info.options
        self._partitions = info.partitions

    @property
    def max_frame(self) -> int:
        """The longest payload of a request, in bytes."""
        greeting = self._connection.greeting
        assert greeting is not None
        return greeting.max_frame

    # ---- requests ----

    def ask(self, kind: int, rest: bytes, *, wait: float = 0.0) -> _core.Answer:
        """The answer to a request that may be carried out twice, waiting up to ``wait`` seconds.

        Raises the error of a refusal.
        """
        return self._checked(
            self._connection.call(
                lambda wire: wire.request(kind, True, rest), again=True, wait=wait
            )
        )

    async def aask(self, kind: int, rest: bytes, *, wait: float = 0.0) -> _core.Answer:
        """``ask`` for asyncio."""
        return self._checked(
            await self._connection.acall(
                lambda wire: wire.request(kind, True, rest), again=True, wait=wait
            )
        )

    def _checked(self, answer: _core.Answer) -> _core.Answer:
        if answer.status != Status.OK:
            raise stream_error_of(answer, self._name)
        return answer

    def _ask_info(self) -> _core.Answer:
        return self._connection.call(
            lambda wire: wire.request(Type.STREAM_INFO, True, b""), again=True
        )

    def _info(self) -> StreamInfo:
        return self._current(self._checked(self._ask_info()))

    def _current(self, answer: _core.Answer) -> StreamInfo:
        """The answer, if it is about this stream and not a later one of its name."""
        info = StreamInfo.unpack(answer)
        if info.identity != self._identity:
            raise errors.StreamDeleted(f"stream {self._name!r} was deleted")
        self._take_shape(info)
        return info

    # ---- appending ----

    def append(
        self,
        value: Any,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, Any] | None = None,
        timestamp: float | None = None,
        partition: int | None = None,
        codec: str | None = None,
        block: bool | None = None,
        timeout: float | None = None,
        confirm: Confirm | None = None,
        producer: int | None = None,
        sequence: int | None = None,
    ) -> api.Appended:
        how = AppendOptions(block, timeout, confirm, producer, sequence)
        return self._appender.one(value, key, headers, timestamp, partition, codec, how)

    def append_many(
        self,
        values: Iterable[Any],
        *,
        keys: Sequence[bytes | str | None] | None = None,
        headers: Sequence[Mapping[str, Any] | None] | None = None,
        timestamp: float | None = None,
        partition: int | None = None,
        codec: str | None = None,
        block: bool | None = None,
        timeout: float | None = None,
        confirm: Confirm | None = None,
        producer: int | None = None,
        sequence: int | None = None,
        gaps: bool = False,
    ) -> list[api.AppendedRange]:
        how = AppendOptions(block, timeout, confirm, producer, sequence, gaps)
        return self._appender.many(values, keys, headers, timestamp, partition, codec, how)

    @property
    def max_block_bytes(self) -> int:
        # A frame holds it, too.
        return self._appender.max_block_bytes

    def append_block(
        self,
        block: bytes,
        *,
        partition: int,
        count: int | None = None,
        compression: api.Compression | None = None,
        raw_bytes: int | None = None,
        wait: bool | None = None,
        timeout: float | None = None,
        confirm: Confirm | None = None,
        producer: int | None = None,
        sequence: int | None = None,
        gaps: bool = False,
    ) -> api.AppendedRange:
        how = AppendOptions(wait, timeout, confirm, producer, sequence, gaps)
        records = _count_of(block) if count is None and compression is None else count or 0
        done = self._appender.block(block, partition, records, how, compression, raw_bytes or 0)
        return _stream.AppendedRange(partition, done.first, done.records, done.duplicate)

    # ---- reading ----

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
        self._check_read(partition, offset, limit, max_bytes, where, end)
        until = deadline(timeout) if block else 0.0
        while True:
            most = limit if end is None else min(limit, end - offset)
            if most < 1:
                return self._none(partition, offset)
            wait = left_of(until)
            found = self.fetched({partition: offset}, most, max_bytes, wait, where)
            if (found and len(found[0])) or is_over(until):
                return found[0] if found else self._none(partition, offset)
            offset = found[0].next_offset if found else offset

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
        self._check_read(partition, offset, limit, max_bytes, where, end)
        until = deadline(timeout)
        while True:
            most = limit if end is None else min(limit, end - offset)
            if most < 1:
                return self._none(partition, offset)
            wait = left_of(until)
            found = await self.afetched({partition: offset}, most, max_bytes, wait, where)
            if (found and len(found[0])) or is_over(until):
                return found[0] if found else self._none(partition, offset)
            offset = found[0].next_offset if found else offset

    def fetched(
        self,
        places: Mapping[int, int],
        limit: int,
        max_bytes: int,
        wait: float,
        where: str | None = None,
        hold: tuple[int, Mapping[int, int]] | None = None,
    ) -> list[api.Records]:
        """The records available in these partitions, waiting up to ``wait`` seconds for the first.

        For a partition whose records were all left out, the result is empty, with the offset to
        continue at. ``hold``: the number of a hold of the connection, and the position to move it
        to before reading.
        """
        fetch = self._fetch(places, limit, max_bytes, wait, where)
        with self._naming(places):
            if hold is None:
                answer = self.ask(Type.FETCH, fetch.pack(), wait=wait)
            else:
                number, position = hold
                held = Hold(self._identity, number, list(position.items()), fetch)
                answer = self.ask(Type.HOLD, held.pack(), wait=wait)
        return self._records(answer, places, limit)

    async def afetched(
        self,
        places: Mapping[int, int],
        limit: int,
        max_bytes: int,
        wait: float,
        where: str | None = None,
    ) -> list[api.Records]:
        """``fetched`` for asyncio."""
        fetch = self._fetch(places, limit, max_bytes, wait, where)
        with self._naming(places):
            answer = await self.aask(Type.FETCH, fetch.pack(), wait=wait)
        return self._records(answer, places, limit)

    @contextlib.contextmanager
    def _naming(self, places: Mapping[int, int]) -> Iterator[None]:
        """Have OffsetOutOfRange name the partition, if it is only one: the server does not."""
        try:
            yield
        except errors.OffsetOutOfRange as error:
            if len(places) != 1:
                raise
            (partition,) = places
            raise errors.OffsetOutOfRange.of(
                self._name, partition, error.asked, error.earliest, error.latest
            ) from None

    def _fetch(
        self, places: Mapping[int, int], limit: int, max_bytes: int, wait: float, where: str | None
    ) -> Fetch:
        return Fetch(self._identity, list(places.items()), limit, max_bytes, wait, where)

    def _records(
        self, answer: _core.Answer, places: Mapping[int, int], limit: int
    ) -> list[api.Records]:
        """No more records than asked for, though a compressed batch comes as a whole."""
        salt = self._identity & 0xFFFFFFFF
        return [
            _stream.records_of(
                bytes(part.entries),
                part.partition,
                places[part.partition],
                min(limit, 0xFFFFFFFF),
                end=part.next_offset,
                salt=salt,
                next_offset=part.next_offset,
            )
            for part in FetchedPart.unpack_all(answer)
        ]

    def _none(self, partition: int, offset: int) -> api.Records:
        return _stream.records_of(b"", partition, offset)

    def _check_read(
        self,
        partition: int,
        offset: int,
        limit: int,
        max_bytes: int,
        where: str | None,
        end: int | None,
    ) -> None:
        self._check_partition(partition)
        if where is not None:
            RecordWhere(where)
        check_whole("offset", offset, 0)
        check_whole("limit", limit, 1)
        check_whole("max_bytes", max_bytes, 1)
        if end is not None:
            check_whole("end", end, 0)

    def _check_partition(self, partition: int) -> None:
        if isinstance(partition, int) and partition >= self._partitions:
            self.refresh()
        check_whole("partition", partition, 0, self._partitions - 1)

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
        return RemoteReader(
            self,
            self._position(start, partitions),
            limit,
            timeout,
            lapped,
            where,
            on_damage,
            follows=partitions is None,
        )

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
        position, follows = self._position(start, partitions), partitions is None
        return RemoteAsyncReader(
            self, position, limit, timeout, lapped, where, on_damage, follows=follows
        )

    def _position(self, start: api.Start, partitions: Iterable[int] | None) -> dict[int, int]:
        """The position at which a reader begins. Raises InvalidOption, TypeError."""
        if partitions is None:
            self.refresh()
        which = range(self._partitions) if partitions is None else list(partitions)
        for partition in which:
            self._check_partition(partition)
        if isinstance(start, Mapping):
            for partition, offset in start.items():
                self._check_partition(partition)
                check_whole("offset", offset, 0)
            rest = [each for each in which if each not in start]
            ends = self.offsets() if rest else []
            return {each: start[each] if each in start else ends[each].earliest for each in which}
        if start in ("earliest", "latest"):
            ends = self.offsets()
            return {each: getattr(ends[each], str(start)) for each in which}
        if isinstance(start, bool) or not isinstance(start, (int, float)):
            raise errors.InvalidOption(
                f"start={start!r} must be 'earliest', 'latest', a map of offsets by partition, or "
                f"seconds since 1970"
            )
        return {each: self.at(start, each) for each in which}

    # ---- looking ----

    def offsets(self) -> list[api.PartitionOffsets]:
        return self._info().offsets

    async def aoffsets(self) -> list[api.PartitionOffsets]:
        """``offsets`` for asyncio."""
        return self._current(await self.aask(Type.STREAM_INFO, b"")).offsets

    def earliest(self, partition: int) -> int:
        self._check_partition(partition)
        return self.offsets()[partition].earliest

    def latest(self, partition: int) -> int:
        self._check_partition(partition)
        return self.offsets()[partition].latest

    def at(self, timestamp: float, partition: int) -> int:
        self._check_partition(partition)
        ns = _stream.least_ns(timestamp)
        rest = OffsetAt(self._identity, partition, ns).pack()
        return self.ask(Type.OFFSET_AT, rest).number

    def _new_hold(self) -> RemoteRetentionHold:
        return RemoteRetentionHold(self, next(self._holds))

    # ---- groups ----

    def group(
        self,
        name: str,
        assignment: api.Assignment | None = None,
        *,
        session_timeout: float | None = None,
        start: api.GroupStart = "earliest",
    ) -> Group:
        options = {"assignment": assignment, "session_timeout": session_timeout, "start": start}
        return open_group(self, name, options)

    def share(self, name: str, *, member: str | None = None, **options: Any) -> Share:
        return open_share(self, name, member, options)

    def groups(self) -> list[api.GroupSummary]:
        return groups_of(self)

    def delete_group(self, name: str) -> None:
        delete_group(self, name)

    # ---- the end ----

    def close(self) -> None:
        self._connection.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return attach, (self._connection.target, self._name, self._namespace)

    def __repr__(self) -> str:
        return f"<RemoteStream {self._name!r} of {self._connection.url}>"


def attach(target: Target, name: str, namespace: str) -> RemoteStream:
    """A handle of the stream. Raises NoSuchStream, ConnectionLost, Unsupported."""
    connection = Connection(target, check_name(name, "stream"), kind="stream")
    try:
        return RemoteStream(connection, namespace)
    except BaseException:
        connection.drop()
        raise


def is_over(until: float | None) -> bool:
    """Whether that time is over."""
    return until is not None and time.monotonic() >= until


def _count_of(block: bytes) -> int:
    try:
        return len(_stream.records_of(block, 0, 0))
    except errors.ShmqError as error:
        raise errors.InvalidOption(f"the block is no block of records: {error}") from None
