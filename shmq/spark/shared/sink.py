"""A write: its target, columns and options, and the batch that each of its tasks writes."""

from __future__ import annotations

import abc
import dataclasses
import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

import shmq
from shmq.api.names import check_name
from shmq.errors import InvalidOption, NoSuchQueue, NoSuchStream
from shmq.spark.shared import options
from shmq.spark.shared.address import Address
from shmq.spark.shared.columns import SinkColumns
from shmq.spark.shared.options import WRITE, Option

if TYPE_CHECKING:
    import pyarrow as pa

#: A file that says what the write waits for, while it waits for long.
WAIT_FILE: Final = Option("waitFile", options.text, None, WRITE)

#: The properties by which Spark gives a query's id and the micro-batch's number to the tasks,
#: including those of foreachBatch.
_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sink(abc.ABC):
    """A write as its options and columns define it; every task gets a copy.

    It is made at the driver for each write, and for each micro-batch.
    """

    #: What rows go to, and the command that makes one.
    THING: ClassVar[str]
    MAKE: ClassVar[str]

    address: Address
    #: The queue or stream of every row; None: a column names it.
    topic: str | None
    columns: SinkColumns
    #: How long the write waits for room or for the disk, in seconds; None: without limit.
    timeout: float | None
    #: A name that no other write has: its publisher's if no option names one.
    run: str
    #: The publisher and the batch that the options name.
    publisher: str | None
    batch: int | None
    #: The file that says what the write waits for.
    wait_file: str | None

    @staticmethod
    def fields(chosen: Mapping[str, Any], topic: str | None) -> dict[str, Any]:
        """The fields of every sink but its columns. Raises InvalidOption, InvalidName."""
        if chosen["batch"] is not None and chosen["publisher"] is None:
            raise InvalidOption(
                f"the option batch={chosen['batch']} counts the batches of a publisher: give "
                f".option('publisher', NAME), too"
            )
        return {
            "address": Address.of(chosen),
            "topic": None if topic is None else check_name(topic),
            "timeout": chosen["publishTimeout"],
            "run": secrets.token_hex(8),
            "publisher": chosen["publisher"],
            "batch": chosen["batch"],
            "wait_file": chosen["waitFile"],
        }

    def check(self) -> None:
        """Check, as far as possible at the driver, that the write can succeed.

        Raises :class:`~shmq.NoSuchQueue`, :class:`~shmq.NoSuchStream`, and what
        :func:`shmq.connect` raises.
        """
        with self.address.connect() as broker:
            if self.topic is None:
                return
            try:
                self._open(broker, self.topic).close()
            except (NoSuchQueue, NoSuchStream) as error:
                raise type(error)(
                    f"{error}; a write makes no {self.THING}s: {self.MAKE} {self.topic}"
                ) from None

    @abc.abstractmethod
    def _open(self, broker: shmq.Broker, topic: str) -> shmq.Queue | shmq.Stream:
        """The queue or stream of that name."""

    @abc.abstractmethod
    def write(
        self, batch_id: Callable[[Sink], BatchId], batches: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """Write a task's rows as its part of a batch; within a task."""


@dataclasses.dataclass(frozen=True, slots=True)
class BatchId:
    """A batch of a publisher, published once, and this task's part of it."""

    publisher: str
    batch: int
    #: The part's name, unique to this attempt of the task.
    part: str
    #: The part's place among the parts of its batch.
    partition: int

    @classmethod
    def of_stream(cls, sink: Sink) -> Self:
        """The batch of a streaming task: the publisher is the query, the batch its micro-batch."""
        context = _get_context()
        running = _find_micro_batch(context)
        assert running is not None, "a stream's tasks know their query and their batch"
        return cls(*running, *_identify_part(sink, context))

    @classmethod
    def of_batch(cls, sink: Sink) -> Self:
        """The batch of a task of ``df.write``.

        The options may name the publisher and the batch. Within foreachBatch they may name the
        publisher alone, as the query and the micro-batch are known. Otherwise each write is its
        own publisher. Raises :class:`~shmq.InvalidOption` for a publisher without a batch
        outside foreachBatch.
        """
        context = _get_context()
        part = _identify_part(sink, context)
        if sink.publisher is None:
            return cls(sink.run, 0, *part)
        if sink.batch is not None:
            return cls(sink.publisher, sink.batch, *part)
        running = _find_micro_batch(context)
        if running is None:
            raise InvalidOption(
                f"the option publisher={sink.publisher!r} needs .option('batch', NUMBER) where it "
                f"is not within foreachBatch: a number that rises with each batch"
            )
        query, batch = running
        return cls(f"{query}/{sink.publisher}", batch, *part)


def _get_context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "a part is written within a task"
    return context


def _find_micro_batch(context: TaskContext) -> tuple[str, int] | None:
    """The query and the number of the micro-batch that a task is of; None: it is of none."""
    query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
    return None if query is None or batch is None else (query, int(batch))


def _identify_part(sink: Sink, context: TaskContext) -> tuple[str, int]:
    partition = context.partitionId()
    return f"{sink.run}.{partition}.{context.taskAttemptId()}", partition


class Writer(DataSourceArrowWriter):
    """What every write of a DataFrame does."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write a task's rows."""
        return self._sink.write(BatchId.of_batch, iterator)


class StreamingWriter(DataSourceStreamArrowWriter):
    """What every write of a streaming query does."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write a task's rows."""
        return self._sink.write(BatchId.of_stream, iterator)
