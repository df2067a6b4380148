"""A write to streams, and its options."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Self

from pyspark.sql.datasource import WriterCommitMessage

import shmq
from shmq.spark.shared import options
from shmq.spark.shared.columns import STREAM_SINK, SinkColumns
from shmq.spark.shared.options import WRITE, Option
from shmq.spark.shared.sink import WAIT_FILE, BatchId, Sink

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from shmq.api.options import Confirm


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StreamSink(Sink):
    """A write to streams."""

    THING = "stream"
    MAKE = "shmq stream create"

    #: Which confirmation to wait for; None: the stream's own default.
    confirm: Confirm | None

    @classmethod
    def of(cls, chosen: Mapping[str, Any], schema: StructType) -> Self:
        """The write that the options and columns define.

        Raises :class:`~shmq.InvalidOption`, and :class:`~shmq.InvalidName` for an invalid
        stream name.
        """
        topic = chosen["topic"]
        return cls(
            **Sink.fields(chosen, topic),
            columns=SinkColumns.of(schema, topic, STREAM_SINK, "stream"),
            confirm=chosen["confirm"],
        )

    def _open(self, broker: shmq.Broker, topic: str) -> shmq.Stream:
        return broker.stream(topic)

    def write(
        self, batch_id: Callable[[Sink], BatchId], batches: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Append a task's rows."""
        from shmq.spark.stream.append import append  # noqa: PLC0415 - the driver has no use for it

        return append(self, batch_id(self), batches, self.confirm)


#: The options of a sink, in addition to those in :mod:`shmq.spark.shared.address`.
OPTIONS: Final = (
    Option("topic", options.text, None, WRITE),
    Option("publishTimeout", options.seconds(0, 1e9), None, WRITE),
    Option("publisher", options.text, None, WRITE),
    Option("batch", options.whole(0, (1 << 31) - 1), None, WRITE),
    Option("confirm", options.one_of("memory", "disk"), None, WRITE),
    WAIT_FILE,
)
