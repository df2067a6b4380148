"""The definition of a job: a name, the tables of its file, and its work in a session.

A stream builds the writer of one streaming query. The runner sets the query's checkpoint and
trigger, and starts, watches and stops it. A batch does its work in one call and ends.
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
