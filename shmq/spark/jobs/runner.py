"""Runs a job: starts it, reports its progress, and stops it between batches."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shmq.errors import ConnectionLost, ShmqError
from shmq.native._core import reserve_standard
from shmq.spark.jobs.config import Base, StreamBase
from shmq.spark.jobs.failure import end_of_java, failure_of
from shmq.spark.jobs.filesystem import Folder
from shmq.spark.jobs.job import Batch, Job, Progress, SingleBatch, Stream
from shmq.spark.jobs.sinks import WAIT_FILE
from shmq.spark.session import session as make_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

#: How often a stream is asked for its state, in seconds.
_GLANCE: Final = 0.2

#: How often the file is read in which a write says what it waits for, in seconds.
_WAIT_GLANCE: Final = 1.0

#: How long a master may take to answer, in seconds. Spark itself times out after a minute
#: without saying why.
_PATIENCE: Final = 10.0

#: The settings of a job's session, unless the file or Spark's configuration has them.
_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_DEFAULTS: Final = {"spark.sql.streaming.stateStore.providerClass": _ROCKSDB}

Report = Callable[[Progress], None]
Stopping = Callable[[], bool]


def stop_after_batch(query: StreamingQuery, stop_file: Path) -> None:
    """Let the query finish its current batch and begin no other, and wait until it has ended.

    ``query.stop()`` alone would interrupt the batch: it would be planned but not committed, its
    messages would return to their queue, and other consumers could get them. Once the stop file
    exists, its source says that there is nothing new; so when the query is in no batch, none
    begins. A query of other sources may be interrupted, and repeats the batch at its next start.
    """
    stop_file.touch()
    while query.isActive and query.status["isTriggerActive"]:
        query.awaitTermination(_GLANCE)  # type: ignore[arg-type]
    query.stop()


def started(job: Job[Any], config: Base) -> SparkSession:
    """The session that a job's file configures.

    Raises a one-line :class:`~shmq.ShmqError` if it does not start.
    """
    settings = config.spark
    _check_master(settings.master)
    try:
        session = make_session(f"shmq {job.name}", master=settings.master, conf=settings.conf)
        own = session.sparkContext.getConf()
        usual = {"spark.sql.shuffle.partitions": str(session.sparkContext.defaultParallelism)}
        for name, value in {**_DEFAULTS, **usual}.items():
            if not own.contains(name):
                session.conf.set(name, value)
    except ShmqError:
        raise
    except Exception as error:
        raise failure_of(error) from error
    return session


def end(session: SparkSession) -> None:
    """End a job's session. If Java has ended already, there is nothing left to do."""
    try:
        session.stop()
    except Exception as error:
        if end_of_java(error) is None:
            raise failure_of(error) from error


def _check_master(master: str | None) -> None:
    """Check that one of the masters in a ``spark://`` URL accepts a connection.

    Raises :class:`~shmq.ConnectionLost` with the last master's reason if none does.
    """
    if master is None or not master.startswith("spark://"):
        return
    why = ""
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        try:
            reserve_standard()
            with contextlib.closing(socket.create_connection((host, int(port)), _PATIENCE)):
                return
        except (OSError, OverflowError) as error:
            why = f"{place}: {getattr(error, 'strerror', None) or error}"
    raise ConnectionLost(
        f"no master of Spark answers at {master} ({why}): start it, or change master in [spark]"
    )


def run(
    job: Job[Any], config: Base, session: SparkSession, report: Report, stopping: Stopping
) -> Progress:
    """Run the job to its end or until ``stopping()`` is true, and return its progress.

    A stream stops after its current batch; its next start continues after that batch. After a
    crash the interrupted batch is repeated. Raises a one-line :class:`~shmq.ShmqError` for a
    failure at the driver or an executor.
    """
    latest = [Progress()]

    def tell(progress: Progress) -> None:
        latest[0] = progress
        report(progress)

    def tell_wait(reason: str) -> None:
        report(dataclasses.replace(latest[0], waiting=reason))

    try:
        with tempfile.TemporaryDirectory(prefix="shmq-pipeline-") as folder:
            Path(folder).chmod(0o700)  # whatever the umask
            wait_file = Path(folder, "waiting")
            session.conf.set(WAIT_FILE, str(wait_file))
            with _watched(wait_file, tell_wait):
                if isinstance(job, Stream):
                    assert isinstance(config, StreamBase)
                    _run_stream(job, config, session, tell, stopping, Path(folder, "stop"))
                else:
                    assert isinstance(job, Batch)
                    job.run(session, config, tell, stopping)
    except ShmqError:
        raise
    except Exception as error:
        raise failure_of(error) from error
    return latest[0]


@contextlib.contextmanager
def _watched(file: Path, report: Callable[[str], None]) -> Iterator[None]:
    """Report each text of the file in a thread, within the block."""
    ended = threading.Event()

    def watch() -> None:
        last = ""
        while not ended.wait(_WAIT_GLANCE):
            text = file.read_text() if file.exists() else ""
            if text != last:
                last = text
                report(text)

    thread = threading.Thread(target=watch, name="shmq wait report")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _run_stream(
    job: Stream[Any],
    config: StreamBase,
    session: SparkSession,
    tell: Report,
    stopping: Stopping,
    stop_file: Path,
) -> None:
    built = job.build(session, config, os.fspath(stop_file))
    if isinstance(built, SingleBatch):
        tell(built.run(session, config.checkpoint))
        return
    query = _start(built, job, config)
    watch = _Watch(query, tell)
    try:
        while not query.awaitTermination(_GLANCE):  # type: ignore[arg-type]
            watch.look()
            if stopping():
                stop_after_batch(query, stop_file)
        watch.look()
    finally:
        if query.isActive:  # after another failure or a second signal
            query.stop()
    settle_last(session, config)


def settle_last(session: SparkSession, config: Any) -> None:
    """Acknowledge the last batch: Spark tells a source of it only when the next one begins.

    Not if the next one has started, as after a crash: the next start repeats it, and acknowledges
    this one. To settle returns what else the query has leased, and others could take it.
    """
    if config.source.format != "shmq":
        return
    from shmq.spark.commit_on_stop import settle  # noqa: PLC0415 - with Spark alone

    checkpoint = Folder(session, config.checkpoint)
    begun, done = (
        max((int(name) for name in checkpoint.names(part) if name.isdigit()), default=-1)
        for part in ("offsets", "commits")
    )
    if done < 0 or begun > done:
        return
    # A line for the version, one of Spark's own, and one for each source. The lines do not name
    # their sources, so if the function reads another one, the next start acknowledges the batch.
    offsets = checkpoint.read(f"offsets/{done}").splitlines()[2:]
    if len(offsets) == 1:
        settle(config.source.options, offsets[0])


def _start(writer: DataStreamWriter, job: Job[Any], config: StreamBase) -> StreamingQuery:
    writer = writer.queryName(job.name).option("checkpointLocation", config.checkpoint)
    seconds = config.trigger.seconds
    if seconds is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{round(seconds * 1000)} milliseconds")
    return writer.start()


class _Watch:
    """Reports each batch that was finished since the last look."""

    def __init__(self, query: StreamingQuery, tell: Report) -> None:
        self._query = query
        self._tell = tell
        self._progress = Progress()
        #: When the newest batch that was reported began.
        self._newest: str | None = None

    def look(self) -> None:
        last = self._query.lastProgress
        if last is None or last.timestamp == self._newest:
            return
        recent = self._query.recentProgress
        begun = [progress.timestamp for progress in recent]
        new = begun.index(self._newest) + 1 if self._newest in begun else 0
        for progress in recent[new:]:
            self._newest = progress.timestamp
            self._progress = self._progress.after(json.loads(progress.json))
            self._tell(self._progress)
