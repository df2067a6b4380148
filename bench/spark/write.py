"""Rows that Spark writes to a queue, and to a sink that drops them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.machine import now
from bench.row import Role
from bench.scratch import scratch
from bench.spark import numbered
from bench.spark.contestant import Adorned, OnSpark
from bench.spark.figures import SIZE
from bench.spark.peek import QUEUE, reading
from bench.spark.session import begin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.readwriter import DataFrameWriter

#: The queue that is written to.
TARGET = "target"


class WriteBack(Adorned):
    """All messages of a queue, read and written to another queue."""

    name = "a queue, read and written back"

    def work(self) -> dict[str, float]:
        """See :class:`bench.spark.contestant.OnSpark`."""
        with scratch() as broker:
            options = numbered.queue_options(self.rows, adorned=self.adorned)
            broker.create_queue(QUEUE, **options)
            broker.create_queue(TARGET, **options)
            numbered.fill(broker.namespace, QUEUE, self.rows, adorned=self.adorned)
            taken = time_of(
                self.writer(written(broker.namespace, QUEUE, self.adorned), broker.namespace)
            )
            self.check(broker.namespace)
        return {"rate": self.rows * 1e9 / taken}

    def writer(self, rows: DataFrame, namespace: str) -> DataFrameWriter:
        """What writes the rows."""
        return to_shmq(rows, namespace, **numbered.staging_options(self.rows, adorned=self.adorned))

    def check(self, namespace: str) -> None:
        """Raise Failed unless all rows were written."""
        numbered.check(reading(namespace, TARGET), self.rows)


class WriteNothing(WriteBack):
    """The same rows, written to a Python sink that drops each Arrow batch."""

    name = "a queue, read and written to a Python sink that drops the batches"
    role: Role = "harness"

    def writer(self, rows: DataFrame, namespace: str) -> DataFrameWriter:
        """See :class:`WriteBack`."""
        del namespace
        return rows.write.format("bench-empty")

    def check(self, namespace: str) -> None:
        """Nothing was written."""


class Write(OnSpark):
    """Rows that Spark itself has made."""

    label = "rows of Spark's own, written"

    def work(self) -> dict[str, float]:
        """See :class:`bench.spark.contestant.OnSpark`."""
        with scratch() as broker:
            broker.create_queue(TARGET, **numbered.queue_options(self.rows))
            staging = numbered.staging_options(self.rows)
            taken = time_of(to_shmq(_made(self.rows), broker.namespace, **staging))
            numbered.drain(broker.namespace, TARGET, self.rows)
        return {"rate": self.rows * 1e9 / taken}


def written(namespace: str, name: str, adorned: bool) -> DataFrame:
    """The rows of a queue or stream, with the columns that are written back."""
    columns = ["key", "headers"] if adorned else []
    return reading(namespace, name, adorned=adorned).select("value", *columns)


def to_shmq(rows: DataFrame, namespace: str, **options: int) -> DataFrameWriter:
    """The write of the rows to the target."""
    return rows.write.format("shmq").options(url=namespace, topic=TARGET, **options)


def time_of(writer: DataFrameWriter) -> int:
    """The time until all rows are written, in ns."""
    begun = now()
    writer.mode("append").save()
    return now() - begun


def _made(rows: int) -> DataFrame:
    from pyspark.sql import functions

    session = begin()  # functions need one
    digits = functions.lpad(functions.col("id").cast("string"), numbered.DIGITS, "0")
    filler = functions.lit(numbered.FILLER[: SIZE - numbered.DIGITS].decode())
    value = functions.concat(digits, filler).cast("binary").alias("value")
    return session.range(rows, numPartitions=2).select(value)
