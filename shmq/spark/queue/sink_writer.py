"""A queue as a sink: its options and its writers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from shmq.errors import InvalidOption
from shmq.spark.queue import publishing
from shmq.spark.queue.sink import Sink
from shmq.spark.queue.staging import Staged, stage
from shmq.spark.queue.unstaged_write import put
from shmq.spark.shared import options
from shmq.spark.shared.batch_id import BatchId
from shmq.spark.shared.options import WRITE, Option

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["OPTIONS", "QueueSinkStreamingWriter", "QueueWriter", "stream_writer", "writer"]

_WRITE: Final = frozenset({WRITE})

#: The options of a sink, in addition to those in :mod:`shmq.spark.shared.address`.
OPTIONS: Final = (
    Option("topic", options.text, None, _WRITE),
    Option("queue", options.text, None, _WRITE),
    Option("staged", options.truth, True, _WRITE),
    Option("stagingBytes", options.size(1 << 20, 1 << 40), None, _WRITE),
    Option("publishTimeout", options.seconds(0, 1e9), None, _WRITE),
    Option("publisher", options.text, None, _WRITE),
    Option("batch", options.whole(0, (1 << 62)), None, _WRITE),
)

Messages = Sequence[WriterCommitMessage | None]


def writer(chosen: Mapping[str, Any], schema: StructType, *, overwrite: bool) -> QueueWriter:
    """The writer for ``df.write``; ``chosen`` has every option of a write by name.

    Raises :class:`~shmq.ShmqError` if the write is known to fail before any task runs.
    """
    if overwrite:
        raise InvalidOption(
            "mode('overwrite') would remove what others have put, and a queue's messages are for "
            "its consumers: use mode('append'), and shmq purge before it to begin with an empty one"
        )
    return QueueWriter(_checked(chosen, schema))


def stream_writer(
    chosen: Mapping[str, Any], schema: StructType, *, overwrite: bool
) -> QueueSinkStreamingWriter:
    """The writer for ``df.writeStream``. Raises as :func:`writer` does."""
    if overwrite:
        raise InvalidOption(
            "outputMode('complete') gives the whole result anew with each batch, and a queue keeps "
            "what it got: use outputMode('append') with a watermark, or foreachBatch"
        )
    if chosen["publisher"] is not None:
        raise InvalidOption(
            f"the option publisher={chosen['publisher']!r} is for df.write: of a stream, the query "
            f"is the publisher, so leave it out"
        )
    return QueueSinkStreamingWriter(_checked(chosen, schema))


def _checked(chosen: Mapping[str, Any], schema: StructType) -> Sink:
    sink = Sink.of(chosen, schema)
    sink.check()
    return sink


class QueueWriter(DataSourceArrowWriter):
    """Puts all rows of a DataFrame into queues, or none."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        #: Whether the publisher's name is used for this write only.
        self._once = sink.publisher is None

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage a task's rows, or put them."""
        if not self._sink.staged:
            return put(self._sink, iterator)
        return stage(self._sink, BatchId.of_batch(self._sink), iterator)

    def commit(self, messages: Messages) -> None:
        """Publish what every task has staged."""
        if self._sink.staged:
            publishing.publish(self._sink, cast(Sequence[Staged], messages), forget=self._once)

    def abort(self, messages: Messages) -> None:
        """Remove the staged rows, unless another write of the same publisher may use them."""
        if self._sink.staged and self._once:
            staged = cast(Sequence[Staged | None], messages)
            publishing.discard(self._sink, self._sink.run, staged)


class QueueSinkStreamingWriter(DataSourceStreamArrowWriter):
    """Puts the rows of each micro-batch into queues once, however often Spark runs it."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage a task's rows, or put them."""
        if not self._sink.staged:
            return put(self._sink, iterator)
        return stage(self._sink, BatchId.of_stream(self._sink), iterator)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        """Publish what every task has staged."""
        del batchId
        if self._sink.staged:
            publishing.publish(self._sink, cast(Sequence[Staged], messages), forget=False)
