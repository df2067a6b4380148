"""What ``format("shmq")`` can read and write: queues are one kind, streams are another."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

from shmq.errors import InvalidOption
from shmq.spark.shared import address, columns, options, query_page
from shmq.spark.shared.address import Address
from shmq.spark.shared.options import ALWAYS, BATCH, READ, STREAM, WRITE, Option, Use
from shmq.spark.shared.sink import Sink
from shmq.spark.shared.subscription import Subscription

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

_Sink = TypeVar("_Sink", bound=Sink)

Chosen = Mapping[str, Any]

#: Options of Kafka's connector that neither kind has, by lower-case name, each with the reason.
KAFKAS: Final = MappingProxyType(
    {
        "kafka.bootstrap.servers": "say where the broker is as .option('url', …)",
        "kafka.group.id": "a stream takes .option('group', NAME)",
        "kafka.*": "it is of Kafka's client: url, token, tls, tlsCa, connectTimeout and "
        "requestTimeout say how to connect",
        **dict.fromkeys(
            ("kafkaconsumer.*", "fetchoffset.*"),
            "the options connectTimeout and requestTimeout say how long to wait for the broker",
        ),
        "maxrecordsperpartition": "say .option('minPartitions', NUMBER)",
        "endingoffsetsbytimestampstrategy": "a time after all records means the end: leave it out",
        "path": "name what to read as .option('subscribe', NAME), and to write as "
        ".option('topic', NAME)",
        "namespace": "say it as .option('url', NAMESPACE)",
    }
)


#: Whether names are of queues or of streams.
KIND: Final = Option("kind", options.one_of("queue", "stream"), None, ALWAYS)

#: The options that name what is read.
NAMES: Final = (
    Option("subscribe", options.names, None, READ),
    Option("subscribePattern", options.pattern, None, READ),
)

#: The options of reading that both kinds have with the same values.
SHARED: Final = (
    *address.OPTIONS,
    KIND,
    *NAMES,
    Option("includeHeaders", options.truth, False, READ),
    Option("minPartitions", options.whole(1, 10_000), None, READ),
    Option("maxBytesPerBatch", options.size(1 << 10, 1 << 30), 4 << 20, READ),
    Option("maxTriggerDelay", options.seconds(0.001, 1e6), 900.0, STREAM),
    Option("uiWebUrl", query_page.address, None, STREAM),
    # A file that stops a stream: once it exists, the source has nothing new.
    Option("stopFile", options.text, None, STREAM),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind(Generic[_Sink]):
    """A kind: its options, and what makes its readers and writers. Given options are text."""

    name: Literal["queue", "stream"]
    #: Every option of the kind; docs/integrate/spark.md has the same table.
    options: tuple[Option, ...]
    #: Options of other formats and kinds that users may try here, by lower-case name, with the
    #: reason why the kind does not have them.
    refused: Mapping[str, str]
    #: The columns that a read has, in their order.
    columns: Sequence[str]
    make_reader: Callable[[Address, Subscription, StructType, Chosen], DataSourceReader]
    make_stream_reader: Callable[
        [Address, Subscription, StructType, Chosen], DataSourceStreamReader
    ]
    make_sink: Callable[[Chosen, StructType], _Sink]
    make_writer: Callable[[_Sink], DataSourceWriter]
    make_stream_writer: Callable[[_Sink], DataSourceStreamWriter]
    #: The errors for ``mode("overwrite")`` and for ``outputMode("complete")``.
    no_overwrite: str
    no_complete: str

    def parse(self, given: Mapping[str, str], use: Use) -> dict[str, Any]:
        """The value of every option of that use. Raises :class:`~shmq.InvalidOption`."""
        chosen = options.parse(self.options, given, use, form="shmq", refused=self.refused)
        _check_trigger(chosen)
        return chosen

    def schema(self, given: Mapping[str, str]) -> str:
        """The columns of the rows, as DDL.

        Spark asks for it before it names the use, so options of any use are allowed here. Raises
        :class:`~shmq.InvalidOption`.
        """
        chosen = self.parse(given, options.use_of(self.options, given))
        return columns.ddl(columns.chosen(chosen, self.columns))

    def reader(self, given: Mapping[str, str], schema: StructType) -> DataSourceReader:
        """The reader for ``spark.read``. Raises :class:`~shmq.ShmqError`, at the driver."""
        chosen = self.parse(given, BATCH)
        return self.make_reader(*self.source(chosen), schema, chosen)

    def stream_reader(self, given: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
        """The reader for ``spark.readStream``. Raises :class:`~shmq.ShmqError`, at the driver."""
        chosen = self.parse(given, STREAM)
        return self.make_stream_reader(*self.source(chosen), schema, chosen)

    def writer(
        self, given: Mapping[str, str], schema: StructType, *, overwrite: bool
    ) -> DataSourceWriter:
        """The writer for ``df.write``.

        Raises :class:`~shmq.ShmqError` if the write is known to fail before any task runs.
        """
        chosen = self.parse(given, WRITE)
        if overwrite:
            raise InvalidOption(self.no_overwrite)
        return self.make_writer(self._make_sink(chosen, schema))

    def stream_writer(
        self, given: Mapping[str, str], schema: StructType, *, overwrite: bool
    ) -> DataSourceStreamWriter:
        """The writer for ``df.writeStream``. Raises as :meth:`writer` does."""
        chosen = self.parse(given, WRITE)
        if overwrite:
            raise InvalidOption(self.no_complete)
        if chosen["publisher"] is not None:
            raise InvalidOption(
                f"the option publisher={chosen['publisher']!r} is for df.write: of a stream, the "
                f"query is the publisher, so leave it out"
            )
        return self.make_stream_writer(self._make_sink(chosen, schema))

    def source(self, chosen: Chosen) -> tuple[Address, Subscription]:
        """Where a read finds its rows."""
        return Address.of(chosen), Subscription.of(chosen, self.name)

    def _make_sink(self, chosen: Chosen, schema: StructType) -> _Sink:
        sink = self.make_sink(chosen, schema)
        sink.check()
        return sink


def _check_trigger(chosen: Chosen) -> None:
    least, most = chosen.get("minOffsetsPerTrigger"), chosen.get("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise InvalidOption(
            f"the option minOffsetsPerTrigger must be at most maxOffsetsPerTrigger={most}, not "
            f"{least}: lower the minimum, or raise the maximum"
        )
