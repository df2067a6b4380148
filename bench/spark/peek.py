"""A queue read as a batch, and a source without anything to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.machine import now
from bench.row import Role
from bench.scratch import scratch
from bench.spark import numbered
from bench.spark.contestant import Adorned
from bench.spark.figures import ROWS
from bench.spark.session import CORES, begin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUEUE = "q"


class Peek(Adorned):
    """The default columns of all messages of a queue, which keeps them."""

    name = 'format("shmq"), batch'
    note = "Kafka's seven columns; the queue keeps its messages"

    def work(self) -> dict[str, float]:
        """See :class:`bench.spark.contestant.OnSpark`."""
        with scratch() as broker:
            options = numbered.queue_options(self.rows, adorned=self.adorned)
            broker.create_queue(QUEUE, **options)
            numbered.fill(broker.namespace, QUEUE, self.rows, adorned=self.adorned)
            frame = reading(broker.namespace, adorned=self.adorned)
            taken = time_of(frame)
            numbered.check(frame, self.rows)
        return {"rate": self.rows * 1e9 / taken}


class Empty(Adorned):
    """The same columns from a Python source that repeats one ready Arrow batch."""

    name = "a Python source of ready Arrow batches"
    role: Role = "harness"
    note = "the same columns, types, batch sizes and number of tasks; it reads nothing"

    def __init__(self, rows: int = ROWS, *, adorned: bool = False, tasks: int = CORES) -> None:
        super().__init__(rows, adorned=adorned)
        self.tasks = tasks
        self.label = f"{self.label}, {tasks} tasks"

    def work(self) -> dict[str, float]:
        """See :class:`bench.spark.contestant.OnSpark`."""
        with scratch() as broker:
            broker.create_queue(QUEUE, **numbered.queue_options(1))
            schema = reading(broker.namespace, adorned=self.adorned).schema
        reader = begin().read.format("bench-empty").schema(schema)
        frame = reader.options(rows=self.rows, tasks=self.tasks).load()
        return {"rate": self.rows * 1e9 / time_of(frame)}


def reading(namespace: str, name: str = QUEUE, *, adorned: bool = False) -> DataFrame:
    """The queue or stream as a frame."""
    reader = begin().read.format("shmq").option("url", namespace)
    return reader.options(subscribe=name, includeHeaders=adorned).load()


def time_of(frame: DataFrame) -> int:
    """The time until Spark has every column of every row, in ns."""
    begun = now()
    frame.write.format("noop").mode("overwrite").save()
    return now() - begun
