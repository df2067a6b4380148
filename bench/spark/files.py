"""Converting the files of a queue to Parquet, and Parquet to Parquet."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from bench.disk.folder import scratch_folder
from bench.disk.writer import QUEUE, kept
from bench.machine import now
from bench.row import Role
from bench.spark import numbered
from bench.spark.contestant import OnSpark
from bench.spark.session import begin
from bench.stage import Failed

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


@contextlib.contextmanager
def snapshot(rows: int) -> Iterator[Path]:
    """The folder with the files of a queue of that many values."""
    from shmq.storage.writer_control import ask_for_snapshots

    options = numbered.queue_options(rows)
    with kept(durability="snapshot", snapshot_interval=NEVER, **options) as made:
        numbered.fill(made.name, QUEUE, rows)
        made.writer.listens()
        for queue, error in ask_for_snapshots(made.writer.data, [QUEUE]):
            if error is not None:
                raise Failed(f"there is no snapshot of {queue}: {error}")
        yield made.writer.data


def _copy(kind: str, source: Path, target: Path) -> int:
    """The time to write the rows to the target as Parquet, in ns."""
    frame = begin().read.format(kind).load(str(source))
    begun = now()
    frame.write.parquet(str(target))
    return now() - begun
