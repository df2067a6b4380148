"""A stream is told of, stopped between batches, and said to have failed, in one line."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

import shmq
from shmq import Forbidden, NoSuchQueue, ShmqError
from shmq.spark.jobs.archive import Archive
from shmq.spark.jobs.endpoints import FileSink, StreamSource
from shmq.spark.jobs.failure import failure_of
from shmq.spark.jobs.job import Progress, Stream, each_batch
from shmq.spark.jobs.runner import run, settle_last
from shmq.spark.jobs.values import Location, Options, Trigger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def settings(checkpoint: Path | str, source: StreamSource, seconds: float = 0.0) -> Archive:
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


@pytest.fixture
def queue(broker: shmq.Broker) -> shmq.Queue:
    made = broker.create_queue("in", dead_letter=None)
    made.put_many([b"x"] * 100)
    return made


def stream(batches: list[int]) -> Stream[Archive]:
    """A job whose batches, once they are done, are in the list."""

    def build(session: SparkSession, config: Archive, stop_file: str) -> DataStreamWriter:
        def put(batch: DataFrame, _: str, number: int) -> None:
            assert batch.count() == 10
            batches.append(number)

        return each_batch(config.source.read(session, stop_file), put)

    return Stream(name="counting", config=Archive, build=build)


def files(checkpoint: Path, part: str) -> set[int]:
    return {int(path.name) for path in (checkpoint / part).glob("[0-9]*")}


def test_a_stream_stops_after_its_batch_and_goes_on_with_the_next(
    spark: SparkSession, queue: shmq.Queue, namespace: str, checkpoint: str
) -> None:
    done: list[int] = []
    told: list[Progress] = []

    for stop_at in (2, 4):
        last = run(
            stream(done),
            settings(checkpoint, queue_of(namespace)),
            spark,
            told.append,
            lambda stop_at=stop_at: len(done) >= stop_at,  # type: ignore[misc]
        )

    assert files(Path(checkpoint), "offsets") == files(Path(checkpoint), "commits") == set(done)
    assert done == list(range(len(done))), "none again, none left out"
    assert last == told[-1]
    assert last.batch == done[-1]
    assert {progress.batch for progress in told} == set(done)
    assert sum(1 for progress in told if progress.rows == 10) == 2, "it counts from each start"
    stats = queue.stats()
    assert (stats.depth, stats.in_flight) == (100 - 10 * len(done), 0), "all are acknowledged"


def test_a_batch_that_was_cut_off_keeps_its_messages_when_its_repetition_is_stopped_early(
    spark: SparkSession, queue: shmq.Queue, namespace: str, checkpoint: str
) -> None:
    """As the second start of a killed job is that is stopped before Spark has begun the batch."""
    config = settings(checkpoint, queue_of(namespace))

    def build(session: SparkSession, config: Archive, stop_file: str) -> DataStreamWriter:
        def put(batch: DataFrame, _: str, number: int) -> None:
            if number:
                raise ValueError("the sink is full")

        return each_batch(config.source.read(session, stop_file), put)

    job = Stream(name="failing", config=Archive, build=build)
    with pytest.raises(ShmqError, match="the sink is full"):
        run(job, config, spark, lambda _: None, lambda: False)
    assert files(Path(checkpoint), "offsets") - files(Path(checkpoint), "commits") == {1}

    settle_last(spark, config)

    assert (queue.stats().depth, queue.stats().in_flight) == (80, 10), "batch 0 is acknowledged"
    done: list[int] = []
    run(stream(done), config, spark, lambda _: None, lambda: len(done) >= 2)
    assert done[0] == 1, "the batch is repeated"
    assert (queue.stats().depth, queue.stats().in_flight) == (90 - 10 * len(done), 0)


class Slow(DataSource):
    """Plans slowly, and says that it does; it stops as shmq's sources do."""

    @classmethod
    def name(cls) -> str:
        return "slow"

    def schema(self) -> str:
        return "number int"

    def streamReader(self, schema: object) -> SlowReader:  # noqa: N802
        return SlowReader(self.options["folder"], self.options["stop"])


class SlowReader(DataSourceStreamReader):
    def __init__(self, folder: str, stop: str) -> None:
        self._folder, self._stop = folder, stop

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"at": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]  # noqa: N802
        at = len(list(Path(self._folder).iterdir()))
        if Path(self._stop).exists():
            return {"at": at}
        (Path(self._folder) / str(at + 1)).touch()
        time.sleep(1)
        return {"at": at + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition((start["at"], end["at"]))]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield from ((number,) for number in range(*partition.value))


def test_a_batch_is_finished_that_was_being_planned_when_the_stream_was_stopped(
    spark: SparkSession, tmp_path: Path, checkpoint: str
) -> None:
    planned = tmp_path / "planned"
    planned.mkdir()
    done: list[int] = []
    spark.dataSource.register(Slow)

    def build(session: SparkSession, _: Archive, stop_file: str) -> DataStreamWriter:
        options = {"folder": str(planned), "stop": stop_file}
        rows = session.readStream.format("slow").options(**options).load()
        return each_batch(rows, lambda batch, _, number: done.append(number + batch.count() - 1))

    last = run(
        Stream(name="slow", config=Archive, build=build),
        settings(checkpoint, StreamSource(format="slow")),
        spark,
        lambda _: None,
        lambda: any(planned.iterdir()),
    )

    assert [path.name for path in planned.iterdir()] == ["1"]
    assert done == [0]
    assert files(Path(checkpoint), "commits") == {0}
    assert last.batch == 0


def test_a_stream_that_sleeps_until_its_next_batch_is_stopped_at_once(
    spark: SparkSession, queue: shmq.Queue, namespace: str, checkpoint: str
) -> None:
    done: list[int] = []
    hours = settings(checkpoint, queue_of(namespace), 7200.0)

    last = run(stream(done), hours, spark, lambda _: None, lambda: bool(done))

    assert done == [0]
    assert files(Path(checkpoint), "commits") == {0}
    assert last.batch == 0
    assert (queue.stats().depth, queue.stats().in_flight) == (90, 0)


def test_the_progress_adds_up_what_spark_tells_of_each_batch() -> None:
    event = {
        "batchId": 7,
        "durationMs": {"triggerExecution": 500},
        "sources": [
            {"numInputRows": 100, "latestOffset": '{"backlog": 12, "queues": {}}'},
            {"numInputRows": 20, "latestOffset": {"backlog": 3}},
            {"numInputRows": 0, "latestOffset": "no JSON"},
            {"numInputRows": 0, "latestOffset": None},
        ],
        "observedMetrics": {"decode": {"bad": 2}},
    }

    found = Progress(rows=5, counts={"bad": 1}).after(event)

    assert found == Progress(
        batch=7, rows=125, rate=240.0, backlog=15, seconds=0.5, counts={"bad": 3}
    )
    twice = {**event, "observedMetrics": {"source": {"rows": 60}}}
    assert Progress().after(twice).rows == 60, "a batch that was read twice counts once"
    bare = {"batchId": 0, "durationMs": {}, "sources": [{"numInputRows": 1}]}
    assert Progress().after(bare) == Progress(batch=0, rows=1)


@pytest.mark.parametrize(
    ("text", "kind", "told"),
    [
        (
            (
                "[STREAM_FAILED] Query [id = …] terminated with exception: …\n"
                "pyspark.errors.exceptions.base.PythonException: \n"
                "Traceback (most recent call last):\n"
                '  File "worker.py", line 1, in main\n'
                "    raise Error: no\n"
                "shmq.errors.NoSuchQueue: there is no queue 'a': create it\n SQLSTATE: 38000"
            ),
            NoSuchQueue,
            "there is no queue 'a': create it",
        ),
        (
            (
                "Traceback (most recent call last):\n  File\n"
                "shmq.errors.Forbidden: the token 'x' has no right to consume"
            ),
            Forbidden,
            "the token 'x' has no right to consume",
        ),
        (
            "Traceback (most recent call last):\n  File\nValueError: 7 is odd\n\tat java.lang",
            ShmqError,
            "ValueError: 7 is odd",
        ),
        (
            (
                "An error occurred while calling o71.start.\n"
                ": java.io.IOException: mkdir of file:/proc/ck failed\n\tat org.apache.hadoop.fs.X"
            ),
            ShmqError,
            "Spark: IOException: mkdir of file:/proc/ck failed; name a folder that can be written",
        ),
        (
            (
                "An error occurred while calling o1.start.\n"
                ": org.apache.spark.SparkException: [CANNOT_LOAD] Error loading for path=s3a://b/ck."
                "  SQLSTATE: 58030\n\tat a.b.C\nCaused by: java.lang.ClassNotFoundException: Class "
                "org.apache.hadoop.fs.s3a.S3A not found\n\t... 9 more\n"
            ),
            ShmqError,
            (
                "Spark: [CANNOT_LOAD] Error loading for path=s3a://b/ck: ClassNotFoundException: "
                "Class org.apache.hadoop.fs.s3a.S3A not found; name the package that has it"
            ),
        ),
        (
            (
                "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Reason: "
                "Traceback (most recent call last):\n  File\n    raise Py4JJavaError(\n"
                "py4j.protocol.Py4JJavaError: An error occurred while calling o183.parquet.\n"
                ": org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing "
                "rows to file:/small/out. SQLSTATE: 58030\n\tat a.b.C\n"
                "Caused by: a.b.Outer$Inner: Unable to close resource\n"
                "\tSuppressed: a.b.FSError: of no cause\n\tCaused by: c.D: of none\n"
                "Caused by: java.io.IOException: No space left on device\n"
            ),
            ShmqError,
            (
                "Spark: [TASK_WRITE_FAILED] Task failed while writing rows to file:/small/out: "
                "IOException: No space left on device; free space there"
            ),
        ),
        (
            (
                "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
                "No space left on device SQLSTATE: XXKST\n=== Streaming Query ==="
            ),
            ShmqError,
            "Spark: No space left on device; free space there",
        ),
        (
            (
                "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
                "Python worker failed to connect back. SQLSTATE: XXKST\n=== Streaming Query ==="
            ),
            ShmqError,
            "Spark: Python worker failed to connect back; the machine was too busy to start a Py",
        ),
        ("[JAVA_GATEWAY_EXITED] Java gateway", ShmqError, "Spark: [JAVA_GATEWAY_EXITED] Java g"),
        ("[PATH_NOT_FOUND] Path does not exist: x\n at y", ShmqError, "Spark: [PATH_NOT_FOUND] P"),
        ("", ShmqError, "Spark: RuntimeError"),
    ],
)
def test_what_failed_is_the_error_at_the_root_in_one_line(
    text: str, kind: type[ShmqError], told: str
) -> None:
    found = failure_of(RuntimeError(text))

    assert type(found) is kind
    assert str(found).startswith(told)
    assert "\n" not in str(found)


def test_a_checkpoint_that_cannot_be_written_is_told_with_its_place(
    spark: SparkSession, queue: shmq.Queue, namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    config = settings(tmp_path / "file/checkpoint", queue_of(namespace))
    with pytest.raises(ShmqError) as found:
        run(stream([]), config, spark, lambda _: None, lambda: False)

    assert str(found.value) == (
        f"Spark: ParentNotDirectoryException: Parent path is not a directory: "
        f"file:{tmp_path}/file; name a folder that can be written by the user who runs the job"
    )


def test_a_class_that_java_does_not_have_is_told_by_its_name(
    spark: SparkSession, queue: shmq.Queue, namespace: str
) -> None:
    config = settings("s3a://bucket/checkpoint", queue_of(namespace))
    with pytest.raises(ShmqError) as found:
        run(stream([]), config, spark, lambda _: None, lambda: False)

    told = str(found.value)
    assert "path=s3a://bucket/checkpoint: ClassNotFoundException: Class org.apache.hadoop" in told
    assert "name the package that has it in [spark.conf]" in told
    assert "calling o" not in told


def test_an_error_of_shmqs_own_stays_as_it_is() -> None:
    error = NoSuchQueue("there is no queue 'a'")

    assert failure_of(error) is error
