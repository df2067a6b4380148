"""A queue behind ``format("shmq")``: its options, and its readers and writers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from shmq.spark.queue import sink_writer
from shmq.spark.queue.batch import QueueReader
from shmq.spark.queue.reader import QueueSourceStreamingReader
from shmq.spark.queue.source import Subscription
from shmq.spark.shared import address, columns, options
from shmq.spark.shared.address import Address
from shmq.spark.shared.options import BATCH, KIND, STREAM, WRITE, Option

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

__all__ = ["OPTIONS", "REFUSED", "QueueKind"]

_READ: Final = frozenset({BATCH, STREAM})
_STREAM: Final = frozenset({STREAM})

#: Every option of ``format("shmq")`` for a queue; docs/spark.md has the same table.
OPTIONS: Final = (
    *address.OPTIONS,
    KIND,
    Option("subscribe", options.names, None, _READ),
    Option("subscribePattern", options.pattern, None, _READ),
    Option("columns", options.several_of(*columns.NAMES), None, _READ),
    Option("includeHeaders", options.truth, False, _READ),
    Option("states", options.several_of(*columns.STATES), columns.STATES, frozenset({BATCH})),
    Option("minPartitions", options.whole(1, 10_000), None, _READ),
    Option("maxBytesPerBatch", options.size(1 << 10, 1 << 30), 4 << 20, _READ),
    Option("maxOffsetsPerTrigger", options.whole(1, 1 << 24), 500_000, _STREAM),
    Option("maxBytesPerTrigger", options.size(1, 1 << 40), 256 << 20, _STREAM),
    Option("leaseTimeout", options.seconds(1, 1e6), 600.0, _STREAM),
    Option("failOnDataLoss", options.truth, True, _STREAM),
    *sink_writer.OPTIONS,
)

_NO_OFFSETS: Final = (
    "a queue has no offsets to begin or end at, it hands out what is in it: leave it out"
)

#: Options of other formats that users may try here, by lower-case name, with the reason.
REFUSED: Final = MappingProxyType(
    {
        **dict.fromkeys(
            (
                "assign",
                "startingoffsets",
                "endingoffsets",
                "startingtimestamp",
                "endingtimestamp",
                "startingoffsetsbytimestamp",
                "endingoffsetsbytimestamp",
                "startingoffsetsbytimestampstrategy",
            ),
            _NO_OFFSETS,
        ),
        **dict.fromkeys(
            ("minoffsetspertrigger", "maxtriggerdelay"),
            "choose a longer trigger instead: .trigger(processingTime='10 seconds')",
        ),
        "path": "name the queue as .option('subscribe', NAME), and to write as "
        ".option('topic', NAME)",
        "kafka.bootstrap.servers": "say where the queues are as .option('url', …)",
        "namespace": "say it as .option('url', NAMESPACE)",
    }
)


class QueueKind:
    """The queue readers and writers for one set of options."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def schema(self) -> str:
        """The columns of the rows, as DDL.

        Spark asks for it before it names the use, so options of any use are allowed here. Raises
        :class:`~shmq.InvalidOption`.
        """
        chosen = self._parse(options.use_of(OPTIONS, self._given))
        return columns.ddl(columns.chosen(chosen["columns"], chosen["includeHeaders"]))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader that peeks at the queues. Raises :class:`~shmq.ShmqError`, at the driver."""
        chosen = self._parse(BATCH)
        return QueueReader(Address.of(chosen), Subscription.of(chosen), schema, chosen)

    def stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader that leases from the queues. Raises :class:`~shmq.ShmqError`, at the driver."""
        chosen = self._parse(STREAM)
        return QueueSourceStreamingReader(
            Address.of(chosen), Subscription.of(chosen), schema, chosen
        )

    def writer(self, schema: StructType, *, overwrite: bool) -> DataSourceWriter:
        """A writer that puts all rows into queues, or none."""
        return sink_writer.writer(self._parse(WRITE), schema, overwrite=overwrite)

    def stream_writer(self, schema: StructType, *, overwrite: bool) -> DataSourceStreamWriter:
        """A writer that puts each micro-batch into queues once."""
        return sink_writer.stream_writer(self._parse(WRITE), schema, overwrite=overwrite)

    def _parse(self, use: str) -> dict[str, Any]:
        return options.parse(OPTIONS, self._given, use, form="shmq", refused=REFUSED)
