"""Converting the files of a queue to Parquet, and Parquet to Parquet."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bench.disk.folder import scratch_folder
from bench.disk.writer import QUEUE, kept
from bench.machine import now
from bench.row import Role
from bench.spark import numbered
from bench.spark.contestant import OnSpark
from bench.spark.session import CORES, begin
from bench.stage import Failed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Longer than any run: a snapshot is made only on request.
NEVER = 1e6


class Dmsq(OnSpark):
    """A snapshot of the queue, every column of it."""

    label = 'format("dmsq") to Parquet'

    def work(self) -> dict[str, float]:
        """See :class:`bench.spark.contestant.OnSpark`."""
        with snapshot(self.rows) as data, scratch_folder() as folder:
            taken = _copy("dmsq", data, folder / "copy")
            numbered.check(begin().read.parquet(str(folder / "copy")), self.rows)
        return {"rate": self.rows * 1e9 / taken}


class Parquet(OnSpark):
    """The same rows and columns, read from Parquet."""

    label = "Spark's Parquet to Parquet"
    role: Role = "peer"

    def work(self) -> dict[str, float]:
        """See :class:`bench.spark.contestant.OnSpark`."""
        with scratch_folder() as folder:
            with snapshot(self.rows) as data:
                _copy("dmsq", data, folder / "rows")
            taken = _copy("parquet", folder / "rows", folder / "copy")
            numbered.check(begin().read.parquet(str(folder / "copy")), self.rows)
        return {"rate": self.rows * 1e9 / taken}


class Ready(OnSpark):
    """The same columns from a Python source that repeats one ready Arrow batch.

    Its values are all alike, which Parquet encodes faster: no Python source can be as fast.
    """

    label = "a Python source of ready Arrow batches to Parquet"
    role: Role = "harness"
    note = "the same columns and number of tasks; it reads nothing"

    def work(self) -> dict[str, float]:
        """See :class:`bench.spark.contestant.OnSpark`."""
        with snapshot(1) as data:
            schema = begin().read.format("dmsq").load(str(data)).schema
        with scratch_folder() as folder:
            source = begin().read.format("bench-empty").schema(schema)
            frame = source.options(rows=self.rows, tasks=CORES).load()
            taken = _time_of(frame, folder / "copy")
            found = begin().read.parquet(str(folder / "copy")).count()
            if found != self.rows:
                raise Failed(f"{found} rows were written, not {self.rows}")
        return {"rate": self.rows * 1e9 / taken}


@contextlib.contextmanager
def snapshot(rows: int) -> Iterator[Path]:
    """The folder with the files of a queue of that many values."""
    from shmq.disk.storage.writer_control import ask_for_snapshots

    options = numbered.queue_options(rows)
    with kept(durability="snapshot", snapshot_interval=NEVER, **options) as made:
        numbered.fill(made.name, QUEUE, rows)
        made.writer.listens()
        for queue, error in ask_for_snapshots(made.writer.data, [QUEUE]):
            if error is not None:
                raise Failed(f"there is no snapshot of {queue}: {error}")
        yield made.writer.data


def _copy(kind: str, source: Path, target: Path) -> int:
    return _time_of(begin().read.format(kind).load(str(source)), target)


def _time_of(frame: DataFrame, target: Path) -> int:
    """The time to write the rows to the target as Parquet, in ns."""
    begun = now()
    frame.write.parquet(str(target))
    return now() - begun
