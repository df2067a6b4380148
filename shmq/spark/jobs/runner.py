"""Runs a job: starts it, reports its progress, and stops it between batches."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from shmq.errors import ShmqError
from shmq.spark.jobs.batches import SingleBatch
from shmq.spark.jobs.config import Config
from shmq.spark.jobs.failure import failure_of
from shmq.spark.jobs.filesystem import Folder
from shmq.spark.jobs.job import Batch, Job, Stream
from shmq.spark.jobs.master import reach
from shmq.spark.jobs.progress import Progress
from shmq.spark.jobs.stopping import stop_after_batch
from shmq.spark.jobs.tables import AVAILABLE_NOW
from shmq.spark.session import session as make_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["run", "started"]

#: How often a stream is asked for its progress, in seconds.
_GLANCE: Final = 0.2

Report = Callable[[Progress], None]
Stopping = Callable[[], bool]


def started(job: Job, config: Config) -> SparkSession:
    """The session that a job's file configures.

    Raises a one-line :class:`~shmq.ShmqError` if it does not start.
    """
    settings = config["spark"]
    reach(settings["master"])
    try:
        return make_session(f"shmq {job.name}", master=settings["master"], conf=settings["options"])
    except ShmqError:
        raise
    except Exception as error:
        raise failure_of(error) from error


def run(
    job: Job, config: Config, session: SparkSession, report: Report, stopping: Stopping
) -> Progress:
    """Run the job to its end or until ``stopping()`` is true, and return its progress.

    A stream stops after its current batch; its next start continues after that batch. After a
    crash the interrupted batch is repeated, and counts once. Raises a one-line
    :class:`~shmq.ShmqError` for a failure at the driver or an executor.
    """
    told = [Progress()]

    def tell(progress: Progress) -> None:
        told[0] = progress
        report(progress)

    try:
        if isinstance(job, Stream):
            _stream(job, config, session, tell, stopping)
        else:
            assert isinstance(job, Batch)
            job.run(session, config, tell, stopping)
    except ShmqError:
        raise
    except Exception as error:
        raise failure_of(error) from error
    return told[0]


def _stream(
    job: Stream, config: Config, session: SparkSession, tell: Report, stopping: Stopping
) -> None:
    built = job.build(session, config)
    if isinstance(built, SingleBatch):
        tell(built.run(session, config[""]["checkpoint"]))
        return
    query = _started(built, job, config)
    watch = _Watch(query, tell)
    try:
        while not query.awaitTermination(_GLANCE):  # type: ignore[arg-type]
            watch.look()
            if stopping():
                stop_after_batch(query)
        watch.look()
    finally:
        if query.isActive:  # after another failure or a second signal
            query.stop()
    _settle(session, config)
    if job.finish is not None and not stopping():
        job.finish(session, config)


def _settle(session: SparkSession, config: Config) -> None:
    """Acknowledge the last batch: Spark tells a source of it only when the next one begins."""
    if "source" not in config or config["source"].get("format", "shmq") != "shmq":
        return
    from shmq.spark.commit_on_stop import settle  # noqa: PLC0415 - with Spark alone

    checkpoint = Folder(session, config[""]["checkpoint"])
    done = [int(name) for name in checkpoint.names("commits") if name.isdigit()]
    if not done:
        return
    # A line for the version, one of Spark's own, and one for each source. The lines do not name
    # their sources, so if the function reads another one, the next start acknowledges the batch.
    offsets = checkpoint.read(f"offsets/{max(done)}").splitlines()[2:]
    if len(offsets) == 1:
        settle(config["source"]["options"], offsets[0])


def _started(writer: DataStreamWriter, job: Job, config: Config) -> StreamingQuery:
    writer = writer.queryName(job.name).option("checkpointLocation", config[""]["checkpoint"])
    trigger = config[""]["trigger"]
    if trigger == AVAILABLE_NOW:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{round(trigger * 1000)} milliseconds")
    return writer.start()


class _Watch:
    """Reports each batch that was finished since the last look."""

    def __init__(self, query: StreamingQuery, tell: Report) -> None:
        self._query = query
        self._tell = tell
        self._progress = Progress()
        self._seen: set[str] = set()
        self._since = time.monotonic()

    def look(self) -> None:
        for told in self._query.recentProgress:
            event: dict[str, Any] = json.loads(told.json)
            if event["timestamp"] in self._seen:
                continue
            self._seen.add(event["timestamp"])
            self._progress = self._progress.after(event)
            self._tell(self._progress)
