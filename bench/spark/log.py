"""Streams of numbered values: read, archived, and written back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import shmq
from bench.disk.folder import scratch_folder
from bench.machine import now
from bench.scratch import scratch
from bench.spark import numbered
from bench.spark.contestant import OnSpark
from bench.spark.figures import MORE_ROWS, RATE, SIZE, WHOLE
from bench.spark.peek import time_of
from bench.spark.session import begin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SOURCE, TARGET = "source", "target"
PARTITIONS: Final = 4
#: Records of one append.
AT_ONCE: Final = 1000
#: The most bytes of a record in addition to its value.
FRAME: Final = 80


class _OfStreams(OnSpark):
    """The base of the contestants on streams."""

    def make(self, broker: shmq.Broker, name: str) -> shmq.Stream:
        """A stream with room for all rows in each partition, however they are distributed."""
        room = max(1 << 20, self.rows * (SIZE + FRAME) // PARTITIONS * 3 // 2)
        return broker.create_stream(name, PARTITIONS, ring_bytes=room)

    def filled(self, broker: shmq.Broker) -> shmq.Stream:
        """A stream with the values, the same number of them in each partition."""
        stream = self.make(broker, SOURCE)
        for first in range(0, self.rows, AT_ONCE):
            last = min(self.rows, first + AT_ONCE)
            partition = first // AT_ONCE % PARTITIONS
            stream.append_many([numbered.value(n) for n in range(first, last)], partition=partition)
        return stream


class Read(_OfStreams):
    """The seven columns of every record."""

    label = 'format("shmq"), batch of a stream'
    note = f"{PARTITIONS} partitions, every column"

    def __init__(self) -> None:
        super().__init__(MORE_ROWS)

    def work(self) -> dict[str, float]:
        """See :class:`bench.spark.contestant.OnSpark`."""
        with scratch() as broker:
            self.filled(broker)
            frame = _reading(broker.namespace, SOURCE)
            taken = time_of(frame)
            numbered.check(frame, self.rows)
        return {"rate": self.rows * 1e9 / taken}


class ArchiveStream(_OfStreams):
    """All records of a stream, written to Parquet by a query."""

    label = "readStream of a stream, Parquet"
    note = f"{PARTITIONS} partitions; while a batch runs, its planning and commit included"

    def __init__(self) -> None:
        super().__init__(MORE_ROWS)

    def work(self) -> dict[str, float]:
        """See :class:`bench.spark.contestant.OnSpark`."""
        with scratch() as broker, scratch_folder() as folder:
            self.filled(broker)
            reader = begin().readStream.format("shmq").option("url", broker.namespace)
            rows = reader.options(subscribe=SOURCE, startingOffsets="earliest").load()
            writer = rows.writeStream.format("parquet").option("path", str(folder / "rows"))
            writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
            begun = now()
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            taken = now() - begun
            numbered.check(begin().read.parquet(str(folder / "rows")), self.rows)
            batches = [each for each in query.recentProgress if each.numInputRows]
        ran = sum(each.durationMs["triggerExecution"] for each in batches)
        return {RATE.key: self.rows * 1e3 / ran, WHOLE.key: self.rows * 1e9 / taken}


class Copy(_OfStreams):
    """All records of a stream, read and written to another stream."""

    label = "a stream, read and written back"
    note = f"{PARTITIONS} partitions each, as idempotent producers"

    def work(self) -> dict[str, float]:
        """See :class:`bench.spark.contestant.OnSpark`."""
        with scratch() as broker:
            self.filled(broker)
            self.make(broker, TARGET)
            rows = _reading(broker.namespace, SOURCE).select("key", "value")
            writer = rows.write.format("shmq").options(url=broker.namespace, topic=TARGET)
            begun = now()
            writer.mode("append").save()
            taken = now() - begun
            numbered.check(_reading(broker.namespace, TARGET), self.rows)
        return {"rate": self.rows * 1e9 / taken}


def _reading(namespace: str, stream: str) -> DataFrame:
    reader = begin().read.format("shmq").option("url", namespace)
    return reader.option("subscribe", stream).load()
