"""A job: its name, the structs of its file, its work in a session, and its progress.

A stream builds the writer of one streaming query. The runner sets the query's checkpoint and
trigger, and starts, watches and stops it. A batch does its work in one call and ends.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from shmq.spark.jobs import config as files
from shmq.spark.jobs.filesystem import Folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from shmq.spark.jobs.sinks import Put

#: The name of the observation that counts what was read, of jobs that read a batch twice.
SOURCE: Final = "source"

#: The file of a checkpoint that has the name of rows that are read once.
_NAME: Final = "once.json"

C = TypeVar("C", bound=files.Base)
S = TypeVar("S", bound=files.StreamBase)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a job has done since its start."""

    #: The newest finished batch; None for a job without batches.
    batch: int | None = None
    #: Rows since the start.
    rows: int = 0
    #: Rows per second in the newest batch.
    rate: float = 0.0
    #: Rows still to be read; None if unknown.
    backlog: int | None = None
    #: How long the newest batch took, in seconds.
    seconds: float = 0.0
    #: The job's other counts, by name.
    counts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    #: What the write of the current batch waits for; empty: for nothing.
    waiting: str = ""

    def after(self, progress: Mapping[str, Any]) -> Self:
        """The progress after another batch, given Spark's progress JSON."""
        seconds = progress["durationMs"].get("triggerExecution", 0) / 1000
        observed = dict(progress.get("observedMetrics") or {})
        counted = observed.pop(SOURCE, None)
        rows = sum(source["numInputRows"] for source in progress["sources"])
        if counted is not None:
            rows = int(counted["rows"] or 0)
        counts = dict(self.counts)
        for metrics in observed.values():
            for name, value in metrics.items():
                counts[name] = counts.get(name, 0) + int(value or 0)
        return dataclasses.replace(
            self,
            batch=progress["batchId"],
            rows=self.rows + rows,
            rate=rows / seconds if seconds else 0.0,
            backlog=_count_backlog(progress),
            seconds=seconds,
            counts=counts,
        )


def _count_backlog(progress: Mapping[str, Any]) -> int | None:
    """The rows that the sources report as unread."""
    known = [
        int(metrics["backlog"])
        for source in progress["sources"]
        if "backlog" in (metrics := _map(source.get("latestOffset")))
    ]
    return sum(known) if known else None


def _map(value: Any) -> Mapping[str, Any]:
    """The value as a map, parsed if it is JSON text; empty if it is not a map."""
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def counted(rows: DataFrame) -> DataFrame:
    """The rows, counted for the progress: of a batch that Spark reads more than once."""
    from pyspark.sql import functions  # noqa: PLC0415 - heavy, and an extra

    return rows.observe(SOURCE, functions.count(functions.lit(1)).alias("rows"))


def each_batch(rows: DataFrame, put: Put) -> DataStreamWriter:
    """The writer of a query that passes its batches to ``put``."""

    def handle(batch: DataFrame, number: int) -> None:
        context = batch.sparkSession.sparkContext
        put(batch, str(context.getLocalProperty("sql.streaming.queryId")), number)

    return rows.writeStream.foreachBatch(handle)


@dataclasses.dataclass(frozen=True, slots=True)
class SingleBatch:
    """Finite rows, written as one batch with number 0 and a name of its own."""

    rows: DataFrame
    put: Put

    def run(self, session: SparkSession, checkpoint: str) -> Progress:
        """Write the rows. With the same checkpoint it is the same batch again."""
        folder = Folder(session, checkpoint)
        if not folder.exists(_NAME):
            folder.write_json(_NAME, {"id": str(uuid.uuid4())})
        rows = self.rows.persist()
        try:
            count = rows.count()  # also if the sink has the batch already
            self.put(rows, folder.read_json(_NAME)["id"], 0)
        finally:
            rows.unpersist()
        return Progress(batch=0, rows=count)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job(Generic[C]):
    """The base of both kinds of job."""

    #: One of :data:`shmq.spark.jobs.catalog.ABOUT`.
    name: str
    #: The struct of its file.
    config: type[C]

    def read(self, path: Path, place: Mapping[str, str] = files.NOWHERE) -> C:
        """The checked file. Raises :class:`~shmq.InvalidOption`."""
        return files.read(path, self.config, place)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stream(Job[S]):
    """A job that runs until it is stopped, batch after batch."""

    #: The writer of the query, without checkpoint, trigger and name, which the runner sets; or
    #: finite rows, which are written once. The text is the path of the stop file for the source.
    build: Callable[[SparkSession, S, str], DataStreamWriter | SingleBatch]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Batch(Job[C]):
    """A job that ends on its own.

    ``run`` reports its progress now and then. When ``stopping()`` is true, it returns at a
    point from which a later start can continue.
    """

    run: Callable[[SparkSession, C, Callable[[Progress], None], Callable[[], bool]], None]
