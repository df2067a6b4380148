"""A streaming read of streams: a batch is a range of offsets of each partition.

    latestOffset(start) ─► how far ─► end ─► Spark logs it ─► partitions(start, end) ─► tasks read
                                                                         │
    latestOffset(end) ◄─ Spark has committed the batch ◄─ the sink ◄─────┘
      commits `end` to the group, if there is one

Reading removes nothing from a stream. So a batch that Spark has logged but not committed is read
again from its two offsets, in this process or in a later one.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from shmq.spark.shared import columns
from shmq.spark.shared.address import Address
from shmq.spark.stream import offset_range
from shmq.spark.stream.cursor import Cursor
from shmq.spark.stream.offset import NOWHERE, StreamOffset
from shmq.spark.stream.offset_range import Range, cut
from shmq.spark.stream.topics import Topics

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["StreamSourceStreamingReader"]

_log = logging.getLogger("shmq.spark")

Json = dict[str, Any]


class StreamSourceStreamingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Decides at the driver how far each batch goes, and reads it on the executors.

    Spark makes several readers, but asks the same one for all offsets of a query.
    """

    def __init__(
        self, address: Address, topics: Topics, schema: StructType, chosen: Mapping[str, Any]
    ) -> None:
        columns.check(schema)
        self._address = address
        self._topics = topics
        self._schema = schema
        self._chosen = dict(chosen)
        self._size = chosen["maxBytesPerBatch"]
        self._strict = chosen["failOnDataLoss"]
        self._last = time.monotonic()
        self._all_now = False

    @functools.cached_property
    def _cursor(self) -> Cursor:
        """Made at the first use: a reader that goes to the executors has none."""
        return Cursor(self._address, self._topics, self._chosen)

    def initialOffset(self) -> Json:  # noqa: N802
        """The offset before the first batch. The first end says where that batch began."""
        self._cursor.look()  # raises for missing streams before Spark writes anything
        return NOWHERE.as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit from the options; Spark may ask for everything instead."""
        most = self._chosen["maxOffsetsPerTrigger"]
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on read only records that exist now."""
        self._all_now = True
        self._cursor.stay()

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        """The number of unread records, and where each partition ends, for the query's progress."""
        return self._cursor.report()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """The end of the next batch; ``start`` if there is none yet."""
        begin = StreamOffset.of_json(start)
        self._cursor.done(begin)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end, count = self._cursor.next(begin, most)
        if begin != NOWHERE and (not count or not self._enough(count)):
            self._cursor.reached(begin)
            return start
        self._last = time.monotonic()
        self._cursor.reached(end)
        return end.as_json()

    def partitions(self, start: Json, end: Json) -> Sequence[InputPartition]:
        """The ranges of the batch between the offsets."""
        begin, batch = StreamOffset.of_json(start), StreamOffset.of_json(end)
        self._cursor.reached(batch)
        ranges = [Range(*each) for each in batch.since(begin)]
        return cut(ranges, self._chosen["minPartitions"])

    def commit(self, end: Json) -> None:
        """Commit ``end``, which Spark has committed, to the group."""
        self._cursor.done(StreamOffset.of_json(end))

    def stop(self) -> None:
        """Detach."""
        if "_cursor" in vars(self):
            self._cursor.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a range, as Arrow batches."""
        assert isinstance(partition, Range)
        yield from offset_range.read(
            self._address, partition, self._schema, self._size, strict=self._strict
        )

    def _enough(self, count: int) -> bool:
        """Whether ``count`` is enough for a batch, or the last batch is too long ago."""
        least = self._chosen["minOffsetsPerTrigger"]
        if least is None or self._all_now or count >= least:
            return True
        return bool(time.monotonic() - self._last >= self._chosen["maxTriggerDelay"])
