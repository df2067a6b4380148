"""Streams of numbered values: read, archived, and written back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import shmq
from bench.disk.folder import scratch_folder
from bench.machine import now
from bench.row import Role
from bench.scratch import scratch
from bench.spark import numbered, peek
from bench.spark.contestant import Adorned
from bench.spark.figures import MORE_ROWS, RATE, SIZE, WHOLE
from bench.spark.session import begin
from bench.spark.stream import archiving
from bench.spark.write import TARGET, time_of, to_shmq, written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.readwriter import DataFrameWriter

SOURCE = "source"
PARTITIONS: Final = 4
#: Records of one append.
AT_ONCE: Final = 1000
#: The most bytes of a record in addition to its value.
FRAME: Final = 80
#: The most bytes of a key and of two headers.
ADORNED: Final = 80


class _OfStreams(Adorned):
    """The base of the contestants on streams."""

    def make(self, broker: shmq.Broker, name: str) -> shmq.Stream:
        """A stream with room for all rows in each partition, however they are distributed."""
        size = SIZE + FRAME + ADORNED * self.adorned
        room = max(1 << 20, self.rows * size // PARTITIONS * 3 // 2)
        return broker.create_stream(name, PARTITIONS, ring_bytes=room)

    def filled(self, broker: shmq.Broker) -> shmq.Stream:
        """A stream with the values, the same number of them in each partition."""
        stream = self.make(broker, SOURCE)
        for first in range(0, self.rows, AT_ONCE):
            numbers = range(first, min(self.rows, first + AT_ONCE))
            partition = first // AT_ONCE % PARTITIONS
            values = [numbered.value(n) for n in numbers]
            if self.adorned:
                keys, headers = map(numbered.key, numbers), map(numbered.headers, numbers)
                stream.append_many(values, keys=[*keys], headers=[*headers], partition=partition)
            else:
                stream.append_many(values, partition=partition)
        return stream


class Read(_OfStreams):
    """The seven columns of every record."""

    name = 'format("shmq"), batch of a stream'
    note = f"{PARTITIONS} partitions, Kafka's seven columns"

    def work(self) -> dict[str, float]:
        """See :class:`bench.spark.contestant.OnSpark`."""
        with scratch() as broker:
            self.filled(broker)
            frame = peek.reading(broker.namespace, SOURCE, adorned=self.adorned)
            taken = peek.time_of(frame)
            numbered.check(frame, self.rows)
        return {"rate": self.rows * 1e9 / taken}


class ArchiveStream(_OfStreams):
    """All records of a stream, written to Parquet by a query."""

    name = "readStream of a stream, Parquet"
    note = f"{PARTITIONS} partitions; while a batch runs, its planning and commit included"

    def __init__(self) -> None:
        super().__init__(MORE_ROWS)

    def work(self) -> dict[str, float]:
        """See :class:`bench.spark.contestant.OnSpark`."""
        with scratch() as broker, scratch_folder() as folder:
            self.filled(broker)
            begun = now()
            query = archiving(
                broker.namespace, folder, available_now=True, subscribe=SOURCE,
                startingOffsets="earliest", maxOffsetsPerTrigger=self.rows,
            )  # fmt: skip
            query.awaitTermination()
            taken = now() - begun
            numbered.check(begin().read.parquet(str(folder / "rows")), self.rows)
            batches = [each for each in query.recentProgress if each.numInputRows]
        ran = sum(each.durationMs["triggerExecution"] for each in batches)
        return {RATE.key: self.rows * 1e3 / ran, WHOLE.key: self.rows * 1e9 / taken}


class Copy(_OfStreams):
    """All records of a stream, read and written to another stream."""

    name = "a stream, read and written back"
    note = f"{PARTITIONS} partitions each, as idempotent producers"

    def work(self) -> dict[str, float]:
        """See :class:`bench.spark.contestant.OnSpark`."""
        with scratch() as broker:
            self.filled(broker)
            self.make(broker, TARGET)
            rows = written(broker.namespace, SOURCE, self.adorned)
            taken = time_of(self.writer(rows, broker.namespace))
            self.check(broker.namespace)
        return {"rate": self.rows * 1e9 / taken}

    def writer(self, rows: DataFrame, namespace: str) -> DataFrameWriter:
        """What writes the rows."""
        return to_shmq(rows, namespace)

    def check(self, namespace: str) -> None:
        """Raise Failed unless all rows were written."""
        numbered.check(peek.reading(namespace, TARGET), self.rows)


class CopyNothing(Copy):
    """The same rows, written to a Python sink that drops each Arrow batch."""

    name = "a stream, read and written to a Python sink that drops the batches"
    role: Role = "harness"

    def writer(self, rows: DataFrame, namespace: str) -> DataFrameWriter:
        """See :class:`Copy`."""
        del namespace
        return rows.write.format("bench-empty")

    def check(self, namespace: str) -> None:
        """Nothing was written."""
