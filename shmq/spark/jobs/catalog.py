"""The list of jobs. Importing it imports nothing that an extra installs."""

from __future__ import annotations

import importlib
import importlib.util
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from shmq.errors import Unsupported

if TYPE_CHECKING:
    from shmq.spark.jobs.job import Job

#: What each job does, in one line. Its module defines it as ``JOB``.
ABOUT: Final = MappingProxyType(
    {
        "replay": "Put messages from files in a queue, or in any format.",
        "archive": "Write each message of queues to files, once.",
        "compact": "Merge the small files of an archive into large ones.",
        "transform": "Run a Python function between a source and a sink.",
        "aggregate": "Count messages, rates and sizes per window of time.",
        "triage": "Group dead letters by kind, to redrive each kind.",
    }
)


def load(name: str) -> Job[Any]:
    """The job of that name. Raises :class:`~shmq.Unsupported` without the extra."""
    for package in ("pyspark", "msgspec"):
        if importlib.util.find_spec(package) is None:
            raise Unsupported("a pipeline runs on Spark: pip install 'shmq[spark]'")
    job: Job[Any] = importlib.import_module(f"shmq.spark.jobs.{name}").JOB
    return job


def template(name: str) -> str:
    """A file to start the job with: each key with its purpose and its default.

    Raises :class:`~shmq.Unsupported` without the extra.
    """
    job = load(name)
    from shmq.spark.jobs import config  # noqa: PLC0415 - of the extra

    return f"# shmq pipeline {name}: {ABOUT[name]}\n\n{config.template(job.config)}"
