"""A job: its name, the tables of its file, its work in a session, and its progress.

A stream builds the writer of one streaming query. The runner sets the query's checkpoint and
trigger, and starts, watches and stops it. A batch does its work in one call and ends.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import json
import uuid
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self

from shmq.errors import Unsupported
from shmq.spark.jobs.config import Config, Table, template
from shmq.spark.jobs.filesystem import Folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = [
    "ABOUT",
    "Batch",
    "Job",
    "Progress",
    "Put",
    "SingleBatch",
    "Stream",
    "each_batch",
    "load",
]


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

    def after(self, told: Mapping[str, Any]) -> Self:
        """The progress after another batch, given Spark's progress JSON."""
        seconds = told["durationMs"].get("triggerExecution", 0) / 1000
        rows = sum(source["numInputRows"] for source in told["sources"])
        counts = dict(self.counts)
        for metrics in (told.get("observedMetrics") or {}).values():
            for name, value in metrics.items():
                counts[name] = counts.get(name, 0) + int(value or 0)
        return dataclasses.replace(
            self,
            batch=told["batchId"],
            rows=self.rows + rows,
            rate=rows / seconds if seconds else 0.0,
            backlog=_backlog(told),
            seconds=seconds,
            counts=counts,
        )


def _backlog(told: Mapping[str, Any]) -> int | None:
    """The rows that the sources report as unread."""
    known = [
        int(metrics["backlog"])
        for source in told["sources"]
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


#: The file of a checkpoint that has the name of rows that are read once.
_NAME: Final = "once.json"

#: Writes the rows of a batch, given the query's id and the batch's number. After a crash it is
#: called again with the same arguments, and must not add anything twice.
Put = Callable[["DataFrame", str, int], None]


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
        """Write the rows. With the same checkpoint it is the same batch again, and adds nothing."""
        from pyspark.sql import Observation, functions  # noqa: PLC0415 - heavy, and an extra

        folder = Folder(session, checkpoint)
        folder.write_json(_NAME, {"id": str(uuid.uuid4())})
        seen = Observation()
        counted = self.rows.observe(seen, functions.count(functions.lit(1)).alias("rows"))
        self.put(counted, folder.read_json(_NAME)["id"], 0)
        return Progress(batch=0, rows=int(seen.get["rows"]))


def _nothing_to_check(_: Config) -> None:
    """The check of a job whose tables check everything."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The base of both kinds of job."""

    name: str
    #: What it does, in one line.
    about: str
    #: The tables of its file, in the order of the template.
    tables: tuple[Table, ...]
    #: Checks what no table can express, such as keys that exclude each other; without a session.
    #: Raises :meth:`Config.wrong <shmq.spark.jobs.config.Config.wrong>`.
    check: Callable[[Config], None] = _nothing_to_check

    def template(self) -> str:
        """A file to start with: each key with its purpose and its default."""
        return f"# shmq pipeline {self.name}: {self.about}\n\n{template(self.tables)}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stream(Job):
    """A job that runs until it is stopped, batch after batch, each exactly once.

    Its tables include those of :data:`shmq.spark.jobs.tables.STREAM`.
    """

    #: The writer of the query, without checkpoint, trigger and name, which the runner sets; or
    #: finite rows, which are written once.
    build: Callable[[SparkSession, Config], DataStreamWriter | SingleBatch]
    #: Called after the query has ended on its own without failing.
    finish: Callable[[SparkSession, Config], None] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Batch(Job):
    """A job that ends on its own.

    ``run`` reports its progress now and then. When ``stopping()`` is true, it returns at a
    point from which a later start can continue.
    """

    run: Callable[[SparkSession, Config, Callable[[Progress], None], Callable[[], bool]], None]


#: What each job does, in one line. Its module defines it as ``JOB``.
ABOUT: Final = MappingProxyType(
    {
        "replay": "Put messages from Parquet or .dmsq files in a queue.",
        "archive": "Write each message of queues to Parquet, once.",
        "transform": "Run a Python function between a source and a sink.",
        "aggregate": "Count messages, rates and sizes per window of time.",
        "triage": "Group dead letters by kind, to redrive each kind.",
    }
)


def load(name: str) -> Job:
    """The job of that name. Raises :class:`~shmq.Unsupported` without PySpark."""
    if importlib.util.find_spec("pyspark") is None:
        raise Unsupported("a pipeline runs on Spark: pip install 'shmq[spark]'")
    job = importlib.import_module(f"shmq.spark.jobs.{name}").JOB
    assert isinstance(job, Job)
    return job
