"""A stream is told of, and stopped between batches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

import shmq
from shmq import ShmqError
from shmq.spark.jobs.archive import Archive
from shmq.spark.jobs.endpoints import StreamSource
from shmq.spark.jobs.job import Progress, Stream, each_batch
from shmq.spark.jobs.runner import run, settle_last
from tests.prove.spark.jobs.tools import queue_of, settings
from tests.prove.spark.query import NEVER
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


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

    for _ in range(2):
        enough = len(done) + 2
        last = run(
            stream(done),
            settings(checkpoint, queue_of(namespace)),
            spark,
            told.append,
            lambda enough=enough: len(done) >= enough,  # type: ignore[misc]
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
        eventually(Path(self._stop).exists, "the stream is stopped")
        time.sleep(0.5)  # in which a stop that does not wait for the plan interrupts it
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
    never = settings(checkpoint, queue_of(namespace), NEVER)

    last = run(stream(done), never, spark, lambda _: None, lambda: bool(done))

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
