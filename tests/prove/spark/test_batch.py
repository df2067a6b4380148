"""``spark.read.format("shmq")``: a peek at queues."""

from __future__ import annotations

import datetime as dt
import os
import time
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructType

import shmq
from shmq.client.local.queue import LocalQueue
from shmq.spark.queue.kind import QUEUE
from shmq.spark.shared import columns
from tests.support.certificates import WHY_NOT, Certificates
from tests.support.server import serve
from tests.support.waiting import eventually

SESAME = "open-sesame-" * 3
OTHER = "another-one-" * 3


def read(
    spark: SparkSession, broker: shmq.Broker, queue: str = "orders", **given: Any
) -> DataFrame:
    """All columns, unless the test names some."""
    options = {"url": broker.namespace, "subscribe": queue, "columns": "all", **given}
    return spark.read.format("shmq").options(**options).load()


def rows(frame: DataFrame) -> list[Row]:
    return frame.orderBy("offset").collect()


@pytest.fixture
def orders(broker: shmq.Broker) -> shmq.Queue:
    return broker.create_queue("orders", max_deliveries=3, priorities=5)


def test_every_message_is_a_row_and_stays_where_it_is(
    spark: SparkSession, broker: shmq.Broker, orders: shmq.Queue
) -> None:
    orders.put_many([b"%d" % n for n in range(1000)])
    frame = read(spark, broker)

    assert [row.value for row in rows(frame)] == [b"%d" % n for n in range(1000)]
    assert orders.qsize() == 1000
    assert orders.get().delivery_count == 1


def test_an_empty_queue_has_no_rows(
    spark: SparkSession, broker: shmq.Broker, orders: shmq.Queue
) -> None:
    assert read(spark, broker).count() == 0


def test_a_plain_message_has_every_column(
    spark: SparkSession, broker: shmq.Broker, orders: shmq.Queue
) -> None:
    before = dt.datetime.now(dt.UTC)
    sequence = orders.put(b"tea").sequence
    (row,) = rows(read(spark, broker, includeHeaders=True))

    moment = row.timestamp.astimezone(dt.UTC)
    assert abs((moment - before).total_seconds()) < 60
    assert {**row.asDict(), "timestamp": None} == {
        **dict.fromkeys(columns.NAMES),
        "value": b"tea",
        "topic": "orders",
        "partition": 0,
        "offset": sequence,
        "timestampType": 0,
        "priority": 2,
        "delivery_count": 0,
        "state": "ready",
        "codec": "bytes",
    }


def test_by_default_there_are_the_columns_of_kafkas_connector(
    spark: SparkSession, broker: shmq.Broker, orders: shmq.Queue
) -> None:
    orders.put(b"tea")
    reader = spark.read.format("shmq").options(url=broker.namespace, subscribe="orders")
    found = reader.load()
    assert found.columns == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType"
    ]  # fmt: skip
    assert [row.value for row in found.collect()] == [b"tea"]


def test_what_was_put_with_a_message_is_in_its_columns(
    spark: SparkSession, broker: shmq.Broker, orders: shmq.Queue
) -> None:
    orders.put(
        "tea",
        group="customer ü",
        headers={"kind": "drink", "raw": b"\0\xff", "count": 3, "none": None, "list": [1, b"x"]},
        priority=4,
        correlation="c1",
        reply_to="answers",
        ttl=3600,
    )
    (row,) = rows(read(spark, broker, includeHeaders=True))

    assert (row.key, row.value, row.priority, row.codec) == (
        b"customer \xc3\xbc",
        b"tea",
        4,
        "text",
    )
    assert (row.correlation_id, row.reply_to) == ("c1", "answers")
    assert row.headers == [
        Row(key="kind", value=b"drink"),
        Row(key="raw", value=b"\0\xff"),
        Row(key="count", value=b"3"),
        Row(key="none", value=None),
        Row(key="list", value=b'[1, "eA=="]'),
    ]
    lifetime = row.expires_at - row.timestamp
    assert lifetime.total_seconds() == pytest.approx(3600, abs=0.1)


def test_messages_with_and_without_properties_stand_side_by_side(
    spark: SparkSession, broker: shmq.Broker, orders: shmq.Queue
) -> None:
    for n in range(10):
        orders.put(b"", group=f"g{n}" if n % 2 else None, codec="csv" if n % 3 else None)
    found = rows(read(spark, broker))

    assert [row.key for row in found] == [b"g%d" % n if n % 2 else None for n in range(10)]
    assert [row.codec for row in found] == ["csv" if n % 3 else "bytes" for n in range(10)]


def test_the_state_of_a_message_says_what_it_is_doing(
    spark: SparkSession, broker: shmq.Broker, orders: shmq.Queue
) -> None:
    orders.put(b"leased")
    orders.put(b"ready")
    orders.put(b"delayed", delay=3600)
    leased = orders.get()
    assert leased.body == b"leased"
    by_value = {row.value: row for row in read(spark, broker).collect()}

    assert {value: row.state for value, row in by_value.items()} == {
        b"leased": "leased",
        b"ready": "ready",
        b"delayed": "delayed",
    }
    row = by_value[b"leased"]
    assert row.delivery_count == 1
    assert (row.lease_until - row.timestamp).total_seconds() == pytest.approx(30, abs=20)
    row = by_value[b"delayed"]
    assert (row.visible_at - row.timestamp).total_seconds() == pytest.approx(3600, abs=1)
    assert by_value[b"ready"].visible_at is by_value[b"ready"].lease_until is None


def test_some_states_alone_can_be_asked_for(
    spark: SparkSession, broker: shmq.Broker, orders: shmq.Queue
) -> None:
    orders.put(b"leased")
    orders.put(b"ready")
    orders.put(b"delayed", delay=3600)
    leased = orders.get()

    def found(states: str) -> set[bytes]:
        return {row.value for row in read(spark, broker, states=states).collect()}

    assert found("ready") == {b"ready"}
    assert found("leased, delayed") == {b"leased", b"delayed"}
    assert found("dying") == set()
    leased.ack()


def test_messages_of_some_time_alone_can_be_asked_for(
    spark: SparkSession, broker: shmq.Broker, orders: shmq.Queue
) -> None:
    orders.put(b"first")
    time.sleep(0.05)  # the time of a put may be some milliseconds old
    orders.put(b"second")
    first, second = (row.timestamp.replace(tzinfo=dt.UTC) for row in rows(read(spark, broker)))
    at = second.isoformat()

    def found(**given: Any) -> list[bytes]:
        return [row.value for row in rows(read(spark, broker, columns="offset,value", **given))]

    assert found(startingTimestamp=at) == [b"second"]
    assert found(endingTimestamp=at) == [b"first"]
    assert found(endingTimestamp=int(first.timestamp() * 1000)) == []
    assert found(startingTimestamp=at, states="leased") == []


def test_a_dead_letter_says_why_and_from_where(
    spark: SparkSession, broker: shmq.Broker, orders: shmq.Queue
) -> None:
    orders.put(b"bad", group="g")
    message = orders.get()
    message.reject()
    letters = broker.queue("orders.dlq")
    deadline = time.monotonic() + 30
    while not letters.qsize():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (row,) = rows(read(spark, broker, "orders.dlq"))

    assert (row.dead_reason, row.dead_queue, row.dead_deliveries) == ("rejected", "orders", 1)
    assert (row.key, row.value) == (b"g", b"bad")
    assert abs((row.dead_at - row.timestamp).total_seconds()) < 60


def test_the_last_error_is_that_of_a_retry_and_of_a_dead_letter(
    spark: SparkSession, broker: shmq.Broker, orders: shmq.Queue
) -> None:
    for body in (b"new", b"retry", b"dead"):
        orders.put(body)
    new, retry, dead = (orders.get() for _ in range(3))
    retry.nack(60, error=ValueError("SMTP refused"))
    dead.reject("no such user")
    new.nack(60)

    found = {row.value: row.last_error for row in rows(read(spark, broker, "orders"))}
    assert found == {b"new": None, b"retry": "ValueError: SMTP refused"}
    (row,) = rows(read(spark, broker, "orders.dlq"))
    assert row.last_error == "no such user"


def test_the_headers_come_only_if_they_are_asked_for(
    spark: SparkSession, broker: shmq.Broker
) -> None:
    broker.create_queue("orders")
    assert "headers" not in read(spark, broker).columns
    assert "headers" in read(spark, broker, includeHeaders="true").columns


def test_the_columns_are_those_of_the_table_with_their_types(
    spark: SparkSession, broker: shmq.Broker
) -> None:
    found = read(spark, broker, includeHeaders=True).dtypes
    assert found == [*columns.COLUMNS.items()]


@pytest.mark.parametrize("name", columns.NAMES)
def test_each_column_can_be_read_alone(
    spark: SparkSession, broker: shmq.Broker, orders: shmq.Queue, name: str
) -> None:
    orders.put_many([b"a", b"b"], headers={"h": 1}, group="g")
    whole = read(spark, broker, includeHeaders=True)
    alone = read(spark, broker, columns=name)

    assert alone.columns == [name]
    assert alone.collect() == whole.select(name).collect()


def test_columns_come_in_the_order_in_which_they_are_asked_for(
    spark: SparkSession, broker: shmq.Broker, orders: shmq.Queue
) -> None:
    orders.put(b"x")
    assert read(spark, broker, columns="topic, value").collect() == [
        Row(topic="orders", value=b"x")
    ]


def test_several_queues_are_read_by_name_and_by_pattern(
    spark: SparkSession, broker: shmq.Broker
) -> None:
    for name in ("jobs.a", "jobs.b", "other"):
        broker.create_queue(name, dead_letter=None).put(name)
    named = read(spark, broker, "jobs.a,other")
    fitting = spark.read.format("shmq").options(
        url=broker.namespace, subscribePattern=r"jobs\.[a-z]"
    )

    def found(frame: DataFrame) -> set[tuple[str, bytes]]:
        return {(row.topic, row.value) for row in frame.collect()}

    assert found(named) == {("jobs.a", b"jobs.a"), ("other", b"other")}
    assert found(fitting.load()) == {("jobs.a", b"jobs.a"), ("jobs.b", b"jobs.b")}


def test_a_pattern_that_fits_no_queue_reads_nothing(
    spark: SparkSession, broker: shmq.Broker
) -> None:
    reader = spark.read.format("shmq").options(url=broker.namespace, subscribePattern="no.*")
    assert reader.load().count() == 0


def test_a_queue_is_read_in_as_many_parts_as_are_asked_for(
    spark: SparkSession, broker: shmq.Broker, orders: shmq.Queue
) -> None:
    orders.put_many([b"%d" % n for n in range(100)])
    frame = read(spark, broker, minPartitions=7)

    assert frame.rdd.getNumPartitions() == 7
    assert {row.value for row in frame.collect()} == {b"%d" % n for n in range(100)}


def test_a_batch_of_arrow_is_bounded_in_bytes(broker: shmq.Broker, orders: shmq.Queue) -> None:
    orders.put_many([bytes(1000)] * 50)
    given = {"url": broker.namespace, "subscribe": "orders", "columns": "value"}
    given |= {"maxBytesPerBatch": "8k", "minPartitions": "1"}
    reader = QUEUE.reader(given, StructType().add("value", "binary"))
    (part,) = reader.partitions()
    batches: list[Any] = list(reader.read(part))
    counts = [batch.num_rows for batch in batches]

    assert sum(counts) == 50
    assert max(counts) == 7


def test_a_message_larger_than_a_batch_is_one_by_itself(
    spark: SparkSession, broker: shmq.Broker, orders: shmq.Queue
) -> None:
    orders.put_many([b"a" * 100_000, b"b", b"c" * 100_000])
    frame = read(spark, broker, maxBytesPerBatch="1k", minPartitions=1)
    assert [len(row.value) for row in rows(frame)] == [100_000, 1, 100_000]


def test_a_query_sees_what_is_there_when_it_runs(
    spark: SparkSession, broker: shmq.Broker, orders: shmq.Queue
) -> None:
    frame = read(spark, broker)
    assert frame.count() == 0
    orders.put(b"late")
    assert read(spark, broker).count() == 1


def test_a_queue_that_was_recreated_since_the_last_query_is_read_anew(
    spark: SparkSession, broker: shmq.Broker, orders: shmq.Queue
) -> None:
    orders.put_many([b"old"] * 100)
    assert {row.value for row in rows(read(spark, broker))} == {b"old"}
    broker.delete_queue("orders")
    broker.create_queue("orders").put_many([b"new"] * 10)
    assert [row.value for row in rows(read(spark, broker))] == [b"new"] * 10


def test_workers_close_a_queue_that_no_task_reads_any_more(
    spark: SparkSession, broker: shmq.Broker, orders: shmq.Queue
) -> None:
    orders.put(b"tea")
    assert read(spark, broker).count() == 1
    assert isinstance(orders, LocalQueue)
    eventually(lambda: {pid for _, _, pid, *_ in orders.attached()} == {os.getpid()}, "closed")


def test_it_is_a_table_of_sql_too(
    spark: SparkSession, broker: shmq.Broker, orders: shmq.Queue
) -> None:
    orders.put_many([b"a", b"b"], group="g")
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW orders_now USING shmq "
        f"OPTIONS (url '{broker.namespace}', subscribe 'orders')"
    )
    (row,) = spark.sql("SELECT string(key) k, count(*) n FROM orders_now GROUP BY key").collect()
    assert (row.k, row.n) == ("g", 2)


def refusal(error: pytest.ExceptionInfo[Any]) -> str:
    """The last line of what Spark says, which is the error of shmq."""
    lines = [line for line in str(error.value).splitlines() if line.startswith("shmq.errors.")]
    assert len(lines) == 1, str(error.value)
    return lines[0]


def test_an_option_of_streams_is_refused(spark: SparkSession, broker: shmq.Broker) -> None:
    with pytest.raises(AnalysisException) as error:
        read(spark, broker, failOnDataLoss=True).count()
    assert "failOnDataLoss='true' is for spark.readStream" in refusal(error)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("value string", "the column value is of the type string in the schema, and binary"),
        ("body binary", "the schema has a column 'body', which a message does not have"),
    ],
)
def test_a_schema_that_does_not_fit_is_said_at_the_driver(
    spark: SparkSession, broker: shmq.Broker, orders: shmq.Queue, schema: str, said: str
) -> None:
    reader = spark.read.format("shmq").options(url=broker.namespace, subscribe="orders")
    with pytest.raises(AnalysisException) as error:
        reader.schema(schema).load().count()
    assert said in refusal(error)


def test_a_schema_of_some_columns_reads_those(
    spark: SparkSession, broker: shmq.Broker, orders: shmq.Queue
) -> None:
    orders.put(b"x", headers={"a": "b"})
    reader = spark.read.format("shmq").options(url=broker.namespace, subscribe="orders")
    schema = "value binary, headers array<struct<key: string, value: binary>>"
    (row,) = reader.schema(schema).load().collect()
    assert (row.value, row.headers) == (b"x", [Row(key="a", value=b"b")])


@pytest.mark.skipif(bool(WHY_NOT), reason=str(WHY_NOT))
def test_a_server_is_read_with_a_token_over_tls(
    spark: SparkSession, broker: shmq.Broker, orders: shmq.Queue, tmp_path_factory: Any
) -> None:
    orders.put_many([b"%d" % n for n in range(5000)], headers={"h": "v"})
    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    certificate, key = certificates.sign("server")
    mine, my_key = certificates.sign("client")
    tls = {"certificate": str(certificate), "key": str(key), "client_ca": str(certificates.ca)}
    rights = {SESAME: {"consume": ["orders"]}, OTHER: {"consume": ["not-orders"]}}
    with serve(broker.namespace, tokens=rights, tls=tls) as server:
        given = {
            "url": server.url.replace("shmq://", "shmqs://"),
            "subscribe": "orders",
            "tlsCa": str(certificates.ca),
            "tlsCertificate": str(mine),
            "tlsKey": str(my_key),
            "columns": "all",
            "includeHeaders": "true",
            "maxBytesPerBatch": "64k",
        }
        reader = spark.read.format("shmq").options(**given)
        assert sorted(rows(reader.option("token", SESAME).load())) == sorted(
            rows(read(spark, broker, includeHeaders="true"))
        )
        with pytest.raises(PySparkException) as error:
            spark.read.format("shmq").options(**given, token=OTHER).load().count()
        # What a token has no right to see is not there for it.
        assert refusal(error).startswith("shmq.errors.NoSuchQueue: queue 'orders' does not exist")
        with pytest.raises(PySparkException) as error:
            spark.read.format("shmq").options(**given, token="wrong" * 8).load().count()
        assert refusal(error).startswith("shmq.errors.Unauthorized: ")
