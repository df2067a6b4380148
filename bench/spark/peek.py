"""A queue read as a batch, and a source without anything to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.machine import now
from bench.row import Role
from bench.scratch import scratch
from bench.spark import numbered
from bench.spark.contestant import OnSpark
from bench.spark.session import begin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUEUE = "q"


class Peek(OnSpark):
    """All columns of all messages of a queue, which keeps them."""

    label = 'format("shmq"), batch'
    note = "every column; the queue keeps its messages"

    def work(self) -> dict[str, float]:
        """See :class:`bench.spark.contestant.OnSpark`."""
        with scratch() as broker:
            broker.create_queue(QUEUE, **numbered.queue_options(self.rows))
            numbered.fill(broker.namespace, QUEUE, self.rows)
            frame = reading(broker.namespace)
            taken = time_of(frame)
            numbered.check(frame, self.rows)
        return {"rate": self.rows * 1e9 / taken}


class Empty(OnSpark):
    """The same columns from a Python source that repeats one ready Arrow batch."""

    label = "a Python source of ready Arrow batches"
    role: Role = "harness"
    note = "the same columns, types and batch sizes; it reads nothing"

    def work(self) -> dict[str, float]:
        """See :class:`bench.spark.contestant.OnSpark`."""
        from bench.spark.empty import EmptySource

        spark = begin()
        spark.dataSource.register(EmptySource)
        with scratch() as broker:
            broker.create_queue(QUEUE, **numbered.queue_options(1))
            schema = reading(broker.namespace).schema
        frame = (
            spark.read.format(EmptySource.name()).schema(schema).option("rows", self.rows).load()
        )
        return {"rate": self.rows * 1e9 / time_of(frame)}


def reading(namespace: str) -> DataFrame:
    """The queue as a frame."""
    reader = begin().read.format("shmq").option("url", namespace)
    return reader.option("subscribe", QUEUE).load()


def time_of(frame: DataFrame) -> int:
    """The time until Spark has every column of every row, in ns."""
    begun = now()
    frame.write.format("noop").mode("overwrite").save()
    return now() - begun
