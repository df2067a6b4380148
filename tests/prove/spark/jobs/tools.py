"""What the tests of jobs share: a file for a job, running it, and reading what it wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from shmq.spark.jobs import catalog
from shmq.spark.jobs.archive import Archive
from shmq.spark.jobs.endpoints import FileSink, StreamSource
from shmq.spark.jobs.job import Progress
from shmq.spark.jobs.runner import run
from shmq.spark.jobs.values import Location, Options, Trigger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def written(folder: Path, text: str) -> Path:
    """A job's file of that text."""
    path = folder / "job.toml"
    path.write_text(text)
    return path


def run_job(session: SparkSession, name: str, path: Path) -> Progress:
    """Run the job of the file to its end, in this process."""
    job = catalog.load(name)
    return run(job, job.read(path), session, lambda _: None, lambda: False)


def current(folder: Path) -> Path:
    """The current version of a table of files, as docs/integrate/pipeline.md says it is found."""
    return folder / str(json.loads((folder / "_current.json").read_text())["path"])


def rows_of(session: SparkSession, folder: Path) -> DataFrame:
    """The rows of a table of files, through Spark."""
    return session.read.parquet(str(current(folder)))


def settings(checkpoint: Path | str, source: StreamSource, seconds: float = 0.0) -> Archive:
    """The settings of a stream from that source."""
    return Archive(
        checkpoint=Location(checkpoint),
        trigger=Trigger(seconds),
        source=source,
        sink=FileSink(path=Location("nowhere")),
    )


def queue_of(namespace: str) -> StreamSource:
    """Ten messages a batch."""
    options = {"url": namespace, "subscribe": "in", "maxOffsetsPerTrigger": "10"}
    return StreamSource(options=Options(options))
