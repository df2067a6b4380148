"""``compact``: merges the small files of an archive into large ones, as its next version."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final

import msgspec

from shmq.errors import InvalidOption
from shmq.spark.jobs.config import Base, Table, key
from shmq.spark.jobs.endpoints import FILES
from shmq.spark.jobs.job import Batch, Progress
from shmq.spark.jobs.table import FileTable, setting
from shmq.spark.jobs.values import Location, Options, Size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: How large Spark lets a part of the rows become, which is a file then.
_SIZE: Final = "spark.sql.adaptive.advisoryPartitionSizeInBytes"


class Files(Table, frozen=True, kw_only=True):
    """What is compacted."""

    path: Annotated[Location, key("The folder that a job writes: its sink's path.", "archive")]
    format: Annotated[str, key("The format of its files.")] = "parquet"
    size: Annotated[Size, key("About how large a file becomes.", "128MiB")] = Size(128 << 20)
    options: Annotated[Options, key("The options of the format.")] = msgspec.field(
        default_factory=Options
    )


class Compact(Base, frozen=True, kw_only=True):
    """The file of the job."""

    table: Annotated[Files, key("What is compacted.")]

    def check(self) -> None:
        """Check that the format is one of files."""
        if self.table.format not in FILES:
            raise InvalidOption(
                f"format = {self.table.format!r} in [table] must be one of "
                f"{', '.join(sorted(FILES))}: another format has a compaction of its own"
            )


def run(
    session: SparkSession,
    config: Compact,
    report: Callable[[Progress], None],
    _: Callable[[], bool],
) -> None:
    """Write the next version of the table."""
    table = config.table
    began = time.monotonic()
    with setting(session, _SIZE, f"{table.size}b"):
        opened = FileTable(session, table.path, table.format, table.options)
        rows = opened.compact(session)
    seconds = time.monotonic() - began
    report(Progress(rows=rows, rate=rows / seconds, seconds=seconds))


JOB: Final = Batch(name="compact", config=Compact, run=run)
