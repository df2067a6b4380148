"""Which batch it is that a task writes, and whose."""

from __future__ import annotations

import dataclasses
from typing import Final, Protocol, Self

from pyspark import TaskContext

from shmq.errors import InvalidOption

__all__ = ["BatchId"]

#: What Spark tells the tasks of a micro-batch, those of foreachBatch included.
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


class Sink(Protocol):
    """What a batch is named after: of a sink of queues or of streams."""

    @property
    def run(self) -> str:
        """The publisher's name where no option has one."""

    @property
    def publisher(self) -> str | None:
        """Who publishes, as the options say."""

    @property
    def batch(self) -> int | None:
        """Which batch of the publisher, as the options say."""


@dataclasses.dataclass(frozen=True, slots=True)
class BatchId:
    """A batch of a publisher, which is published once, and this task's part of it."""

    publisher: str
    batch: int
    part: str
    #: Where the part stands among those of its batch.
    partition: int

    @classmethod
    def of_stream(cls, sink: Sink) -> Self:
        """That of a stream's task: the query publishes, under the number of its micro-batch."""
        context = _context()
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
        assert query is not None, "a stream's tasks know their query"
        assert batch is not None, "a stream's tasks know their batch"
        return cls(query, int(batch), *_part(sink, context))

    @classmethod
    def of_batch(cls, sink: Sink) -> Self:
        """That of a task of ``df.write``.

        The options may name the publisher and the batch; within foreachBatch the publisher
        alone: the query and the micro-batch are known. Else each write is its own publisher.
        Raises :class:`~shmq.InvalidOption` for a publisher without a batch elsewhere.
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
    """The part's name, which no other attempt has, and its place."""
    partition = context.partitionId()
    return f"{sink.run}.{partition}.{context.taskAttemptId()}", partition
