"""A stream of streams: a batch is a range of offsets of each partition.

    latestOffset(start) ─► how far ─► end ─► Spark logs it ─► partitions(start, end) ─► tasks read
                                                                         │
    latestOffset(end) ◄─ Spark has committed the batch ◄─ the sink ◄─────┘
      tells the group, if there is one, that all before `end` is done

Nothing is taken away from a stream, so a batch that Spark has logged and not committed is read
again from its two offsets, in this process or in one after it.
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
    """Says at the driver how far each batch goes, and reads that on the executors.

    Spark makes several, and asks the same one for all the offsets of a query.
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
        """Made where it is asked for: the reader that goes to the executors has none."""
        return Cursor(self._address, self._topics, self._chosen)

    def initialOffset(self) -> Json:  # noqa: N802
        """Before the first batch, whenever that is asked: the first end says where it began."""
        self._cursor.look()  # which are missing is said before anything is written
        return NOWHERE.as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What the options say; Spark may ask for everything instead."""
        most = self._chosen["maxOffsetsPerTrigger"]
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on nothing is read that is not there now."""
        self._all_now = True
        self._cursor.stay()

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        """How many records wait, and where each partition ends, for the progress of the query."""
        return self._cursor.report()

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """How far the next batch goes; ``start``, if there is none yet."""
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
        """The ranges of the batch, as the offsets have them."""
        begin, batch = StreamOffset.of_json(start), StreamOffset.of_json(end)
        self._cursor.reached(batch)
        ranges = [Range(*each) for each in batch.since(begin)]
        return cut(ranges, self._chosen["minPartitions"])

    def commit(self, end: Json) -> None:
        """Tell the group that Spark has what is before ``end``."""
        self._cursor.done(StreamOffset.of_json(end))

    def stop(self) -> None:
        """Let go of everything."""
        if "_cursor" in vars(self):
            self._cursor.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a range, as Arrow's batches."""
        assert isinstance(partition, Range)
        yield from offset_range.read(
            self._address, partition, self._schema, self._size, strict=self._strict
        )

    def _enough(self, count: int) -> bool:
        """Whether that is enough for a batch, or the last one is too long ago."""
        least = self._chosen["minOffsetsPerTrigger"]
        if least is None or self._all_now or count >= least:
            return True
        return bool(time.monotonic() - self._last >= self._chosen["maxTriggerDelay"])
