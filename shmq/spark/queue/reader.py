"""A streaming read of queues: leases messages, acknowledges them once Spark has committed.

    latestOffset(start) ─► lease ─► end ─► Spark logs it ─► partitions(start, end) ─► tasks read
                                                                         │
    latestOffset(end) ◄─ Spark has committed the batch ◄─ the sink ◄─────┘
      acknowledges the messages of `end`, and leases the next ones

An offset names the messages of its batch. So a batch that Spark has logged but not committed is
read again from the same messages, in this process or in a later one.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

import shmq
from shmq.api.columns import STATES
from shmq.errors import LeaseExpired, NoSuchQueue, QueueDeleted, ShmqError
from shmq.spark.queue.leases import LeasedMessages, Leases
from shmq.spark.queue.offset import MOST, NOTHING, Offset
from shmq.spark.shared import columns
from shmq.spark.shared.address import Address
from shmq.spark.shared.options import stopped
from shmq.spark.shared.subscription import Subscription

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = [
    "QueueInputPartition",
    "QueueReader",
    "QueueSourceStreamingReader",
    "SlotRange",
    "parts_of",
]

#: About how many messages a part has at most, and at least.
_MOST: Final = 250_000
_LEAST: Final = 1_000


@dataclasses.dataclass(frozen=True)
class SlotRange(InputPartition):
    """Part of a queue: the messages in its slots from ``start`` to ``end``."""

    topic: str
    start: int
    end: int


class QueueReader(DataSourceReader):
    """Reads the messages that are in the queues when the query runs."""

    def __init__(
        self,
        address: Address,
        subscription: Subscription,
        schema: StructType,
        chosen: Mapping[str, Any],
    ) -> None:
        columns.check(schema)
        self._address = address
        self._subscription = subscription
        self._schema = schema
        self._least = chosen["minPartitions"]
        self._size = chosen["maxBytesPerBatch"]
        states = frozenset(map(STATES.index, chosen["states"]))
        self._states = states if len(states) < len(columns.STATES) else None

    def partitions(self) -> list[InputPartition]:
        """The parts of all queues. Raises ShmqError, at the driver."""
        parts: list[InputPartition] = []
        with self._address.connect() as broker:
            names = self._subscription.find(broker)
            least = math.ceil((self._least or 0) / max(len(names), 1))
            for name in names:
                with broker.queue(name) as queue:
                    slots = queue.bulk().slots()
                parts += (SlotRange(name, *each) for each in parts_of(slots, least))
        return parts or [SlotRange("", 0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part, as Arrow batches."""
        assert isinstance(partition, SlotRange)
        if not partition.end:
            return
        from shmq.spark.shared.arrow import Batches  # noqa: PLC0415 - the planner has no use for Arrow

        batches = Batches.for_spark(self._schema, partition.topic)
        with self._address.connect() as broker, broker.queue(partition.topic) as queue:
            bulk = queue.bulk()
            at: int | None = partition.start
            while at is not None:
                run, at = bulk.read_columns(at, end=partition.end, max_bytes=self._size)
                batch = batches.batch(run, self._states)
                if batch.num_rows:
                    yield batch


def parts_of(count: int, least: int) -> list[tuple[int, int]]:
    """Divide ``count`` into ranges of about equal size, at least ``least`` of them if it is set.

    Otherwise there is one range for each core of this machine, fewer if they would be very
    small, and more if they would be very large.
    """
    wanted = least or max(
        math.ceil(count / _MOST), min(os.cpu_count() or 1, math.ceil(count / _LEAST))
    )
    parts = max(1, min(wanted, count))
    ends = [count * n // parts for n in range(parts + 1)]
    return list(itertools.pairwise(ends)) if count else []


_log = logging.getLogger("shmq.spark")

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class QueueInputPartition(InputPartition):
    """Part of a batch: messages of one queue, by their slots and sequence numbers."""

    topic: str
    identity: int
    slots: bytes = dataclasses.field(repr=False)
    sequences: bytes = dataclasses.field(repr=False)


class QueueSourceStreamingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Leases messages at the driver and reads them on the executors.

    Spark makes several readers, but asks the same one for all offsets of a query.
    """

    def __init__(
        self,
        address: Address,
        subscription: Subscription,
        schema: StructType,
        chosen: Mapping[str, Any],
    ) -> None:
        columns.check(schema)
        self._address = address
        self._schema = schema
        self._rows = chosen["maxOffsetsPerTrigger"]
        self._bytes = chosen["maxBytesPerTrigger"]
        self._least = chosen["minPartitions"]
        self._size = chosen["maxBytesPerBatch"]
        self._strict = chosen["failOnDataLoss"]
        self._subscription = subscription
        self._seconds = chosen["leaseTimeout"]
        self._chosen = dict(chosen)
        self._settled = 0
        self._pending: Offset | None = None
        self._left: dict[str, int] | None = None

    @functools.cached_property
    def _leases(self) -> Leases:
        """Made at the first use: a reader that goes to the executors has none."""
        return Leases(self._address, self._subscription, self._seconds, strict=self._strict)

    def initialOffset(self) -> Json:  # noqa: N802
        """The offset before the first batch, at any time."""
        self._leases.names()  # raises for missing queues before Spark writes anything
        return NOTHING.as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit from the options; Spark may ask for everything instead."""
        return ReadMaxRows(self._rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on lease no more of a queue than the messages visible in it now."""
        self._left = self._leases.depths()

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        """The number of waiting messages, in all and per queue, for the query's progress."""
        depths = self._leases.depths()
        return {"backlog": sum(depths.values()), "queues": depths}

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """Acknowledge the messages before ``start``, and lease the next batch if there is one."""
        begin = Offset.of_json(start)
        self._settle(begin)
        if stopped(self._chosen):
            return start
        if self._pending is not None and self._pending.batch == begin.batch + 1:
            return self._pending.as_json()  # leased before, but not planned yet
        queues = self._lease(begin.batch + 1, limit)
        if not queues:
            return start
        self._pending = Offset(begin.batch + 1, {name: each.taken for name, each in queues.items()})
        return self._pending.as_json()

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """The parts of the batch; messages that are no longer leased are leased again."""
        begin, batch = Offset.of_json(start), Offset.of_json(end)
        if batch == begin or not len(batch):
            return []
        if batch.batch != begin.batch + 1:
            raise ShmqError(
                f"the checkpoint goes from batch {begin.batch} to {batch.batch} of this source: "
                f"a batch between them is missing in it"
            )
        held = self._leases.held(batch)
        if held is None:
            self._leases.give_back()
            held = self._replay(begin, batch)
        self._pending = batch
        least = math.ceil((self._least or 0) / max(len(held), 1))
        return [part for name, each in held.items() for part in _parts(name, each, least)]

    def commit(self, end: Json) -> None:
        """Acknowledge the messages before ``end``: Spark has committed them."""
        self._settle(Offset.of_json(end))

    def stop(self) -> None:
        """Return all leases and detach."""
        if "_leases" in vars(self):
            self._leases.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part, as Arrow batches."""
        assert isinstance(partition, QueueInputPartition)
        from shmq.spark.shared.arrow import Batches  # noqa: PLC0415 - the driver has no use for Arrow

        batches = Batches.for_spark(self._schema, partition.topic)
        for run in self._runs(partition):
            yield batches.batch(run)

    def _settle(self, done: Offset) -> None:
        if done.batch > self._settled:
            self._leases.settle(done)
            self._settled = done.batch
            if self._pending is not None and self._pending.batch <= done.batch:
                self._pending = None

    def _lease(self, batch: int, limit: ReadLimit) -> dict[str, LeasedMessages]:
        """Lease what the limit allows, from several queues in proportion to their depths."""
        limited = isinstance(limit, ReadMaxRows)
        rows, size = MOST, None
        if isinstance(limit, ReadMaxRows):
            rows, size = limit.max_rows, self._bytes
        names = self._leases.names()
        depths = dict.fromkeys(names, 1)
        if len(names) > 1 or not limited:
            depths = self._leases.depths()
        total = sum(depths.values())
        taken = {}
        for name, depth in depths.items():
            share = max(1, rows * depth // total) if limited and depth else depth
            if self._left is not None:
                share = min(share, self._left.get(name, 0))
            if not share:
                continue
            room = None if size is None else max(1, size * depth // total)
            held = self._leases.take(name, batch, share, room)
            if held is not None:
                taken[name] = held
                self._count(name, len(held.taken))
        return taken

    def _replay(self, begin: Offset, batch: Offset) -> dict[str, LeasedMessages]:
        """Lease the batch again: another process leased it, and Spark never committed it."""
        self._settled = max(self._settled, begin.batch)  # settled before this batch was leased
        queues = {}
        for name, taken in batch.queues.items():
            held = self._leases.again(name, taken, batch.batch)
            if held is not None:
                queues[name] = held
                self._count(name, len(held.taken))
        return queues

    def _count(self, name: str, count: int) -> None:
        if self._left is not None:
            self._left[name] = max(0, self._left.get(name, 0) - count)

    def _runs(self, part: QueueInputPartition) -> Iterator[shmq.Columns]:
        """The messages of a part. Raises ShmqError if some are gone, unless loss is allowed."""
        try:
            with self._address.connect() as broker, broker.queue(part.topic) as queue:
                if queue.identity != part.identity:
                    raise QueueDeleted(
                        f"the queue {part.topic!r} was deleted and made anew while a batch of it "
                        f"was being read"
                    )
                yield from self._read(queue.bulk(), part.slots, part.sequences)
        except (NoSuchQueue, QueueDeleted) as error:
            if self._strict:
                raise
            _log.warning("the rest of a batch is lost: %s", error)

    def _read(self, bulk: shmq.BulkQueue, slots: bytes, sequences: bytes) -> Iterator[shmq.Columns]:
        """These messages, in order. Raises LeaseExpired if one is gone, unless loss is allowed."""
        start, end = 0, len(sequences) // 8
        while start < end:
            try:
                run, following = bulk.read_run(slots, sequences, start=start, max_bytes=self._size)
            except LeaseExpired as error:
                if self._strict:
                    raise
                yield from self._read_left(bulk, slots[4 * start :], sequences[8 * start :], error)
                return
            yield run
            start = end if following is None else following

    def _read_left(
        self, bulk: shmq.BulkQueue, slots: bytes, sequences: bytes, why: LeaseExpired
    ) -> Iterator[shmq.Columns]:
        """The remaining messages when some are gone, found by bisection."""
        middle = len(sequences) // 16
        if not middle:
            _log.warning("a message of a batch is lost: %s", why)
            return
        yield from self._read(bulk, slots[: 4 * middle], sequences[: 8 * middle])
        yield from self._read(bulk, slots[4 * middle :], sequences[8 * middle :])


def _parts(topic: str, held: LeasedMessages, least: int) -> Iterator[QueueInputPartition]:
    sequences, identity = held.taken.sequences, held.taken.identity
    for start, end in parts_of(len(held.taken), least):
        slots = held.slots[4 * start : 4 * end]
        yield QueueInputPartition(topic, identity, slots, sequences[8 * start : 8 * end])
