"""The handle of a stream: the contract on top of a port, for any transport."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from shmq import api
from shmq.api.group import GroupOptions
from shmq.api.names import check_name
from shmq.api.options import Confirm, check_one_of, check_whole, checked, checked_values
from shmq.api.share import ShareOptions
from shmq.client.handles.appender import Appender, AppendOptions
from shmq.client.handles.group import Group
from shmq.client.handles.member import member_name
from shmq.client.handles.producer import Producer
from shmq.client.handles.reader import AsyncReader, Reader
from shmq.client.handles.share import Share
from shmq.client.handles.subscription import AsyncSubscription, Subscription
from shmq.client.ports.steps import Steps, arun, run
from shmq.client.ports.stream import StreamPort
from shmq.client.shared.buffered_loan import BufferedLoan
from shmq.errors import InvalidOption, MessageTooLarge, NoSuchGroup, ShmqError
from shmq.model.expression.record_fields import RecordWhere
from shmq.native import _clock as time
from shmq.native import _core, _stream
from shmq.native._stream import MAX_PARTITIONS
from shmq.suggestions import suggest_known

if TYPE_CHECKING:
    from shmq.api.keywords import (
        ProducerKeywords,
        ReaderKeywords,
        RecordLoanKeywords,
        SubscribeOptions,
    )
    from shmq.model.codec.codecs import Default


class _BufferedRecordLoan(BufferedLoan[api.Appended], api.RecordLoan):
    """Implements `RecordLoan`. It takes no space in the stream before its commit."""

    @property
    def appended(self) -> api.Appended | None:
        return self._result


class StreamHandle(StreamPort, api.Stream):
    """Implements :class:`shmq.api.Stream` on top of its port."""

    _made_appender: Appender | None = None
    #: Of `connect`, which sets it.
    default: Default | None = None

    def repartition(self, partitions: int) -> range:
        return self.change_partitions(check_whole("partitions", partitions, 1, MAX_PARTITIONS))

    def check_partition(self, partition: int) -> int:
        """The partition. Raises TypeError, and InvalidOption if the stream has none of it."""
        if isinstance(partition, int) and partition >= self.partitions:
            self.offsets()
        return check_whole("partition", partition, 0, self.partitions - 1)

    def refresh(self, waited: bool) -> Steps[None]:
        del waited  # the handle always knows the partitions
        yield from ()

    # ---- appending ----

    @property
    def _appender(self) -> Appender:
        if self._made_appender is None:
            self._made_appender = Appender(self)
        return self._made_appender

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
        how = AppendOptions(self, block, timeout, confirm, producer, sequence)
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
        how = AppendOptions(self, block, timeout, confirm, producer, sequence, gaps)
        return self._appender.many(values, keys, headers, timestamp, partition, codec, how)

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
        how = AppendOptions(self, wait, timeout, confirm, producer, sequence, gaps)
        records = _count_of(block) if count is None and compression is None else count or 0
        done = self._appender.block(block, partition, records, how, compression, raw_bytes or 0)
        return _stream.AppendedRange(partition, done.first, done.records, done.duplicate)

    def producer(self, **options: Unpack[ProducerKeywords]) -> Producer:
        return Producer(self, **options)

    def loan(self, size: int, **how: Unpack[RecordLoanKeywords]) -> api.RecordLoan:
        most = self.options.max_record_bytes
        if check_whole("size", size, 0) > most:
            raise MessageTooLarge(
                f"a record of {size} bytes can never fit into stream {self.name!r}: "
                f"max_record_bytes={most}"
            )
        return _BufferedRecordLoan(size, lambda value: self.append(bytes(value), **how))

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
        timeout = _core.check_timeout(timeout)
        timeout = timeout if block else 0.0
        return run(self._read(partition, offset, limit, max_bytes, timeout, where, end))

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
        timeout = _core.check_timeout(timeout)
        reading = self._read(partition, offset, limit, max_bytes, timeout, where, end)
        return await arun(reading)

    def _read(
        self,
        partition: int,
        offset: int,
        limit: int,
        max_bytes: int,
        timeout: float | None,
        where: str | None,
        end: int | None,
    ) -> Steps[api.Records]:
        partition = self.check_partition(partition)
        if where is not None:
            RecordWhere(where)
        offset = check_whole("offset", offset, 0)
        limit = check_whole("limit", limit, 1)
        max_bytes = check_whole("max_bytes", max_bytes, 1)
        if end is not None:
            end = check_whole("end", end, 0)
        until = None if timeout is None else time.monotonic() + timeout
        left = timeout
        while True:
            most = limit if end is None else min(limit, end - offset)
            if most < 1:
                return _stream.records_of(b"", partition, offset)
            found = yield from self.fetch({partition: offset}, most, max_bytes, left, where)
            records: Any = found.get(partition)
            if isinstance(records, Exception):
                raise records
            left = None if until is None else max(0.0, until - time.monotonic())
            if records is not None:
                offset = records.next_offset
            if records or left == 0:
                return records or _stream.records_of(b"", partition, offset)

    def reader(
        self,
        start: api.Start = "earliest",
        partitions: Iterable[int] | None = None,
        **how: Unpack[ReaderKeywords],
    ) -> api.Reader:
        return Reader(self, start, partitions, **how)

    def areader(
        self,
        start: api.Start = "earliest",
        partitions: Iterable[int] | None = None,
        **how: Unpack[ReaderKeywords],
    ) -> api.AsyncReader:
        return AsyncReader(self, start, partitions, **how)

    def subscribe(
        self, pattern: str = "#", history: int | None = 0, **how: Unpack[SubscribeOptions]
    ) -> api.Subscription:
        return Subscription(self, pattern, history, **how)

    def asubscribe(
        self, pattern: str = "#", history: int | None = 0, **how: Unpack[SubscribeOptions]
    ) -> api.AsyncSubscription:
        async def find() -> StreamHandle:
            return self

        return AsyncSubscription(self.name, find, pattern, history, **how)

    # ---- looking ----

    def offsets(self) -> list[api.PartitionOffsets]:
        return run(self.describe())

    def earliest(self, partition: int) -> int:
        return self.offsets()[self.check_partition(partition)].earliest

    def latest(self, partition: int) -> int:
        return self.offsets()[self.check_partition(partition)].latest

    def at(self, timestamp: float, partition: int) -> int:
        return self.find(self.check_partition(partition), _stream.least_ns(timestamp))

    def produced(self, producer: int) -> list[int | None]:
        return self.find_produced(check_whole("producer", producer, 0))

    # ---- groups ----

    def group(
        self,
        name: str,
        assignment: api.Assignment | None = None,
        *,
        session_timeout: float | None = None,
        start: api.GroupStart = "earliest",
        create: bool = True,
    ) -> Group:
        given: dict[str, Any] = {"assignment": assignment, "session_timeout": session_timeout}
        options = {key: value for key, value in given.items() if value is not None}
        options["start"] = start
        options = checked_values(checked(GroupOptions, options), options)
        try:
            return Group(self.open_group(check_name(name, "group"), options, create))
        except NoSuchGroup as error:
            suggest_known(error, name, lambda: [one.name for one in self.groups()])
            str(error)  # with the hint: this handle may be closed by the time the text is read
            raise

    def share(
        self,
        name: str,
        *,
        member: str | None = None,
        on_damage: api.OnDamage = "raise",
        **options: Any,
    ) -> Share:
        return Share(self.lender(name, member=member, on_damage=on_damage, **options), on_damage)

    def lender(
        self, name: str, *, member: str | None = None, on_damage: Any = "raise", **options: Any
    ) -> Any:
        """The lender for a new member of a share group."""
        check_one_of("on_damage", on_damage, ("raise", "skip"))
        options = checked_values(checked(ShareOptions, options), options)
        return self.open_lender(check_name(name, "group"), member_name(member), on_damage, options)


def _count_of(block: bytes) -> int:
    try:
        return len(_stream.records_of(block, 0, 0))
    except ShmqError as error:
        raise InvalidOption(f"the block is not a block of records: {error}") from None
