"""Writing queues from streams: each batch once, however often it is run."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f

import shmq
from tests.prove.spark.test_sink import bodies, queue_names, slowly, write
from tests.support.waiting import eventually

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Frame = Callable[..., "DataFrame"]


@pytest.fixture
def lines(spark: SparkSession, tmp_path: Path) -> Frame:
    """``lines(["a", "b"], ["c"])``: a stream of text files, each of them a batch."""
    folder = tmp_path / "lines"
    folder.mkdir()

    def make(*files: list[str]) -> DataFrame:
        for number, text in enumerate(files):
            path = folder / f"{number}.txt"
            path.write_text("\n".join(text) + "\n")
            os.utime(path, (number, number))  # the oldest comes first
        return spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))

    return make


def start(frame: DataFrame, url: str, checkpoint: str, **options: Any) -> StreamingQuery:
    return (
        frame.writeStream.format("shmq")
        .options(url=url, checkpointLocation=checkpoint, **options)
        .trigger(availableNow=True)
        .start()
    )


def run(frame: DataFrame, url: str, checkpoint: str, **options: Any) -> list[int]:
    """Run the stream to its end: which batches it ran."""
    query = start(frame, url, checkpoint, **options)
    query.awaitTermination()
    return [progress["batchId"] for progress in query.recentProgress]


def failure_of(query: StreamingQuery) -> str:
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination()
    return str(caught.value)


def uncommit(checkpoint: str, batch: int) -> None:
    """The state of a query that died after it wrote the batch, before it said so."""
    for name in (f"{batch}", f".{batch}.crc"):
        (Path(checkpoint) / "commits" / name).unlink()


def text(count: int) -> list[str]:
    return [str(n) for n in range(count)]


def test_a_batch_that_is_run_again_adds_nothing(
    lines: Frame, broker: shmq.Broker, namespace: str, checkpoint: str
) -> None:
    orders = broker.create_queue("orders")
    frame = lines(["a", "b"], ["c"], ["d"])
    assert run(frame, namespace, checkpoint, topic="orders") == [0, 1, 2]
    assert bodies(orders) == ["a", "b", "c", "d"]
    uncommit(checkpoint, 2)
    assert run(frame, namespace, checkpoint, topic="orders") == [2]
    assert bodies(orders) == []


def test_rows_of_several_queues_come_once_through_a_replay(
    lines: Frame, broker: shmq.Broker, namespace: str, checkpoint: str
) -> None:
    queues = [broker.create_queue(name) for name in ("odd", "even")]
    frame = lines(text(10), text(10)).withColumn(
        "topic", f.when(f.col("value").cast("int") % 2 == 0, "even").otherwise("odd")
    )
    run(frame, namespace, checkpoint)
    uncommit(checkpoint, 1)
    assert run(frame, namespace, checkpoint) == [1]
    assert [len(bodies(queue)) for queue in queues] == [10, 10]


def test_publishing_goes_on_where_it_was_given_up(
    lines: Frame, broker: shmq.Broker, namespace: str, checkpoint: str
) -> None:
    small = broker.create_queue("small", capacity=50)
    frame = lines(text(200))
    short = start(frame, namespace, checkpoint, topic="small", publishTimeout="10ms")
    assert "publishTimeout=0.01 s" in failure_of(short)
    assert small.qsize() == 50
    with slowly(small, 200) as found:
        assert run(frame, namespace, checkpoint, topic="small") == [0]
    assert found == text(200)


def test_publishing_goes_on_when_who_published_is_killed(
    lines: Frame, broker: shmq.Broker, namespace: str, checkpoint: str
) -> None:
    small = broker.create_queue("small", capacity=50)
    frame = lines(text(200))
    query = start(frame, namespace, checkpoint, topic="small")
    eventually(lambda: small.qsize() == 50, "the queue is full")
    (publisher,) = {one.pid for one in small.attachments()} - {os.getpid()}
    os.kill(publisher, signal.SIGKILL)
    failure_of(query)
    with slowly(small, 200) as found:
        assert run(frame, namespace, checkpoint, topic="small") == [0]
    assert found == text(200)
    assert bodies(small) == []


def test_a_worker_that_is_killed_adds_nothing_twice(
    spark: SparkSession, broker: shmq.Broker, namespace: str, tmp_path: Path
) -> None:
    orders = broker.create_queue("orders", capacity=100_000)
    mark = tmp_path / "killed"

    def kill_once(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for number, frame in enumerate(frames):
            if number == 2 and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield frame

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 1000)
    try:
        frame = spark.range(0, 20_000, 1, 2).selectExpr("cast(id AS string) AS value")
        write(frame.mapInPandas(kill_once, "value string"), namespace, topic="orders")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert mark.exists()
    assert bodies(orders) == text(20_000)
    assert queue_names(broker) == ["orders", "orders.dlq"]


def test_what_is_written_within_for_each_batch_comes_once_where_it_says_who_publishes(
    lines: Frame, broker: shmq.Broker, namespace: str, checkpoint: str
) -> None:
    orders = broker.create_queue("orders")
    frame = lines(["a"], ["b"])

    def send(batch: DataFrame, number: int) -> None:
        write(batch, namespace, topic="orders", publisher="first")
        write(batch.selectExpr("upper(value) AS value"), namespace, topic="orders", publisher="2")

    def once() -> list[int]:
        query = (
            frame.writeStream.foreachBatch(send)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [progress["batchId"] for progress in query.recentProgress]

    assert once() == [0, 1]
    assert bodies(orders) == ["a", "A", "b", "B"]
    uncommit(checkpoint, 1)
    assert once() == [1]
    assert bodies(orders) == []


def test_a_complete_result_is_refused(
    lines: Frame, broker: shmq.Broker, namespace: str, checkpoint: str
) -> None:
    broker.create_queue("orders")
    counted = lines(["a", "a"]).groupBy("value").count().select("value")
    query = (
        counted.writeStream.format("shmq")
        .options(url=namespace, topic="orders", checkpointLocation=checkpoint)
        .outputMode("complete")
        .trigger(availableNow=True)
        .start()
    )
    assert "use outputMode('append') with a watermark" in failure_of(query)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topic": "nowhere"}, "queue 'nowhere' does not exist"),
        ({"topic": "orders", "publisher": "me"}, "publisher='me' is for df.write"),
    ],
)
def test_what_cannot_be_fails_the_query_before_any_task_runs(
    lines: Frame,
    broker: shmq.Broker,
    namespace: str,
    checkpoint: str,
    options: dict[str, str],
    said: str,
) -> None:
    broker.create_queue("orders")
    raising = lines(["a"]).select(f.raise_error(f.lit("a task ran")).cast("string").alias("value"))
    assert said in failure_of(start(raising, namespace, checkpoint, **options))


def test_what_a_queue_had_comes_out_of_another_as_it_was(
    spark: SparkSession, broker: shmq.Broker, namespace: str, checkpoint: str
) -> None:
    source, target = broker.create_queue("from"), broker.create_queue("to")
    for number in range(20):
        source.put(
            {"n": number},
            group=f"group {number}",
            headers={"kind": "frame", "raw": b"\xff\x00"},
            priority=number % 3,
            reply_to="answers",
            correlation=str(number),
        )
    source.put("text")
    read = spark.readStream.format("shmq").options(
        url=namespace,
        subscribe="from",
        columns="all",
        includeHeaders="true",
        maxOffsetsPerTrigger=8,
    )
    run(read.load(), namespace, checkpoint, topic="to")

    messages = {message.correlation: message for message in target.get_many(100, block=False)}
    assert messages.pop(None).body == "text"
    assert len(messages) == 20
    for number in range(20):
        message = messages[str(number)]
        assert message.body == {"n": number}
        assert (message.group, message.priority) == (f"group {number}", number % 3)
        assert dict(message.headers) == {"kind": "frame", "raw": b"\xff\x00"}
        assert message.reply_to == "answers"
    target.ack_many(messages.values())
