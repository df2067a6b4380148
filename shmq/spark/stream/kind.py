"""A stream behind ``format("shmq")``: its options, and its readers and writers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from shmq.spark.shared import address, columns, options
from shmq.spark.shared.address import Address
from shmq.spark.shared.options import BATCH, KIND, STREAM, WRITE, Option
from shmq.spark.stream import bounds
from shmq.spark.stream import writer as stream_writer
from shmq.spark.stream.batch import StreamBatchReader
from shmq.spark.stream.reader import StreamSourceStreamingReader
from shmq.spark.stream.topics import Topics, assigned

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

__all__ = ["COLUMNS", "OPTIONS", "REFUSED", "StreamKind"]

_READ: Final = frozenset({BATCH, STREAM})
_BATCH: Final = frozenset({BATCH})
_STREAM: Final = frozenset({STREAM})

#: The columns of a stream's rows that are there by default.
_KAFKAS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
COLUMNS: Final = (*_KAFKAS, "headers", "codec")

#: Every option of ``format("shmq")`` for a stream; docs/spark.md has the same table.
OPTIONS: Final = (
    *address.OPTIONS,
    KIND,
    Option("subscribe", options.names, None, _READ),
    Option("subscribePattern", options.pattern, None, _READ),
    Option("assign", assigned, None, _READ),
    Option("columns", options.several_of(*COLUMNS), None, _READ),
    Option("includeHeaders", options.truth, False, _READ),
    Option("startingOffsets", bounds.offsets, None, _READ),
    Option("startingTimestamp", bounds.timestamp, None, _READ),
    Option("startingOffsetsByTimestamp", bounds.timestamps, None, _READ),
    Option("startingOffsetsByTimestampStrategy", options.one_of("error", "latest"), "error", _READ),
    Option("endingOffsets", bounds.offsets, None, _BATCH),
    Option("endingTimestamp", bounds.timestamp, None, _BATCH),
    Option("endingOffsetsByTimestamp", bounds.timestamps, None, _BATCH),
    Option("maxOffsetsPerTrigger", options.whole(1, 1 << 40), None, _STREAM),
    Option("minOffsetsPerTrigger", options.whole(1, 1 << 40), None, _STREAM),
    Option("maxTriggerDelay", options.seconds(0.001, 1e6), 900.0, _STREAM),
    Option("minPartitions", options.whole(1, 10_000), None, _READ),
    Option("maxBytesPerBatch", options.size(1 << 10, 1 << 30), 4 << 20, _READ),
    Option("failOnDataLoss", options.truth, True, _READ),
    Option("group", options.text, None, _STREAM),
    *stream_writer.OPTIONS,
)

_TAKES_NOTHING: Final = (
    "it is of queues, and a stream takes nothing from anybody: leave it out, or name a queue"
)

#: Options of other formats and of queues that users may try here, by lower-case name, with the
#: reason.
REFUSED: Final = MappingProxyType(
    {
        **dict.fromkeys(("states", "leasetimeout", "maxbytespertrigger"), _TAKES_NOTHING),
        **dict.fromkeys(
            ("staged", "stagingbytes"),
            "a stream takes what each task has at once, and once: leave it out",
        ),
        "path": "name the stream as .option('subscribe', NAME), and to write as "
        ".option('topic', NAME)",
        "kafka.bootstrap.servers": "say where the streams are as .option('url', …)",
        "kafka.group.id": "say it as .option('group', NAME)",
        "groupidprefix": "a query reads without a group; to tell one how far it is, "
        "say .option('group', NAME)",
        "namespace": "say it as .option('url', NAMESPACE)",
        "maxrecordsperpartition": "say .option('minPartitions', NUMBER)",
    }
)


class StreamKind:
    """The stream readers and writers for one set of options."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def schema(self) -> str:
        """The columns of the rows, as DDL.

        Spark asks for it before it names the use, so options of any use are allowed here. Raises
        :class:`~shmq.InvalidOption`.
        """
        chosen = self._parse(options.use_of(OPTIONS, self._given))
        names = chosen["columns"]
        if names is None:
            names = (*_KAFKAS, "headers") if chosen["includeHeaders"] else _KAFKAS
        return columns.ddl(names)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of a range of offsets. Raises :class:`~shmq.ShmqError`, at the driver."""
        chosen = self._parse(BATCH)
        return StreamBatchReader(Address.of(chosen), Topics.of(chosen), schema, chosen)

    def stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader of range after range. Raises :class:`~shmq.ShmqError`, at the driver."""
        chosen = self._parse(STREAM)
        return StreamSourceStreamingReader(Address.of(chosen), Topics.of(chosen), schema, chosen)

    def writer(self, schema: StructType, *, overwrite: bool) -> DataSourceWriter:
        """A writer that appends to streams."""
        return stream_writer.writer(self._parse(WRITE), schema, overwrite=overwrite)

    def stream_writer(self, schema: StructType, *, overwrite: bool) -> DataSourceStreamWriter:
        """A writer that appends each micro-batch to streams once."""
        return stream_writer.stream_writer(self._parse(WRITE), schema, overwrite=overwrite)

    def _parse(self, use: str) -> dict[str, Any]:
        return options.parse(OPTIONS, self._given, use, form="shmq", refused=REFUSED)
