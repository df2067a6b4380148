"""A stream as a sink: its options and its writers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from shmq.errors import InvalidOption
from shmq.spark.shared import options
from shmq.spark.shared.batch_id import BatchId
from shmq.spark.shared.options import WRITE, Option
from shmq.spark.stream.sink import StreamSink

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = [
    "OPTIONS",
    "StreamSinkStreamingWriter",
    "StreamWriter",
    "stream_writer",
    "writer",
]

_WRITE: Final = frozenset({WRITE})

#: The options of a sink, in addition to those in :mod:`shmq.spark.shared.address`.
OPTIONS: Final = (
    Option("topic", options.text, None, _WRITE),
    Option("publishTimeout", options.seconds(0, 1e9), None, _WRITE),
    Option("publisher", options.text, None, _WRITE),
    Option("batch", options.whole(0, (1 << 31) - 1), None, _WRITE),
    Option("confirm", options.one_of("memory", "disk"), None, _WRITE),
)

Messages = Sequence[WriterCommitMessage | None]


def writer(chosen: Mapping[str, Any], schema: StructType, *, overwrite: bool) -> StreamWriter:
    """The writer for ``df.write``; ``chosen`` has every option of a write by name.

    Raises :class:`~shmq.ShmqError` if the write is known to fail before any task runs.
    """
    if overwrite:
        raise InvalidOption(
            "mode('overwrite') would remove what others have appended, and nothing is removed "
            "from a stream: use mode('append')"
        )
    return StreamWriter(_checked(chosen, schema))


def stream_writer(
    chosen: Mapping[str, Any], schema: StructType, *, overwrite: bool
) -> StreamSinkStreamingWriter:
    """The writer for ``df.writeStream``. Raises as :func:`writer` does."""
    if overwrite:
        raise InvalidOption(
            "outputMode('complete') gives the whole result anew with each batch, and a stream "
            "keeps what it got: use outputMode('update'), whose newest record of a key counts, or "
            "outputMode('append') with a watermark"
        )
    if chosen["publisher"] is not None:
        raise InvalidOption(
            f"the option publisher={chosen['publisher']!r} is for df.write: of a stream, the query "
            f"is the publisher, so leave it out"
        )
    return StreamSinkStreamingWriter(_checked(chosen, schema))


def _checked(chosen: Mapping[str, Any], schema: StructType) -> StreamSink:
    sink = StreamSink.of(chosen, schema)
    sink.check()
    return sink


class StreamWriter(DataSourceArrowWriter):
    """Appends the rows of a DataFrame to streams, once even if Spark retries a task."""

    def __init__(self, sink: StreamSink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Append a task's rows."""
        from shmq.spark.stream.append import append  # noqa: PLC0415 - the driver has no use for it

        return append(self._sink, BatchId.of_batch(self._sink), iterator)

    def commit(self, messages: Messages) -> None:
        """Do nothing: the tasks have appended everything."""


class StreamSinkStreamingWriter(DataSourceStreamArrowWriter):
    """Appends the rows of each micro-batch to streams once, however often Spark runs it."""

    def __init__(self, sink: StreamSink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Append a task's rows."""
        from shmq.spark.stream.append import append  # noqa: PLC0415 - the driver has no use for it

        return append(self._sink, BatchId.of_stream(self._sink), iterator)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        """Do nothing: the tasks have appended everything."""
