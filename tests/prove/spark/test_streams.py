"""``format("shmq")`` on streams: batches, queries, and what is written."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

import shmq
from shmq.spark.commit_on_stop import settle
from tests.prove.spark.query import PATIENCE, Query, until


@pytest.fixture
def orders(broker: shmq.Broker) -> Iterator[shmq.Stream]:
    yield broker.create_stream("orders", 3, ring_bytes=1 << 20)
    for summary in broker.list_streams():
        broker.delete_stream(summary.name)


Read = Callable[..., DataFrame]


@pytest.fixture
def read(spark: SparkSession, namespace: str) -> Read:
    """``read(startingOffsets="…")``: the stream as a frame."""

    def frame(**options: Any) -> DataFrame:
        given = {"url": namespace, "subscribe": "orders", **options}
        given = {key: value for key, value in given.items() if value is not None}
        return spark.read.format("shmq").options(**given).load()

    return frame


def fill(stream: shmq.Stream, count: int, first: int = 0) -> None:
    """Records of all partitions: number n in partition n % 3, with its key."""
    for number in range(first, first + count):
        key = b"key-%d" % (number % 7)
        stream.append(b"%06d" % number, key=key, partition=number % stream.partitions)


def values(rows: list[Row]) -> list[bytes]:
    return sorted(bytes(row.value) for row in rows)


def bodies(count: int, first: int = 0) -> list[bytes]:
    return [b"%06d" % number for number in range(first, first + count)]


def error_of(action: Callable[[], Any]) -> str:
    with pytest.raises(PySparkException) as caught:
        action()
    said = str(caught.value)
    ours = [line for line in said.splitlines() if line.startswith("shmq.errors.")]
    return ours[0] if ours else said


# ---- reading a batch ----


def test_a_batch_has_kafkas_columns(read: Read, orders: shmq.Stream) -> None:
    made = orders.append("tea", key="drinks", partition=2)
    frame = read()

    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]
    (row,) = frame.select("*", f.unix_micros("timestamp").alias("micros")).collect()
    assert (bytes(row.key), bytes(row.value)) == (b"drinks", b"tea")
    assert (row.topic, row.partition, row.offset, row.timestampType) == ("orders", 2, 0, 0)
    assert row.micros == made.timestamp_ns // 1000


def test_headers_and_the_codec_come_on_request(read: Read, orders: shmq.Stream) -> None:
    orders.append({"item": "tea"}, headers={"kind": "hot", "size": 3}, partition=0)
    orders.append("no key, no headers", partition=0)

    rows = read(includeHeaders="true").orderBy("offset").collect()
    assert [(each.key, bytes(each.value)) for each in rows[0].headers] == [
        ("kind", b"hot"),
        ("size", b"3"),
    ]
    assert rows[1].headers is None
    assert rows[1].key is None
    assert [row.codec for row in read(columns="offset,codec").orderBy("offset").collect()] == [
        "msgpack",
        "text",
    ]


def test_a_batch_is_all_of_a_stream_and_takes_nothing(read: Read, orders: shmq.Stream) -> None:
    fill(orders, 3000)
    for parts in (None, 7):
        rows = read(minPartitions=parts).collect()
        assert values(rows) == bodies(3000)
        assert all(int(row.value) % 3 == row.partition for row in rows)
    assert [each.latest for each in orders.offsets()] == [1000] * 3


def test_a_batch_goes_from_one_offset_to_another(read: Read, orders: shmq.Stream) -> None:
    fill(orders, 30)
    start = json.dumps({"orders": {"0": 8, "1": -2, "2": 10}})
    end = json.dumps({"orders": {"0": 10, "1": 1, "2": -1}})

    rows = read(startingOffsets=start, endingOffsets=end).collect()
    assert sorted((row.partition, row.offset) for row in rows) == [(0, 8), (0, 9), (1, 0)]

    assigned = read(subscribe=None, assign='{"orders": [1]}').collect()
    assert {row.partition for row in assigned} == {1}
    assert len(assigned) == 10


def test_a_batch_goes_from_one_time_to_another(read: Read, orders: shmq.Stream) -> None:
    for second in range(1000, 1010):
        orders.append(b"%d" % second, partition=0, timestamp=float(second))

    rows = read(startingTimestamp=1_003_000, startingOffsetsByTimestampStrategy="latest",
                endingTimestamp=1_006_000).collect()  # fmt: skip
    assert values(rows) == [b"1003", b"1004", b"1005"]
    assert "no record of it is of that time" in error_of(read(startingTimestamp=9_000_000).collect)


def test_several_streams_are_read_together(
    read: Read, broker: shmq.Broker, orders: shmq.Stream
) -> None:
    paid = broker.create_stream("paid", 1, ring_bytes=1 << 16)
    fill(orders, 6)
    paid.append(b"x")
    both = read(subscribe=None, subscribePattern="orders|paid").collect()
    assert sorted({row.topic for row in both}) == ["orders", "paid"]
    assert len(both) == 7


def test_records_that_are_gone_are_told_of_or_left_out(read: Read, orders: shmq.Stream) -> None:
    for number in range(3000):
        orders.append(b"%06d" % number + bytes(1000), partition=0)
    gone = orders.earliest(0)
    assert gone > 0
    start = json.dumps({"orders": {"0": 0, "1": 0, "2": 0}})

    said = error_of(read(startingOffsets=start).collect)
    assert f"partition 0, offsets 0 to {gone - 1}, are gone" in said
    assert "failOnDataLoss=false" in said
    left = read(startingOffsets=start, failOnDataLoss="false").select("offset").collect()
    assert sorted(row.offset for row in left) == list(range(gone, 3000))


def test_an_offset_that_is_not_there_yet_is_an_error(read: Read, orders: shmq.Stream) -> None:
    start = json.dumps({"orders": {"0": 5, "1": 0, "2": 0}})
    assert "whose next offset is 0" in error_of(read(startingOffsets=start).collect)


def test_a_name_is_that_of_whatever_there_is(
    read: Read, broker: shmq.Broker, orders: shmq.Stream
) -> None:
    orders.append(b"of the stream", partition=0)
    assert values(read().collect()) == [b"of the stream"]

    queue = broker.create_queue("orders", allow_same_name=True, dead_letter=None)
    queue.put(b"of the queue")
    assert "a queue and a stream of the name 'orders'" in error_of(read)
    assert values(read(kind="queue").collect()) == [b"of the queue"]
    assert values(read(kind="stream").collect()) == [b"of the stream"]


def test_what_is_missing_or_wrong_is_said_before_anything_runs(
    read: Read, broker: shmq.Broker, orders: shmq.Stream
) -> None:
    broker.create_queue("jobs", dead_letter=None)
    assert "stream 'nothing' does not exist" in error_of(
        read(kind="stream", subscribe="nothing").collect
    )
    assert "a queue has no offsets" in error_of(
        lambda: read(subscribe="jobs", startingOffsets="earliest")
    )
    assert "it is of queues" in error_of(lambda: read(states="ready"))
    assert "one read is of one kind" in error_of(lambda: read(subscribe="jobs,orders"))


# ---- a query ----


@pytest.fixture
def query(spark: SparkSession, namespace: str, checkpoint: str) -> Query:
    given = {"url": namespace, "subscribe": "orders", "startingOffsets": "earliest"}
    return Query(spark, checkpoint, given)


def test_a_query_has_each_record_once_and_goes_on_where_it_was(
    query: Query, orders: shmq.Stream
) -> None:
    for first in (0, 300):
        fill(orders, 300, first)
        query.run()
    assert query.values == bodies(600)
    assert len(query.batches) == 2


def test_a_query_begins_with_what_comes_after_its_start_unless_told(
    query: Query, orders: shmq.Stream
) -> None:
    del query.given["startingOffsets"]
    fill(orders, 30)
    query.run()
    assert query.values == []
    fill(orders, 30, 30)  # nothing ran meanwhile: the checkpoint knows where it began
    query.run()
    assert query.values == bodies(30, 30)


def test_a_batch_that_is_replayed_has_the_very_same_rows(query: Query, orders: shmq.Stream) -> None:
    fill(orders, 100)
    query.fail_at = 0
    assert "the sink fails at batch 0" in query.fails()
    fill(orders, 100, 100)
    query.fail_at = None
    query.run(minPartitions=5)

    (_, first), (_, again) = query.seen[:2]
    assert sorted(first) == sorted(again)
    assert query.values == bodies(200)


def test_a_batch_has_no_more_than_is_asked_for_of_each_and_its_progress_says_how_many_wait(
    query: Query, orders: shmq.Stream
) -> None:
    for number in range(80):
        orders.append(b"%06d" % number, partition=0)
    for number in range(80, 100):
        orders.append(b"%06d" % number, partition=1)
    told = query.run(maxOffsetsPerTrigger=50).recentProgress

    first = [row.partition for row in query.batches[0]]
    assert (first.count(0), first.count(1)) == (40, 10)
    assert [len(rows) for rows in query.batches.values()] == [50, 50]
    assert query.values == bodies(100)
    found = [json.loads(each["sources"][0]["latestOffset"]) for each in told]
    assert [each["backlog"] for each in found] == [50, 0]
    assert found[0]["oldest"] > found[-1]["oldest"] == 0
    assert found[0]["offsets"] == {"orders": {"0": 80, "1": 20, "2": 0}}


def test_a_batch_waits_until_there_is_enough_or_long_enough(
    query: Query, orders: shmq.Stream
) -> None:
    running = query.start({"processingTime": "0 seconds"}, minOffsetsPerTrigger=20)
    try:
        until(lambda: 0 in query.batches, running)
        fill(orders, 6)
        until(lambda: running.status["message"] == "Waiting for data to arrive", running)
        assert len(query.batches) == 1
        fill(orders, 14, 6)
        until(lambda: len(query.values) == 20, running)
        assert len(query.batches) == 2
    finally:
        running.stop()
    fill(orders, 2, 20)
    query.run(minOffsetsPerTrigger=20)  # all there is now is asked for, be it enough or not
    assert query.values == bodies(22)


def test_what_was_overwritten_before_it_was_read_is_an_error_or_left_out(
    query: Query, orders: shmq.Stream
) -> None:
    orders.append(b"%06d" % 0, partition=0)
    query.run()
    for number in range(1, 3000):
        orders.append(b"%06d" % number + bytes(1000), partition=0)

    said = query.fails()
    assert "records that were to be read of the stream 'orders', partition 0" in said
    query.run(failOnDataLoss="false")
    gone = orders.earliest(0)
    assert [int(value[:6]) for value in query.values] == [0, *range(gone, 3000)]


def test_a_stream_that_was_made_anew_is_an_error_or_read_from_its_beginning(
    query: Query, broker: shmq.Broker, orders: shmq.Stream
) -> None:
    fill(orders, 9)
    query.run()
    broker.delete_stream("orders")
    with broker.create_stream("orders", 3, ring_bytes=1 << 20) as again:
        fill(again, 6, 100)
        assert "was deleted and recreated" in query.fails()
        query.run(failOnDataLoss="false")
    assert query.values == bodies(9) + bodies(6, 100)


def test_a_group_is_told_of_what_spark_has_committed_and_of_nothing_else(
    query: Query, orders: shmq.Stream
) -> None:
    fill(orders, 30)
    group = orders.group("archive")
    query.given["group"] = "archive"
    query.fail_at = 1
    query.fails(maxOffsetsPerTrigger=12)
    assert group.committed() == {0: 4, 1: 4, 2: 4}  # batch 0 alone is in the output

    query.fail_at = None
    query.run()
    assert query.values == bodies(30)
    settle(query.given, query.newest_offset())
    assert group.committed() == {0: 10, 1: 10, 2: 10}


def test_a_new_query_goes_on_where_its_group_is(query: Query, orders: shmq.Stream) -> None:
    fill(orders, 30)
    orders.group("archive").reset({0: 5, 1: 10, 2: 0})
    del query.given["startingOffsets"]
    query.run(group="archive")
    assert len(query.values) == 5 + 0 + 10


def test_each_query_has_a_group_of_its_own_if_its_name_begins_as_it_is_told(
    query: Query, orders: shmq.Stream
) -> None:
    fill(orders, 30)
    query.given["groupIdPrefix"] = "archive"
    query.run(maxOffsetsPerTrigger=12)
    (name,) = [each.name for each in orders.groups()]
    assert name.startswith("archive-")

    fill(orders, 30, 30)
    query.run()
    settle(query.given, query.newest_offset())
    assert [each.name for each in orders.groups()] == [name]
    assert orders.group(name).committed() == {0: 20, 1: 20, 2: 20}
    assert "both name the query's group" in query.fails(group="other")


def test_a_stream_that_appears_after_the_first_run_is_read_from_its_beginning(
    query: Query, broker: shmq.Broker
) -> None:
    query.given = {"url": query.given["url"], "subscribePattern": "orders"}
    assert "neither a queue nor a stream that matches 'orders'" in query.fails()
    query.given["kind"] = "stream"
    query.run()
    assert query.values == []
    with broker.create_stream("orders", 1) as late:
        fill(late, 7)
        query.run()
        broker.delete_stream("orders")
    assert query.values == bodies(7)


def test_batches_follow_each_other_while_the_minimum_waits_and_one_run_has_everything(
    query: Query, orders: shmq.Stream
) -> None:
    fill(orders, 900)
    running = query.start(
        {"processingTime": "0 seconds"}, minOffsetsPerTrigger=100, maxOffsetsPerTrigger=100
    )
    try:
        until(lambda: len(query.values) == 900, running)
    finally:
        running.stop()
    assert [len(rows) for rows in query.batches.values()] == [100] * 9

    query.run()  # the stop may have interrupted the last batch
    fill(orders, 50, 900)
    once = query.start({"once": True}, minOffsetsPerTrigger=100)
    assert once.awaitTermination(PATIENCE)
    assert query.values == bodies(950)


def test_every_partition_has_its_turn_after_a_replay_and_restarts(
    query: Query, broker: shmq.Broker
) -> None:
    with broker.create_stream("orders", 5) as many:
        fill(many, 50)
        for last in range(5):
            query.fail_at = last
            query.fails(maxOffsetsPerTrigger=2)
            query.fail_at = last + 1
        query.fails(maxOffsetsPerTrigger=2, minPartitions=8)
        rows = [row.partition for batch in query.batches.values() for row in batch]
        broker.delete_stream("orders")
    assert Counter(rows) == dict.fromkeys(range(5), 2)


# ---- writing ----


def write(frame: DataFrame, url: str, **options: Any) -> None:
    frame.write.format("shmq").mode("append").options(url=url, topic="orders", **options).save()


def held(stream: shmq.Stream) -> list[shmq.Record]:
    """All that the stream has."""
    return [
        record
        for p in range(stream.partitions)
        for record in stream.read(p, stream.earliest(p), 100_000, max_bytes=1 << 24)
    ]


def test_every_column_reaches_the_record(
    spark: SparkSession, namespace: str, orders: shmq.Stream
) -> None:
    rows = [("tea", "drinks", {"hot": "yes"}, None, None), ('{"a": 1}', None, None, 2, "json")]
    ddl = "value string, key string, headers map<string, string>, partition int, codec string"
    write(spark.createDataFrame(rows, ddl).coalesce(1), namespace)

    tea, made = sorted(held(orders), key=lambda record: record.codec, reverse=True)
    assert (tea.value, tea.key, dict(tea.headers), tea.codec) == (
        b"tea", b"drinks", {"hot": "yes"}, "text",
    )  # fmt: skip
    assert (made.body, made.key, dict(made.headers), made.partition) == ({"a": 1}, None, {}, 2)


def test_a_key_has_the_partition_that_an_append_gives_it_and_keeps_its_order(
    spark: SparkSession, namespace: str, orders: shmq.Stream
) -> None:
    frame = spark.range(0, 5000, 1, 2).select(
        f.col("id").cast("string").alias("value"), (f.col("id") % 11).cast("string").alias("key")
    )
    write(frame.coalesce(1), namespace)
    by_key: dict[bytes, list[shmq.Record]] = {}
    for record in held(orders):
        by_key.setdefault(record.key or b"", []).append(record)

    assert sum(map(len, by_key.values())) == 5000
    for key, records in by_key.items():
        assert {record.partition for record in records} == {orders.append(b"", key=key).partition}
        numbers = [int(record.value) for record in records]
        assert numbers == sorted(numbers)


def test_what_was_read_can_be_written(
    read: Read, broker: shmq.Broker, namespace: str, orders: shmq.Stream
) -> None:
    fill(orders, 300)
    copy = broker.create_stream("copy", 3, ring_bytes=1 << 20)
    frame = read(includeHeaders="true")
    frame.write.format("shmq").mode("append").options(url=namespace, topic="copy").save()
    assert [(r.partition, r.offset, r.key, r.value) for r in held(copy)] == [
        (r.partition, r.offset, r.key, r.value) for r in held(orders)
    ]


def test_a_batch_of_a_publisher_is_written_once(
    spark: SparkSession, namespace: str, orders: shmq.Stream
) -> None:
    frame = spark.range(0, 1000, 1, 2).select(f.col("id").cast("string").alias("value"))
    for _ in range(2):
        write(frame, namespace, publisher="daily", batch=7)
    assert len(held(orders)) == 1000
    write(frame, namespace, publisher="daily", batch=8)
    assert len(held(orders)) == 2000


def test_what_is_more_than_a_piece_is_written_once_too(
    spark: SparkSession, broker: shmq.Broker, namespace: str
) -> None:
    small = broker.create_stream("orders", 2, ring_bytes=1 << 19)  # a piece: a quarter of it
    frame = spark.range(0, 3000, 1, 1).select(
        f.lpad(f.col("id").cast("string"), 100, "0").alias("value")
    )
    for _ in range(2):
        write(frame, namespace, publisher="once", batch=1)
    assert sorted(int(record.value) for record in held(small)) == list(range(3000))


@pytest.mark.parametrize("repartitioned", [False, True], ids=["", "repartitioned"])
def test_a_query_publishes_each_batch_once_however_often_it_runs(
    spark: SparkSession,
    broker: shmq.Broker,
    namespace: str,
    orders: shmq.Stream,
    checkpoint: str,
    repartitioned: bool,
) -> None:
    fill(orders, 600)
    copy = broker.create_stream("copy", 2, ring_bytes=1 << 20)

    def run(**given: Any) -> None:
        reader = spark.readStream.format("shmq").options(url=namespace, subscribe="orders", **given)
        frame = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger=200).load()
        writer = frame.select("key", "value").writeStream.format("shmq")
        writer = writer.options(url=namespace, topic="copy", checkpointLocation=checkpoint)
        assert writer.trigger(availableNow=True).start().awaitTermination(PATIENCE)

    run(minPartitions=5)
    for commit in Path(checkpoint, "commits").glob("*[2]*"):  # as if it had been cut off there
        commit.unlink()
    if repartitioned:
        copy.repartition(3)
    run()
    assert sorted(record.value for record in held(copy)) == bodies(600)


def test_a_write_that_cannot_be_is_refused_at_the_driver(
    spark: SparkSession, namespace: str, orders: shmq.Stream
) -> None:
    frame = spark.range(1).select(f.lit("x").alias("value"))
    assert "it must be" in error_of(
        lambda: write(frame.withColumn("partition", f.lit("a")), namespace)
    ).replace("and must be", "it must be")
    assert "the column 'value' is missing" in error_of(lambda: write(frame.toDF("body"), namespace))
    assert "'nothing'" in error_of(
        lambda: frame.write.format("shmq").mode("append")
        .options(url=namespace, topic="nothing", kind="stream").save()
    )  # fmt: skip
    assert "nothing is removed from a stream" in error_of(
        lambda: frame.write.format("shmq").mode("overwrite")
        .options(url=namespace, topic="orders").save()
    )  # fmt: skip
    assert "the stream has the partitions 0 to 2" in error_of(
        lambda: write(frame.withColumn("partition", f.lit(3)), namespace)
    )
