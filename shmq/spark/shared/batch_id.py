"""The batch that a task writes, and its publisher."""

from __future__ import annotations

import dataclasses
from typing import Final, Protocol, Self

from pyspark import TaskContext

from shmq.errors import InvalidOption

__all__ = ["BatchId"]

#: The property by which Spark gives the query's id to the tasks of a micro-batch, including
#: those of foreachBatch.
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


class Sink(Protocol):
    """The part of a sink, of queues or of streams, that names its batches."""

    @property
    def run(self) -> str:
        """The publisher's name if no option sets one."""

    @property
    def publisher(self) -> str | None:
        """The publisher that the options name."""

    @property
    def batch(self) -> int | None:
        """The publisher's batch that the options name."""


@dataclasses.dataclass(frozen=True, slots=True)
class BatchId:
    """A batch of a publisher, published once, and this task's part of it."""

    publisher: str
    batch: int
    part: str
    #: The part's place among the parts of its batch.
    partition: int

    @classmethod
    def of_stream(cls, sink: Sink) -> Self:
        """The batch of a streaming task: the publisher is the query, the batch its micro-batch."""
        context = _context()
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        assert query is not None, "a stream's tasks know their query"
        assert batch is not None, "a stream's tasks know their batch"
        return cls(query, int(batch), *_part(sink, context))

    @classmethod
    def of_batch(cls, sink: Sink) -> Self:
        """The batch of a task of ``df.write``.

        The options may name the publisher and the batch. Within foreachBatch they may name the
        publisher alone, as the query and the micro-batch are known. Otherwise each write is its
        own publisher. Raises :class:`~shmq.InvalidOption` for a publisher without a batch
        outside foreachBatch.
        """
        context = _context()
        part = _part(sink, context)
        if sink.publisher is None:
            return cls(sink.run, 0, *part)
        if sink.batch is not None:
            return cls(sink.publisher, sink.batch, *part)
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        if query is None or batch is None:
            raise InvalidOption(
                f"the option publisher={sink.publisher!r} needs .option('batch', NUMBER) where it "
                f"is not within foreachBatch: a number that rises with each batch"
            )
        return cls(f"{query}/{sink.publisher}", int(batch), *part)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "a part is staged within a task"
    return context


def _part(sink: Sink, context: TaskContext) -> tuple[str, int]:
    """The part's name, unique to this attempt, and its place."""
    partition = context.partitionId()
    return f"{sink.run}.{partition}.{context.taskAttemptId()}", partition
