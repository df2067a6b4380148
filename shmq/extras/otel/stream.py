"""A stream whose appends and reads are traced."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from shmq.api.group import Group, Member
from shmq.api.producer import Producer
from shmq.api.record import RecordLoan
from shmq.api.share import Share, SharedRecord
from shmq.api.stream import AsyncReader, Reader, Stream
from shmq.api.subscription import Subscription
from shmq.extras.otel.consumer import TracedConsumer
from shmq.extras.otel.context import MOST_LINKS, link_of
from shmq.extras.otel.loan import TracedLoan
from shmq.extras.otel.message import TracedMessage
from shmq.extras.otel.operation import Operation
from shmq.extras.otel.proxy import Traced, implement
from shmq.extras.otel.telemetry import received, received_one
from shmq.native import _stream

Headers = Mapping[str, Any] | None


class TracedStream(Traced):
    """A traced `Stream`."""

    __slots__ = ()

    # ---- appending ----

    def append(self, value: Any, *, headers: Headers = None, **how: Any) -> Any:
        with self._telemetry.send(self._place, headers, "append") as sending:
            how["headers"] = sending.headers(headers)
            appended = self.__wrapped__.append(value, **how)
            sending.about(appended.offset, appended.partition)
        return appended

    def append_many(
        self, values: Iterable[Any], *, headers: Sequence[Headers] | None = None, **how: Any
    ) -> Any:
        # Each record gets headers, which hold the context.
        _stream.check_many(values)
        plain = list(values)
        _stream.check_each("headers", headers, len(plain))
        with self._telemetry.send(self._place, None, "append") as sending:
            sending.in_partition(how.get("partition"))
            how["headers"] = each_with_context(sending, headers, len(plain))
            return self.__wrapped__.append_many(plain, **how)

    def append_block(self, block: bytes, *, partition: int, **how: Any) -> Any:
        # Its records are encoded already, and get no context.
        with self._telemetry.send_encoded(self._place) as sending:
            sending.in_partition(partition)
            appended = self.__wrapped__.append_block(block, partition=partition, **how)
            sending.batch(appended.count)
        return appended

    def loan(self, size: int, *, headers: Headers = None, **how: Any) -> TracedLoan:
        sending = self._telemetry.send(self._place, headers, "append")
        how["headers"] = sending.headers(headers)
        try:
            return TracedLoan(self.__wrapped__.loan(size, **how), sending)
        except BaseException as error:
            sending.finish(error)
            raise

    def producer(self, **options: Any) -> TracedProducer:
        producer = self.__wrapped__.producer(**options)
        return TracedProducer(producer, self._telemetry, self._place)

    # ---- reading ----

    def read(self, partition: int, *where: Any, **how: Any) -> Any:
        with self._telemetry.receive(self._place) as receiving:
            records = self.__wrapped__.read(partition, *where, **how)
            receiving.in_partition(partition)
            receiving.batch(len(records))
            received(receiving, records[:MOST_LINKS])
        return records

    def reader(self, *where: Any, **how: Any) -> TracedReader:
        reader = self.__wrapped__.reader(*where, **how)
        return TracedReader(reader, self._telemetry, self._place)

    def areader(self, *where: Any, **how: Any) -> TracedAsyncReader:
        reader = self.__wrapped__.areader(*where, **how)
        return TracedAsyncReader(reader, self._telemetry, self._place)

    def subscribe(self, *where: Any, **how: Any) -> TracedSubscription:
        subscription = self.__wrapped__.subscribe(*where, **how)
        return TracedSubscription(subscription, self._telemetry, self._place)

    def group(self, name: str, *how: Any, **options: Any) -> TracedGroup:
        group = self.__wrapped__.group(name, *how, **options)
        return TracedGroup(group, self._telemetry, self._place.within(name))

    def share(self, name: str, **options: Any) -> TracedShare:
        share = self.__wrapped__.share(name, **options)
        return TracedShare(share, self._telemetry, self._place.within(name))


def each_with_context(
    sending: Operation, headers: Sequence[Headers] | None, count: int
) -> list[Any]:
    """The headers of each of so many records, with the context of the send."""
    sending.batch(count)
    given = [None] * count if headers is None else list(headers)
    for each in given[:MOST_LINKS]:
        sending.link(link_of(each))
    return [sending.headers(each) for each in given]


class TracedProducer(Traced):
    """A traced `Producer`. A span is of the call, not of the append of its batch."""

    __slots__ = ()

    def send(self, value: Any, *, headers: Headers = None, **how: Any) -> int:
        with self._telemetry.send(self._place, headers) as sending:
            how["headers"] = sending.headers(headers)
            partition: int = self.__wrapped__.send(value, **how)
            sending.in_partition(partition)
        return partition


class TracedReader(Traced):
    """A traced `Reader`."""

    __slots__ = ()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        with self._telemetry.receive(self._place) as receiving:
            record = next(self.__wrapped__)
            received_one(receiving, record)
        return record

    def poll(self, *how: Any, **named: Any) -> Any:
        with self._telemetry.receive(self._place) as receiving:
            found = self.__wrapped__.poll(*how, **named)
            receiving.batch(sum(map(len, found)))
            received(receiving, itertools.chain.from_iterable(found))
        return found


class TracedSubscription(TracedReader):
    """A traced `Subscription`."""

    __slots__ = ()

    def poll(self, timeout: float | None = 0.0) -> Any:
        with self._telemetry.receive(self._place) as receiving:
            found = self.__wrapped__.poll(timeout)
            receiving.batch(len(found))
            received(receiving, found)
        return found


class TracedMember(TracedReader):
    """A traced `Member`."""

    __slots__ = ()

    def commit(self, offsets: Mapping[int, int] | None = None) -> None:
        with self._telemetry.settle(self._place, "commit"):
            self.__wrapped__.commit(offsets)


class TracedAsyncReader(Traced):
    """A traced `AsyncReader`."""

    __slots__ = ()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        with self._telemetry.receive(self._place) as receiving:
            record = await anext(self.__wrapped__)
            received_one(receiving, record)
        return record

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.__wrapped__.aclose()


class TracedGroup(Traced):
    """A traced `Group`."""

    __slots__ = ()

    def join(self, name: str | None = None, **how: Any) -> TracedMember:
        return TracedMember(self.__wrapped__.join(name, **how), self._telemetry, self._place)


class TracedSharedRecord(TracedMessage):
    """A traced `SharedRecord`."""

    __slots__ = ()


class TracedShareConsumer(TracedConsumer):
    """The records of a share group, one by one."""

    __slots__ = ()
    handed = TracedSharedRecord


class TracedShare(Traced):
    """A traced `Share`."""

    __slots__ = ()

    def get(self, block: bool = True, timeout: float | None = None) -> TracedSharedRecord:
        with self._telemetry.receive(self._place) as receiving:
            record = self.__wrapped__.get(block, timeout)
            received_one(receiving, record)
        return TracedSharedRecord(record, self._telemetry, self._place)

    def get_many(
        self, limit: int, block: bool = True, timeout: float | None = None
    ) -> list[TracedSharedRecord]:
        with self._telemetry.receive(self._place) as receiving:
            records = self.__wrapped__.get_many(limit, block, timeout)
            receiving.batch(len(records))
            received(receiving, records)
        return [TracedSharedRecord(each, self._telemetry, self._place) for each in records]

    def consume(self, prefetch: int = 16, timeout: float | None = None) -> TracedShareConsumer:
        records = self.__wrapped__.consume(prefetch, timeout)
        return TracedShareConsumer(records, self._telemetry, self._place)

    def ack_many(self, receipts: Iterable[int]) -> list[int]:
        plain = list(receipts)
        with self._telemetry.settle(self._place, "ack") as settling:
            settling.batch(len(plain))
            refused: list[int] = self.__wrapped__.ack_many(plain)
        return refused


for contract, proxy in (
    (Stream, TracedStream),
    (Producer, TracedProducer),
    (Reader, TracedReader),
    (Subscription, TracedSubscription),
    (Member, TracedMember),
    (AsyncReader, TracedAsyncReader),
    (Group, TracedGroup),
    (Share, TracedShare),
    (SharedRecord, TracedSharedRecord),
    (RecordLoan, TracedLoan),
):
    implement(contract, proxy)
