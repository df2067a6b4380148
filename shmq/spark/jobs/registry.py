"""The jobs there are, by name; each is imported when it is asked for, with PySpark."""

from __future__ import annotations

import importlib
import importlib.util
from types import MappingProxyType
from typing import Final

from shmq.errors import Unsupported
from shmq.spark.jobs.job import Job

__all__ = ["ABOUT", "load"]

#: What each job does, in a line. Its module has it as ``JOB``.
ABOUT: Final = MappingProxyType(
    {
        "replay": "Parquet or .dmsq files to a queue, by time and filter, at a chosen rate.",
        "archive": "Queues to Parquet, by name and date, each message once.",
        "transform": "A function of yours between any source and any sink.",
        "aggregate": "Counts, rates, latencies and sizes by window of time; and what is hot.",
        "triage": "Dead letters by kind, and the expression that sends each kind back.",
    }
)


def load(name: str) -> Job:
    """The job of that name. Raises :class:`~shmq.Unsupported` where there is no PySpark."""
    if importlib.util.find_spec("pyspark") is None:
        raise Unsupported("a pipeline runs on Spark: pip install 'shmq[spark]'")
    job = importlib.import_module(f"shmq.spark.jobs.{name}").JOB
    assert isinstance(job, Job)
    return job
