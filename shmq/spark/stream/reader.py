"""A streaming read of streams: a batch is a range of offsets of each partition.

    latestOffset(start) ─► how far ─► end ─► Spark logs it ─► partitions(start, end) ─► tasks read
                                                                         │
    latestOffset(end) ◄─ Spark has committed the batch ◄─ the sink ◄─────┘
      commits `end` to the group, if there is one

Reading removes nothing from a stream. So a batch that Spark has logged but not committed is read
again from its two offsets, in this process or in a later one.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

import shmq
from shmq.errors import InvalidOption, NoSuchStream, OffsetOutOfRange, StreamDeleted
from shmq.spark.shared.address import Address
from shmq.spark.shared.options import stopped
from shmq.spark.shared.reader import SourceReader, StreamingReader, most_rows
from shmq.spark.shared.shares import task_counts
from shmq.spark.stream.bounds import EARLIEST, LATEST, Bound, StreamSnapshot, check_within, look
from shmq.spark.stream.cursor import Cursor
from shmq.spark.stream.offset import NOWHERE, StreamOffset, pass_over

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_log = logging.getLogger("shmq.spark")


@dataclasses.dataclass(frozen=True)
class Range(InputPartition):
    """The records from ``start`` to before ``end``."""

    topic: str
    #: The stream's identity when the read was planned.
    identity: int
    partition: int
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


def cut(ranges: Iterable[Range], least: int | None) -> list[Range]:
    """The ranges cut into ``least`` parts, longer ones into more; without it, uncut.

    Several tasks read the parts of a range at once, so the parts are not ordered.
    """
    given = [each for each in ranges if len(each)]
    if least is None or least <= len(given):
        return given
    counts = task_counts([len(each) for each in given], least)
    return [
        part
        for each, count in zip(given, counts, strict=True)
        for part in _split_parts(each, count)
    ]


def _split_parts(whole: Range, count: int) -> Iterator[Range]:
    ends = [whole.start + len(whole) * n // count for n in range(count + 1)]
    for start, end in itertools.pairwise(ends):
        yield dataclasses.replace(whole, start=start, end=end)


def read_range(
    address: Address, wanted: Range, schema: StructType, size: int, *, strict: bool
) -> Iterator[pa.RecordBatch]:
    """The rows of a range in Arrow batches of about ``size`` bytes.

    Raises :class:`~shmq.ShmqError` for lost records if ``strict``; otherwise it leaves them out
    and logs how many they were.
    """
    from shmq.spark.shared.arrow import arrow_schema  # noqa: PLC0415 - the driver has no use for Arrow
    from shmq.spark.stream.arrow import RecordRows  # noqa: PLC0415 - the same

    fields = arrow_schema(schema)
    at = wanted.start
    try:
        with address.connect() as broker, broker.stream(wanted.topic) as stream:
            check_identity(stream, wanted)
            while at < wanted.end:
                try:
                    found = stream.read(wanted.partition, at, wanted.end - at, max_bytes=size)
                except OffsetOutOfRange as error:
                    at = _skip_lost(wanted, at, error, strict=strict)
                    continue
                rows = RecordRows(found.data, at, wanted.end, wanted.topic, wanted.partition)
                at = min(found.next_offset, wanted.end)
                batch = rows.batch(fields)
                del found, rows  # the next read gets their memory, which is mapped already
                if batch.num_rows:
                    yield batch
    except (NoSuchStream, StreamDeleted) as error:
        if strict:
            raise
        _log.warning("%d records of a batch are lost: %s", wanted.end - at, error)


def check_identity(stream: shmq.Stream, wanted: Range) -> None:
    """Raise StreamDeleted unless the stream is the one that was planned."""
    if stream.identity != wanted.identity:
        raise StreamDeleted(
            f"the stream {wanted.topic!r} was deleted and recreated while records of it were to be "
            f"read"
        )


def _skip_lost(wanted: Range, at: int, error: OffsetOutOfRange, *, strict: bool) -> int:
    """Where to continue after lost records. Raises OffsetOutOfRange if ``strict``."""
    following = min(max(error.earliest, at), wanted.end)
    if error.earliest <= at:  # not written yet, so the range was never a planned one
        following = wanted.end
    there = error.earliest, error.latest
    pass_over(wanted.topic, wanted.partition, at, following, there, strict=strict)
    return following


class _RangeReader(SourceReader):
    """Reads ranges on the executors."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a range, as Arrow batches."""
        assert isinstance(partition, Range)
        if len(partition):
            yield from read_range(
                self._address, partition, self._schema, self._size, strict=self._strict
            )


class StreamBatchReader(_RangeReader, DataSourceReader):
    """Reads the records that the streams hold between the bounds when the query is planned."""

    def partitions(self) -> list[InputPartition]:
        """The ranges. Raises :class:`~shmq.ShmqError`, at the driver."""
        bounds = Bound.starting(self._chosen, EARLIEST), Bound.ending(self._chosen)
        if bounds[0].has(LATEST):
            raise InvalidOption(
                "startingOffsets is the latest offset (latest, or -1), and nothing would be read: "
                "leave it out, or give an offset"
            )
        with self._address.connect() as broker:
            seen = look(broker, self._subscription)
            for bound in bounds:
                bound.check({name: tuple(each.extents) for name, each in seen.items()})
            ranges = [
                self._make_range(name, each, partition, *bounds)
                for name, each in seen.items()
                for partition in each.extents
            ]
        parts: list[InputPartition] = [*cut(ranges, self._least)]
        return parts or [Range("", 0, 0, 0, 0)]

    def _make_range(
        self, name: str, seen: StreamSnapshot, partition: int, starting: Bound, ending: Bound
    ) -> Range:
        extent = seen.extents[partition]
        start, end = seen.at(starting, partition), seen.at(ending, partition)
        check_within(starting, name, partition, start, extent)
        check_within(ending, name, partition, end, extent)
        if start < extent.earliest and start < end:
            there = extent.earliest, extent.latest
            found = min(end, extent.earliest)
            pass_over(name, partition, start, found, there, strict=self._strict)
            start = extent.earliest
        return Range(name, seen.identity, partition, start, max(start, end))


Json = dict[str, Any]


class StreamSourceStreamingReader(_RangeReader, StreamingReader[Cursor]):
    """Decides at the driver how far each batch goes, and reads it on the executors."""

    HANDLES = Cursor

    def initialOffset(self) -> Json:  # noqa: N802
        """The offset before the first batch. The first end says where that batch began."""
        self._handles.names()  # raises for missing streams before Spark writes anything
        return NOWHERE.as_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on read only what is there now."""
        super().prepareForTriggerAvailableNow()
        self._handles.stay()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """The end of the next batch; ``start`` if there is none yet."""
        begin = StreamOffset.of_json(start)
        self._handles.done(begin)
        self._tell_page()
        end, backlog = self._handles.next(begin, most_rows(limit))
        waits = not backlog or stopped(self._chosen) or not self._trigger.ready(backlog, limit)
        if begin != NOWHERE and waits:
            self._handles.reached(begin)
            return start
        self._trigger.begun()
        self._handles.reached(end)
        return end.as_json()

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """The ranges of the batch between the offsets."""
        begin, batch = StreamOffset.of_json(start), StreamOffset.of_json(end)
        self._handles.reached(batch)
        ranges = [Range(*each) for each in batch.since(begin)]
        return cut(ranges, batch.tasks)

    def commit(self, end: Json) -> None:
        """Commit ``end``, which Spark has committed, to the group."""
        self._handles.done(StreamOffset.of_json(end))
