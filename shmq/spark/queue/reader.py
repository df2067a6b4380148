"""A streaming read of queues: leases messages, acknowledges them once Spark has committed.

    latestOffset(start) ─► lease ─► end ─► Spark logs it ─► partitions(start, end) ─► tasks read
                                                                         │
    latestOffset(end) ◄─ Spark has committed the batch ◄─ the sink ◄─────┘
      acknowledges the messages of `end`, and leases the next ones

The messages are leased in the name of the query, as the run of an epoch, the number of the batch,
and the offset says which query and which epoch. So a batch that Spark has logged but not committed
is read again from the same messages, in this process or in a later one.
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

import numpy as np
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

import shmq
from shmq.api.columns import STATES
from shmq.errors import LeaseExpired, NoSuchQueue, QueueDeleted, ShmqError
from shmq.spark.queue.leases import LeasedMessages, Leases
from shmq.spark.queue.offset import Offset, QueueOffset
from shmq.spark.shared.options import stopped
from shmq.spark.shared.queue_pool import borrow_queue
from shmq.spark.shared.reader import SourceReader, StreamingReader, most_rows
from shmq.spark.shared.shares import divide

if TYPE_CHECKING:
    import pyarrow as pa

#: About how many messages a part has at most, and at least. A task costs as much as some 100,000
#: messages; the places of a part of a stream have 12 bytes each.
_MOST: Final = 1_000_000
_LEAST: Final = 1_000


@dataclasses.dataclass(frozen=True)
class SlotRange(InputPartition):
    """Part of a queue: the messages in its slots from ``start`` to ``end``."""

    topic: str
    #: The queue's identity when the read was planned.
    identity: int
    start: int
    end: int


class QueueReader(SourceReader, DataSourceReader):
    """Reads the messages that are in the queues when the query runs."""

    @functools.cached_property
    def _states(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether a message is read, by the number of its state, which is a byte."""
        wanted = np.zeros(256, dtype=bool)
        wanted[[STATES.index(each) for each in self._chosen["states"]]] = True
        return wanted

    def partitions(self) -> list[InputPartition]:
        """The parts of all queues. Raises ShmqError, at the driver."""
        parts: list[InputPartition] = []
        with self._address.connect() as broker:
            names = self._subscription.find(broker)
            queues = [_look(broker, name) for name in names]
        counts = self._counts([slots for _, slots in queues])
        for name, (identity, slots), least in zip(names, queues, counts, strict=True):
            parts += (SlotRange(name, identity, *each) for each in parts_of(slots, least))
        return parts or [SlotRange("", 0, 0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part, as Arrow batches."""
        assert isinstance(partition, SlotRange)
        if not partition.end:
            return
        from shmq.spark.shared.arrow import MessageRows, arrow_schema  # noqa: PLC0415 - the planner has no use for Arrow

        schema = arrow_schema(self._schema)
        with borrow_queue(self._address, partition.topic) as queue:
            _check_identity(queue, partition)
            bulk = queue.bulk()
            at: int | None = partition.start
            while at is not None:
                run, at = bulk.read_columns(at, end=partition.end, max_bytes=self._size)
                wanted = self._select(run)
                if wanted.any():
                    yield MessageRows(run, partition.topic).batch(schema, wanted)

    def _select(self, run: shmq.Columns) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which messages of a run are of the states and the times of the options."""
        wanted = self._states[np.frombuffer(run.state, np.uint8, run.count)]
        put_at = np.frombuffer(run.put_at, np.int64, run.count)
        since, until = self._chosen["startingTimestamp"], self._chosen["endingTimestamp"]
        if since is not None:
            wanted &= put_at >= since
        if until is not None:
            wanted &= put_at < until
        return wanted


def _look(broker: shmq.Broker, name: str) -> tuple[int, int]:
    """The queue's identity, and how many slots it has."""
    with broker.queue(name) as queue:
        return queue.identity, queue.bulk().slots()


def parts_of(count: int, least: int) -> list[tuple[int, int]]:
    """Divide ``count`` into ranges of about equal size, at least ``least`` of them if it is set.

    Otherwise there are as many as this machine has cores, or a multiple so that none is very large;
    fewer if they would be very small.
    """
    return _split(count, _count_parts(count, least)) if count else []


def _count_parts(count: int, least: int) -> int:
    cores = os.cpu_count() or 1
    wanted = least or min(cores * math.ceil(count / (cores * _MOST)), math.ceil(count / _LEAST))
    return max(1, min(wanted, count))


def _split(count: int, parts: int) -> list[tuple[int, int]]:
    return list(itertools.pairwise(count * n // parts for n in range(parts + 1)))


_log = logging.getLogger("shmq.spark")

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class QueueInputPartition(InputPartition):
    """Part of a batch: messages of one queue, by their slots and sequence numbers."""

    topic: str
    identity: int
    slots: bytes = dataclasses.field(repr=False)
    sequences: bytes = dataclasses.field(repr=False)


class QueueSourceStreamingReader(StreamingReader[Leases]):
    """Leases messages at the driver and reads them on the executors."""

    HANDLES = Leases
    _settled = 0
    _pending: Offset | None = None
    _left: dict[str, int] | None = None

    @functools.cached_property
    def _initial(self) -> Json:
        """Kept, as Spark asks for it more than once."""
        return Offset.before_all().as_json()

    def initialOffset(self) -> Json:  # noqa: N802
        """The offset before the first batch, at any time."""
        self._handles.names()  # raises for missing queues before Spark writes anything
        return self._initial

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """Acknowledge the messages before ``start``, and lease the next batch if there is one."""
        begin = Offset.of_json(start)
        self._settle(begin)
        if stopped(self._chosen):
            return start
        self._tell_page()
        if self._pending is not None and self._pending.epoch == begin.epoch + 1:
            return self._pending.as_json()  # leased before, but not planned yet
        self._handles.begin(begin)
        depths = self._handles.depths()
        if self._trigger.all_now and self._left is None:
            self._left = dict(depths)  # now that an earlier driver's leases are back
        if not self._trigger.ready(sum(depths.values()), limit):
            return start
        waiting, most = self._count_available(depths), most_rows(limit)
        shares, turn = divide(waiting, most, begin.turn)
        size = None if most is None else self._chosen["maxBytesPerTrigger"]
        counts = self._lease(begin.epoch + 1, waiting, shares, size)
        if not counts:
            return start
        self._trigger.begun()
        self._pending = Offset(begin.query, begin.epoch + 1, self._add_tasks(counts), turn)
        return self._pending.as_json()

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """The parts of the batch; messages that are no longer leased are leased again."""
        begin, batch = Offset.of_json(start), Offset.of_json(end)
        if batch == begin or not len(batch):
            return []
        if batch.epoch != begin.epoch + 1 or (begin.epoch and batch.query != begin.query):
            raise ShmqError(
                f"the checkpoint goes from batch {begin.epoch} of query {begin.query} to "
                f"{batch.epoch} of {batch.query} in this source: a batch between them is missing"
            )
        held = self._handles.held(batch)
        if held is None:
            held = self._replay(begin, batch)
        self._pending = batch
        return [
            part
            for name in sorted(held)
            for part in _split_parts(name, held[name], batch.queues[name].tasks)
        ]

    def commit(self, end: Json) -> None:
        """Acknowledge the messages before ``end``: Spark has committed them."""
        self._settle(Offset.of_json(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part, as Arrow batches."""
        assert isinstance(partition, QueueInputPartition)
        from shmq.spark.shared.arrow import MessageRows, arrow_schema  # noqa: PLC0415 - the driver has no use for Arrow

        schema = arrow_schema(self._schema)
        for run in self._read_runs(partition):
            yield MessageRows(run, partition.topic).batch(schema)

    def _settle(self, done: Offset) -> None:
        if done.epoch > self._settled:
            self._handles.settle(done)
            self._settled = done.epoch
            if self._pending is not None and self._pending.epoch <= done.epoch:
                self._pending = None

    def _count_available(self, depths: Mapping[str, int]) -> dict[str, int]:
        """How many messages of each queue a batch may have."""
        if self._left is None:
            return dict(depths)
        return {name: min(depth, self._left.get(name, 0)) for name, depth in depths.items()}

    def _lease(
        self, epoch: int, waiting: Mapping[str, int], shares: Mapping[str, int], size: int | None
    ) -> dict[str, QueueOffset]:
        """Lease the shares, and of each queue its part of ``size`` bytes.

        The share of a queue whose messages cannot be leased now is passed on to the next queues.
        """
        total, spare = sum(shares.values()), 0
        leased = {}
        for name, share in shares.items():
            wanted = min(waiting[name], share + spare)
            room = None if size is None else max(1, size * wanted // total)
            held = self._handles.take(name, epoch, wanted, room) if wanted else None
            spare += share
            if held is not None:
                spare -= wanted
                leased[name] = held.offset
                if self._left is not None:
                    self._left[name] -= len(held)
        return leased

    def _add_tasks(self, leased: Mapping[str, QueueOffset]) -> dict[str, QueueOffset]:
        """The queues' offsets with the number of tasks that read each."""
        least = self._counts([each.count for each in leased.values()])
        return {
            name: dataclasses.replace(each, tasks=_count_parts(each.count, own))
            for (name, each), own in zip(leased.items(), least, strict=True)
        }

    def _replay(self, begin: Offset, batch: Offset) -> dict[str, LeasedMessages]:
        """Take the batch over: another process leased it, and Spark never committed it."""
        self._settled = max(self._settled, begin.epoch)  # settled before this batch was leased
        found = {name: self._handles.again(name, batch) for name in batch.queues}
        return {name: held for name, held in found.items() if held is not None}

    def _read_runs(self, part: QueueInputPartition) -> Iterator[shmq.Columns]:
        """The messages of a part. Raises ShmqError if some are gone, unless loss is allowed."""
        try:
            with borrow_queue(self._address, part.topic) as queue:
                _check_identity(queue, part)
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


def _check_identity(queue: shmq.Queue, part: SlotRange | QueueInputPartition) -> None:
    """Raise QueueDeleted unless the queue is the one that was planned."""
    if queue.identity != part.identity:
        raise QueueDeleted(
            f"the queue {part.topic!r} was deleted and recreated while a batch of it was being read"
        )


def _split_parts(topic: str, held: LeasedMessages, tasks: int) -> Iterator[QueueInputPartition]:
    slots, sequences = held.run.slots, held.run.sequences
    for start, end in _split(len(held), tasks):
        part = slots[4 * start : 4 * end], sequences[8 * start : 8 * end]
        yield QueueInputPartition(topic, held.identity, *part)
