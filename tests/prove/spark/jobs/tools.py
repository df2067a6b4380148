"""What the tests of jobs share: a file for a job, and running it as the command does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shmq.spark.jobs import job as jobs
from shmq.spark.jobs.config import read
from shmq.spark.jobs.job import Progress
from shmq.spark.jobs.runner import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def written(folder: Path, text: str) -> Path:
    """A job's file of that text."""
    path = folder / "job.toml"
    path.write_text(text)
    return path


def run_job(session: SparkSession, name: str, path: Path) -> Progress:
    """Run the job of the file to its end, in this process."""
    job = jobs.load(name)
    config = read(path, job.tables)
    job.check(config)
    return run(job, config, session, lambda _: None, lambda: False)
