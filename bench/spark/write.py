"""Rows that Spark writes to a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.machine import now
from bench.scratch import scratch
from bench.spark import numbered
from bench.spark.contestant import OnSpark
from bench.spark.figures import SIZE
from bench.spark.peek import QUEUE, reading
from bench.spark.session import begin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The queue that is written to.
TARGET = "target"


class WriteBack(OnSpark):
    """All messages of a queue, read and written to another queue."""

    label = "a queue, read and written back"

    def work(self) -> dict[str, float]:
        """See :class:`bench.spark.contestant.OnSpark`."""
        with scratch() as broker:
            options = numbered.queue_options(self.rows)
            broker.create_queue(QUEUE, **options)
            broker.create_queue(TARGET, **options)
            numbered.fill(broker.namespace, QUEUE, self.rows)
            rows = reading(broker.namespace).select("value")
            taken = _write(rows, broker.namespace)
            numbered.drain(broker.namespace, TARGET, self.rows)
        return {"rate": self.rows * 1e9 / taken}


class Write(OnSpark):
    """Rows that Spark itself has made."""

    label = "rows of Spark's own, written"

    def work(self) -> dict[str, float]:
        """See :class:`bench.spark.contestant.OnSpark`."""
        with scratch() as broker:
            broker.create_queue(TARGET, **numbered.queue_options(self.rows))
            taken = _write(_made(self.rows), broker.namespace)
            numbered.drain(broker.namespace, TARGET, self.rows)
        return {"rate": self.rows * 1e9 / taken}


def _made(rows: int) -> DataFrame:
    from pyspark.sql import functions

    digits = functions.lpad(functions.col("id").cast("string"), numbered.DIGITS, "0")
    filler = functions.lit(numbered.FILLER[: SIZE - numbered.DIGITS].decode())
    value = functions.concat(digits, filler).cast("binary").alias("value")
    return begin().range(rows, numPartitions=2).select(value)


def _write(rows: DataFrame, namespace: str) -> int:
    """The time until all messages are ready to be consumed, in ns."""
    writer = rows.write.format("shmq").option("url", namespace).option("topic", TARGET)
    begun = now()
    writer.mode("append").save()
    return now() - begun
