"""What a job is: a name, the tables of its file, and what it does with a session.

A stream builds the writer of one streaming query, which the runner gives its checkpoint and
its trigger, starts, watches and stops. A batch does its work in one call, and ends.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

from shmq.spark.jobs.batches import SingleBatch
from shmq.spark.jobs.config import Config, Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from shmq.spark.jobs.progress import Progress

__all__ = ["Batch", "Job", "Stream"]


def _nothing_to_check(_: Config) -> None:
    """The tables say all."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What both kinds of job have."""

    name: str
    #: What it does, in a line.
    about: str
    #: The tables of its file, in the order in which they stand in the one to begin with.
    tables: tuple[Table, ...]
    #: Checks what no table can say, such as keys that exclude each other; without a session.
    #: Raises :meth:`Config.wrong <shmq.spark.jobs.config.Config.wrong>`.
    check: Callable[[Config], None] = _nothing_to_check


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stream(Job):
    """A job that goes on until it is stopped, batch after batch, each exactly once.

    Its tables have those of :data:`shmq.spark.jobs.tables.STREAM` among them.
    """

    #: The writer of the query, without checkpoint, trigger and name, which the runner sets; or
    #: rows that are no stream, and are done once.
    build: Callable[[SparkSession, Config], DataStreamWriter | SingleBatch]
    #: Called once the query has ended by itself, and did not fail.
    finish: Callable[[SparkSession, Config], None] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Batch(Job):
    """A job that ends by itself.

    ``run`` reports its progress now and then, and returns when ``stopping()`` is true at a
    point where it can go on when it is started again.
    """

    run: Callable[[SparkSession, Config, Callable[[Progress], None], Callable[[], bool]], None]
