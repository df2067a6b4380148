"""Runs a job: starts it, reports its progress, and stops it between batches."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from shmq.errors import ConnectionLost, ShmqError
from shmq.spark.jobs.config import Config
from shmq.spark.jobs.failure import failure_of
from shmq.spark.jobs.filesystem import Folder
from shmq.spark.jobs.job import Batch, Job, Progress, SingleBatch, Stream
from shmq.spark.jobs.tables import AVAILABLE_NOW
from shmq.spark.session import session as make_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["run", "started", "stop_after_batch"]

#: How often the query's state is checked, in seconds.
_STATE_GLANCE: Final = 0.05


def stop_after_batch(query: StreamingQuery) -> None:
    """Let the query finish its current batch and begin no other, and wait until it has ended.

    ``query.stop()`` alone would interrupt the batch: it would be planned but not committed, its
    messages would return to their queue, and other consumers could get them.
    """
    thread = _Thread(query)
    thread.end_behind_batch()
    while thread.is_alive and not thread.is_between_batches:
        time.sleep(_STATE_GLANCE)
    query.stop()


class _Thread:
    """The thread that runs a query's batches.

    The thread ends on its own when it finds its query terminated, which it checks between
    batches. It also checks within a batch, after planning, and then interrupts itself. So the
    query must be set to terminated while the thread is in no batch, and the thread must be kept
    from beginning one meanwhile. The query's progress lock does that: it is fair, and the
    thread takes it three times a round. At the first time nothing is planned yet, after the
    second the batch is committed, and at the third the thread is in no batch any more. The
    state that Spark reports is reliable while the thread waits for the lock.
    """

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        execution: Any = query._jsq.streamingQuery()
        package = execution.getClass().getPackageName()
        loader = execution.getClass().getClassLoader()
        self._over = loader.loadClass(f"{package}.TERMINATED$").getField("MODULE$").get(None)
        self._state = execution.state()
        self._lock = execution.awaitProgressLock()
        self._thread = execution.queryExecutionThread()

    @property
    def is_alive(self) -> bool:
        return bool(self._thread.isAlive())

    @property
    def is_between_batches(self) -> bool:
        """Whether it sleeps until the next batch is due. The order of the checks matters."""
        return str(self._thread.getState()) == "TIMED_WAITING" and not self._is_in_batch

    @property
    def _is_in_batch(self) -> bool:
        return bool(self._query.status["isTriggerActive"])

    def end_behind_batch(self) -> None:
        """Set the query to terminated while the thread is in no batch and begins none."""
        before: Any = None  # the query's state before it was set to terminated during a sleep
        self._lock.lock()
        try:
            while self.is_alive:
                if self._lock.hasQueuedThread(self._thread):
                    if not self._is_in_batch:
                        self._state.set(self._over)
                        return
                    if before is not None:  # it was about to wake: let it run this batch
                        self._state.set(before)
                        before = None
                    self._let_pass()
                elif self.is_between_batches:
                    if before is not None:  # still asleep after the change: it wakes and ends
                        return
                    before = self._state.getAndSet(self._over)
                else:
                    time.sleep(_STATE_GLANCE)
        finally:
            self._lock.unlock()

    def _let_pass(self) -> None:
        self._lock.unlock()
        self._lock.lock()


#: How often a stream is asked for its progress, in seconds.
_GLANCE: Final = 0.2

#: How long a master may take to answer, in seconds. Spark itself gives up after a minute
#: without saying why.
_PATIENCE: Final = 10.0

Report = Callable[[Progress], None]
Stopping = Callable[[], bool]


def started(job: Job, config: Config) -> SparkSession:
    """The session that a job's file configures.

    Raises a one-line :class:`~shmq.ShmqError` if it does not start.
    """
    settings = config["spark"]
    _reach(settings["master"])
    try:
        return make_session(f"shmq {job.name}", master=settings["master"], conf=settings["options"])
    except ShmqError:
        raise
    except Exception as error:
        raise failure_of(error) from error


def _reach(master: str | None) -> None:
    """Check that one of the masters in a ``spark://`` URL accepts a connection.

    Raises :class:`~shmq.ConnectionLost` with the last master's reason if none does.
    """
    if master is None or not master.startswith("spark://"):
        return
    why = ""
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        try:
            with contextlib.closing(socket.create_connection((host, int(port)), _PATIENCE)):
                return
        except (OSError, OverflowError) as error:
            why = f"{place}: {getattr(error, 'strerror', None) or error}"
    raise ConnectionLost(
        f"no master of Spark answers at {master} ({why}): start it, or change master in [spark]"
    )


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
