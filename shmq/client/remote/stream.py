"""A stream of a server."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Final

from shmq import api, errors
from shmq.api.names import check_name
from shmq.api.stream_options import StreamOptions
from shmq.client.ports.steps import Step, Steps, run
from shmq.client.ports.stream import AppendedEntries, Entries, Found
from shmq.client.remote.address import Target
from shmq.client.remote.connection import Connection, RemoteHandle
from shmq.client.remote.durable_wait import confirmed
from shmq.client.remote.group import RemoteGroups
from shmq.client.remote.retention_hold import RemoteRetentionHold
from shmq.client.shared.pickling import reduce
from shmq.native import _clock as time
from shmq.native import _core, _stream
from shmq.protocol.messages.numbers import OffsetAt, Repartition
from shmq.protocol.messages.stream import (
    Append,
    Appended,
    Fetch,
    FetchedPart,
    Hold,
    StreamInfo,
    StreamLook,
    unpack_partitions,
)
from shmq.protocol.opcodes import Status, Type
from shmq.protocol.status import stream_error_of

#: The longest wait of one FETCH, in seconds; a longer wait takes several.
_WAIT: Final = 20.0
#: How often a stream without new records is asked for its partitions, in seconds.
_LOOK: Final = 1.0
#: The size of an APPEND without its entries, and of an entry without its value, in bytes.
_BESIDE, _HEAD = 256, 48
_MOST: Final = 0xFFFFFFFF


class RemoteStream(RemoteHandle, RemoteGroups):
    """A stream of a server, with a connection of its own. Threads may share a handle.

    A handle used in the child of a fork reconnects, and so does one that is unpickled.
    """

    def __init__(self, connection: Connection, namespace: str) -> None:
        super().__init__(connection, namespace)
        answer = connection.ask(Type.STREAM_INFO, b"", named=True)
        if answer.status == Status.NO_QUEUE:
            raise errors.NoSuchStream.of(self._name, connection.where)
        info = StreamInfo.unpack(self._check(answer))
        self._identity = info.identity
        self._take_shape(info)
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

    def change_partitions(self, partitions: int) -> range:
        rest = Repartition(self._identity, partitions).pack()
        answer = self.ask(Type.REPARTITION, rest)
        run(self.describe())
        return unpack_partitions(answer)

    def take_options(self, options: StreamOptions) -> None:
        """Take the options that the stream was altered to."""
        self._options = options

    def _take_shape(self, info: StreamInfo) -> None:
        self._options = info.options
        self._partitions = info.partitions
        self._described_at = time.monotonic()

    # ---- requests ----

    def ask(self, kind: Type, rest: bytes, wait: float = 0.0) -> _core.Answer:
        """The answer to a request that may take ``wait`` seconds. Raises the error of a refusal."""
        return self._check(self._connection.ask(kind, rest, named=True, wait=wait))

    async def aask(self, kind: Type, rest: bytes, wait: float = 0.0) -> _core.Answer:
        """``ask`` for asyncio."""
        return self._check(await self._connection.aask(kind, rest, named=True, wait=wait))

    def asking(self, kind: Type, rest: bytes, wait: float = 0.0) -> Step:
        """The step of a request: see `ask`."""
        return (lambda: self.ask(kind, rest, wait), lambda: self.aask(kind, rest, wait))

    def _check(self, answer: _core.Answer) -> _core.Answer:
        if answer.status != Status.OK:
            raise stream_error_of(answer, self._name)
        return answer

    def describe(self) -> Steps[list[api.PartitionOffsets]]:
        return (yield from self._inform(b"")).offsets

    def find_produced(self, producer: int) -> list[int | None]:
        info = run(self._inform(StreamLook(producer).pack()))
        if info.produced is None:
            return super().find_produced(producer)
        return info.produced

    def _inform(self, rest: bytes) -> Steps[StreamInfo]:
        info = StreamInfo.unpack((yield self.asking(Type.STREAM_INFO, rest)))
        if info.identity != self._identity:
            raise errors.StreamDeleted(f"stream {self._name!r} was deleted")
        self._take_shape(info)
        return info

    def refresh(self, waited: bool) -> Steps[None]:
        if waited or time.monotonic() >= self._described_at + _LOOK:
            yield from self.describe()

    def find(self, partition: int, timestamp_ns: int) -> int:
        rest = OffsetAt(self._identity, partition, timestamp_ns).pack()
        return self.ask(Type.OFFSET_AT, rest).number

    # ---- appending ----

    @property
    def _max_entries(self) -> int:
        """The most bytes of entries that fit into a request."""
        greeting = self._connection.greeting
        assert greeting is not None
        return greeting.max_frame - _BESIDE

    @property
    def max_block_bytes(self) -> int:
        return min(self._options.ring_bytes // 2 - 2 * _HEAD, self._max_entries)

    def append_entries(self, entries: Entries) -> AppendedEntries:
        if len(entries.block) > self._max_entries:
            raise errors.MessageTooLarge(
                f"the record has {len(entries.block)} bytes, and one for stream {self._name!r} of "
                f"this server may have {self._max_entries}"
            )
        until = entries.until
        rest = Append(
            identity=self._identity,
            partition=entries.partition,
            count=entries.count,
            block=entries.block,
            durable=entries.durable,
            compression=entries.compression,
            raw_bytes=entries.raw_bytes,
            producer=entries.producer,
            sequence=entries.sequence,
            gaps=entries.gaps,
        ).pack()
        answer = self._connection.call(
            Type.APPEND,
            lambda wire: wire.request(Type.APPEND, True, rest),
            again=entries.producer is not None,
            await_=(lambda wire, answer: confirmed(self, wire, answer, until))
            if entries.durable
            else None,
        )
        if answer.status in (Status.OK, Status.DUPLICATE):
            return AppendedEntries(*Appended.unpack(answer))
        if answer.status == Status.FENCED:
            raise self._sealed(entries.partition)
        raise stream_error_of(answer, self._name)

    def _sealed(self, partition: int) -> errors.PartitionSealed:
        run(self.describe())
        opened = self.open_partitions
        return errors.PartitionSealed(
            f"partition {partition} of stream {self._name!r} takes no records any more: "
            f"since it was repartitioned, {opened.start} to {opened.stop - 1} do"
        )

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
        # A FETCH, and another one of the other partitions after one that cannot be read.
        wait = _WAIT if wait is None else min(wait, _WAIT)
        found: dict[int, Any] = {}
        left = dict(places)
        while left:
            fetch = Fetch(self._identity, list(left.items()), limit, max_bytes, wait, where)
            kind, rest = Type.FETCH, fetch.pack()
            if hold is not None:
                kind = Type.HOLD
                rest = Hold(self._identity, hold[0], list(hold[1].items()), fetch).pack()
            try:
                answer = yield self.asking(kind, rest, wait)
            except errors.OffsetOutOfRange as error:
                if len(left) == 1:
                    ends = {next(iter(left)): (error.earliest, error.latest)}
                else:
                    offsets = yield from self.describe()
                    ends = {one.partition: (one.earliest, one.latest) for one in offsets}
                gaps = self._find_gaps(left, ends)
                if not gaps:
                    raise
                found |= gaps
            except errors.DamagedFile as error:
                if error.partition not in left:
                    raise
                found[error.partition] = error
            else:
                return found | self._records(answer, left, limit)
            left = {partition: at for partition, at in left.items() if partition not in found}
            wait = 0.0
        return found

    def _find_gaps(
        self, places: Mapping[int, int], ends: Mapping[int, tuple[int, int]]
    ) -> dict[int, errors.OffsetOutOfRange]:
        """The errors of the offsets that do not exist: the server does not name the partition."""
        return {
            partition: errors.OffsetOutOfRange.of(self._name, partition, at, *ends[partition])
            for partition, at in places.items()
            if not ends[partition][0] <= at <= ends[partition][1]
        }

    def _records(
        self, answer: _core.Answer, places: Mapping[int, int], limit: int
    ) -> dict[int, Any]:
        """No more records than asked for, though a compressed batch comes as a whole."""
        salt = self._identity & 0xFFFFFFFF
        return {
            part.partition: _stream.records_of(
                bytes(part.entries),
                part.partition,
                places[part.partition],
                min(limit, _MOST),
                end=part.next_offset,
                salt=salt,
                next_offset=part.next_offset,
            )
            for part in FetchedPart.unpack_all(answer)
        }

    def new_floors(self) -> RemoteRetentionHold:
        return RemoteRetentionHold(self, next(self._holds))

    # ---- the end ----

    def close(self) -> None:
        self._connection.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce(self, attach, self._connection.target, self._name, self._namespace)

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
