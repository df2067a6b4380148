"""A batch read of streams: the offsets between two bounds, as resolved at its start."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from shmq.errors import InvalidOption, OffsetOutOfRange
from shmq.spark.shared import columns
from shmq.spark.shared.address import Address
from shmq.spark.stream import offset_range
from shmq.spark.stream.bounds import EARLIEST, LATEST, Bound
from shmq.spark.stream.offset_range import HOW, Range, cut, lost
from shmq.spark.stream.snapshot import StreamSnapshot, check_within, look
from shmq.spark.stream.topics import Topics

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["StreamBatchReader"]

_log = logging.getLogger("shmq.spark")


class StreamBatchReader(DataSourceReader):
    """Reads the records that the streams hold between the bounds when the query is planned."""

    def __init__(
        self, address: Address, topics: Topics, schema: StructType, chosen: Mapping[str, Any]
    ) -> None:
        columns.check(schema)
        self._address = address
        self._topics = topics
        self._schema = schema
        self._least = chosen["minPartitions"]
        self._size = chosen["maxBytesPerBatch"]
        self._strict = chosen["failOnDataLoss"]
        self._starting = Bound.starting(chosen, EARLIEST)
        self._ending = Bound.ending(chosen)
        if self._starting.word == LATEST:
            raise InvalidOption(
                "startingOffsets='latest' leaves a batch nothing to read: leave it out, or give "
                "an offset"
            )

    def partitions(self) -> list[InputPartition]:
        """The ranges. Raises :class:`~shmq.ShmqError`, at the driver."""
        with self._address.connect() as broker:
            seen = look(broker, self._topics)
            there = {name: tuple(each.extents) for name, each in seen.items()}
            self._starting.check(there)
            self._ending.check(there)
            ranges = [
                self._range(name, each, partition)
                for name, each in seen.items()
                for partition in each.extents
            ]
        parts: list[InputPartition] = [*cut(ranges, self._least)]
        return parts or [Range("", 0, 0, 0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a range, as Arrow batches."""
        assert isinstance(partition, Range)
        if len(partition):
            yield from offset_range.read(
                self._address, partition, self._schema, self._size, strict=self._strict
            )

    def _range(self, name: str, seen: StreamSnapshot, partition: int) -> Range:
        extent = seen.extents[partition]
        start, end = seen.at(self._starting, partition), seen.at(self._ending, partition)
        check_within(self._starting, name, partition, start, extent)
        check_within(self._ending, name, partition, end, extent)
        if start < extent.earliest and start < end:
            told = lost(name, partition, start, min(end, extent.earliest))
            if self._strict:
                raise OffsetOutOfRange(
                    f"{told}: the earliest is {extent.earliest}; {HOW}",
                    start,
                    extent.earliest,
                    extent.latest,
                )
            _log.warning("%s: the query goes on without them", told)
            start = extent.earliest
        return Range(name, seen.identity, partition, start, max(start, end))
