"""Writing queues: what a DataFrame's rows become, in one write of a batch."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as f

import shmq
from tests.support.server import serve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Rows = Callable[..., "DataFrame"]

#: Enough to be several Arrow batches and chunks, and few enough to be quick.
MANY = 20_000


@pytest.fixture
def rows(spark: SparkSession) -> Rows:
    """``rows("value string", ("a",), …)``: a DataFrame of them, in one partition."""

    def make(ddl: str, *values: tuple[Any, ...]) -> DataFrame:
        return spark.createDataFrame(list(values), ddl).coalesce(1)

    return make


@pytest.fixture
def orders(broker: shmq.Broker) -> shmq.Queue:
    return broker.create_queue("orders", capacity=100_000, dedupe_window=300, priorities=10)


def write(frame: DataFrame, url: str, **options: Any) -> None:
    frame.write.format("shmq").mode("append").options(url=url, **options).save()


def bodies(queue: shmq.Queue) -> list[Any]:
    """What is in the queue, taken out, in the order in which it is served."""
    found = []
    while messages := queue.get_many(1000, block=False):
        found += [message.body for message in messages]
        queue.ack_many(messages)
    return found


def numbers(spark: SparkSession, count: int, partitions: int = 4) -> DataFrame:
    """Rows with the numbers below ``count`` as their values, in their order."""
    return spark.range(0, count, 1, partitions).select(f.col("id").cast("string").alias("value"))


def queue_names(broker: shmq.Broker) -> list[str]:
    return [summary.name for summary in broker.list_queues()]


def error_of(action: Callable[[], Any]) -> PySparkException:
    with pytest.raises(PySparkException) as caught:
        action()
    return caught.value


# ---- columns ----


@pytest.mark.parametrize("staged", ["true", "false"])
def test_every_column_reaches_the_message(
    rows: Rows, orders: shmq.Queue, namespace: str, staged: str
) -> None:
    frame = rows(
        "value binary, key binary, headers array<struct<key: string, value: binary>>, "
        "priority int, delay double, ttl int, dedupe_id string, codec string, "
        "correlation_id string, reply_to string, topic string",
        (
            bytearray(b"\x81\xa1a\x01"),
            bytearray(b"customer 7"),
            [("kind", bytearray(b"frame")), ("raw", bytearray(b"\xff"))],
            7,
            0.001,
            60,
            "job 1",
            "msgpack",
            "request 1",
            "answers",
            "orders",
        ),
    )
    write(frame, namespace, staged=staged)
    write(frame, namespace, staged=staged)  # the dedupe id is known by now

    message = orders.get(timeout=30)
    assert message.body == {"a": 1}
    assert (message.group, message.priority, message.codec) == ("customer 7", 7, "msgpack")
    assert dict(message.headers) == {"kind": "frame", "raw": b"\xff"}
    assert (message.correlation, message.reply_to) == ("request 1", "answers")
    assert message.properties["ttl"] == 60_000
    assert message.properties["delay"] == 1
    message.ack()
    assert orders.stats().depth == orders.stats().delayed == 0


def test_a_delay_is_kept_and_a_ttl_ends(rows: Rows, orders: shmq.Queue, namespace: str) -> None:
    write(
        rows("value string, delay int, ttl double", ("later", 3600, None), ("gone", None, 0.001)),
        namespace,
        topic="orders",
    )
    time.sleep(0.01)
    with pytest.raises(shmq.Empty):
        orders.get(False)
    assert orders.stats().delayed == 1


@pytest.mark.parametrize("staged", ["true", "false"])
def test_text_is_text_and_bytes_are_bytes(
    rows: Rows, orders: shmq.Queue, namespace: str, staged: str
) -> None:
    write(rows("value string", ("tée",)), namespace, topic="orders", staged=staged)
    write(rows("value binary", (bytearray(b"\xff"),)), namespace, topic="orders", staged=staged)
    write(
        rows("value string, codec string", ('{"a": 1}', "json"), ("x", None), ("y", "avro")),
        namespace,
        topic="orders",
        staged=staged,
    )
    assert bodies(orders) == ["tée", b"\xff", {"a": 1}, "x", b"y"]


def test_rows_go_to_the_queues_that_they_name(
    rows: Rows, broker: shmq.Broker, namespace: str
) -> None:
    for name in ("north", "south", "all"):
        broker.create_queue(name)
    frame = rows("value string, topic string", ("1", "north"), ("2", "south"), ("3", "north"))
    write(frame, namespace)
    write(frame.withColumnRenamed("topic", "queue"), namespace)
    write(frame, namespace, topic="all")
    write(frame, namespace, queue="all")
    assert bodies(broker.queue("north")) == ["1", "3", "1", "3"]
    assert bodies(broker.queue("south")) == ["2", "2"]
    assert bodies(broker.queue("all")) == ["1", "2", "3", "1", "2", "3"]


@pytest.mark.smoke
def test_many_rows_come_once_and_in_order_and_nothing_else_stays(
    spark: SparkSession, broker: shmq.Broker, orders: shmq.Queue, namespace: str
) -> None:
    write(numbers(spark, MANY), namespace, topic="orders")
    assert bodies(orders) == [str(n) for n in range(MANY)]
    assert queue_names(broker) == ["orders", "orders.dlq"]


def test_nothing_is_written_of_a_frame_without_rows(
    spark: SparkSession, orders: shmq.Queue, broker: shmq.Broker, namespace: str
) -> None:
    write(numbers(spark, 0), namespace, topic="orders")
    assert bodies(orders) == []
    assert queue_names(broker) == ["orders", "orders.dlq"]


# ---- room ----


@contextlib.contextmanager
def slowly(queue: shmq.Queue, count: int) -> Iterator[list[Any]]:
    """Take ``count`` messages beside what the test does; what they are is in the list."""
    found: list[Any] = []

    def consume() -> None:
        while len(found) < count:
            with queue.get_batch(100) as batch:
                found.extend(batch)
            time.sleep(0.001)

    thread = threading.Thread(target=consume)
    thread.start()
    yield found
    thread.join()


@pytest.mark.parametrize("staged", ["true", "false"])
def test_a_full_queue_is_waited_for(
    spark: SparkSession, broker: shmq.Broker, namespace: str, staged: str
) -> None:
    small = broker.create_queue("small", capacity=500)
    with slowly(small, 5000) as found:
        write(numbers(spark, 5000, 1), namespace, topic="small", staged=staged)
    assert found == [str(n) for n in range(5000)]


def test_a_full_queue_holds_up_no_other(rows: Rows, broker: shmq.Broker, namespace: str) -> None:
    full, free = broker.create_queue("a-full", capacity=1), broker.create_queue("free")
    full.put("before")
    found: list[Any] = []

    def make_room_once_the_other_has_its_own() -> None:
        for queue in (free, full, full):
            with queue.get() as message:
                found.append(message.body)

    thread = threading.Thread(target=make_room_once_the_other_has_its_own)
    thread.start()
    write(rows("value string, topic string", ("1", "a-full"), ("2", "free")), namespace)
    thread.join()
    assert found == ["2", "before", "1"]


@pytest.mark.parametrize("staged", ["true", "false"])
def test_publish_timeout_ends_the_wait(
    spark: SparkSession, broker: shmq.Broker, namespace: str, staged: str
) -> None:
    small = broker.create_queue("small", capacity=5)
    error = error_of(
        lambda: write(
            numbers(spark, 10, 1), namespace, topic="small", publishTimeout="50ms", staged=staged
        )
    )
    assert "small" in str(error)
    assert "publishTimeout=0.05 s" in str(error)
    assert bodies(small) == [str(n) for n in range(5)]
    assert queue_names(broker) == ["small", "small.dlq"]


def test_staging_bytes_bound_a_batch(
    spark: SparkSession, orders: shmq.Queue, broker: shmq.Broker, namespace: str
) -> None:
    large = spark.range(0, 30, 1, 1).select(f.repeat(f.lit("x"), 100_000).alias("value"))
    error = error_of(lambda: write(large, namespace, topic="orders", stagingBytes="1m"))
    assert "stagingBytes" in str(error)
    assert "staged', 'false'" in str(error)
    assert bodies(orders) == []
    assert queue_names(broker) == ["orders", "orders.dlq"]
    write(large, namespace, topic="orders", stagingBytes="8m")
    assert len(bodies(orders)) == 30


# ---- once ----


def test_a_batch_of_a_publisher_is_written_once(
    rows: Rows, orders: shmq.Queue, namespace: str
) -> None:
    def attempt(batch: int, value: str) -> None:
        named = {"publisher": "daily totals", "batch": batch}
        write(rows("value string", (value,)), namespace, topic="orders", **named)

    attempt(3, "third")
    attempt(3, "third, again")
    attempt(2, "second, too late")
    attempt(4, "fourth")
    assert bodies(orders) == ["third", "fourth"]


def test_a_task_that_fails_writes_nothing_and_leaves_nothing(
    spark: SparkSession, orders: shmq.Queue, broker: shmq.Broker, namespace: str
) -> None:
    # One task: one that outlives the abort may stage once more, and its queue stays.
    frame = (
        numbers(spark, 100)
        .coalesce(1)
        .select(
            f.when(f.col("value") == "77", f.raise_error(f.lit("no such number")))
            .otherwise(f.col("value"))
            .alias("value")
        )
    )
    assert "no such number" in str(error_of(lambda: write(frame, namespace, topic="orders")))
    assert bodies(orders) == []
    assert queue_names(broker) == ["orders", "orders.dlq"]


def test_a_row_that_can_never_fit_is_said_with_its_size(
    spark: SparkSession, broker: shmq.Broker, namespace: str
) -> None:
    small = broker.create_queue("small", max_message_bytes=1000)
    frame = spark.range(3).select(f.repeat(f.lit("x"), 1001).alias("value"))
    error = error_of(lambda: write(frame, namespace, topic="small"))
    assert "1001" in str(error)
    assert "MessageTooLarge" in str(error)
    assert bodies(small) == []
    assert queue_names(broker) == ["small", "small.dlq"]


# ---- what is refused before anything runs ----

WRONG = {
    "no such queue": (
        {"topic": "nowhere"},
        "queue 'nowhere' does not exist.*shmq create -q nowhere",
    ),
    "a name of none": ({"topic": "a/b"}, "invalid queue name 'a/b'"),
    "topic and queue": ({"topic": "a", "queue": "b"}, "topic='a' and queue='b' mean the same"),
    "neither": ({}, "which queue to write to"),
    "unknown": ({"topic": "orders", "stagedBytes": "1m"}, "did you mean 'stagingBytes'"),
    "of another use": ({"topic": "orders", "maxOffsetsPerTrigger": "1"}, "is for spark.readStream"),
    "a path": ({"path": "orders"}, r"option\('topic', NAME\)"),
    "no truth": ({"topic": "orders", "staged": "maybe"}, "staged='maybe' must be true or false"),
    "no size": ({"topic": "orders", "stagingBytes": "1"}, "stagingBytes='1' must be a number of"),
    "too large": ({"topic": "orders", "stagingBytes": "64g"}, "'64g' must be .* to 68,718,428,160"),
    "no time": ({"topic": "orders", "publishTimeout": "soon"}, "publishTimeout='soon' must be"),
    "no number": ({"topic": "orders", "publisher": "p", "batch": "x"}, "batch='x' must be a whole"),
    "a batch of nobody": ({"topic": "orders", "batch": "1"}, r"give .option\('publisher', NAME\)"),
    "not staged": ({"topic": "orders", "staged": "false", "stagingBytes": "1m"}, "staged=false"),
    "no server": ({"topic": "orders", "url": "shmq://127.0.0.1:1"}, "127.0.0.1:1"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_is_one_error_before_any_task_runs(
    spark: SparkSession, orders: shmq.Queue, namespace: str, wrong: str
) -> None:
    options, said = WRONG[wrong]
    frame = spark.range(1).select(f.raise_error(f.lit("a task ran")).cast("string").alias("value"))
    with pytest.raises(AnalysisException, match=said):
        write(frame, **{"url": namespace, **options})
    assert bodies(orders) == []


def test_overwriting_is_refused(rows: Rows, orders: shmq.Queue, namespace: str) -> None:
    frame = rows("value string", ("x",))
    options = {"url": namespace, "topic": "orders"}
    with pytest.raises(AnalysisException, match=r"use mode\('append'\), and shmq purge"):
        frame.write.format("shmq").options(**options).mode("overwrite").save()
    with pytest.raises(AnalysisException, match="Append"):
        frame.write.format("shmq").options(**options).save()
    assert bodies(orders) == []


def test_a_publisher_without_a_batch_is_refused(
    rows: Rows, orders: shmq.Queue, namespace: str
) -> None:
    error = error_of(
        lambda: write(rows("value string", ("x",)), namespace, topic="orders", publisher="daily")
    )
    assert "publisher='daily' needs .option('batch', NUMBER)" in str(error)


# ---- from elsewhere ----


def test_a_write_goes_over_tcp(spark: SparkSession, broker: shmq.Broker, namespace: str) -> None:
    small = broker.create_queue("small", capacity=500)
    token = secrets.token_hex(16)
    tokens = {token: {"produce": ["small"]}}
    with serve(namespace, tokens=tokens) as server, slowly(small, 5000) as found:
        write(numbers(spark, 5000, 1), server.url, token=token, topic="small")
    assert found == [str(n) for n in range(5000)]
    assert queue_names(broker) == ["small", "small.dlq"]
