"""The jobs by name. A job is imported, together with PySpark, when it is first used."""

from __future__ import annotations

import importlib
import importlib.util
from types import MappingProxyType
from typing import Final

from shmq.errors import Unsupported
from shmq.spark.jobs.job import Job

__all__ = ["ABOUT", "load"]

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
