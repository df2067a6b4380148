"""``spark.readStream.format("shmq")``: leased, and acknowledged once Spark has the batch."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.types import StructType

import shmq
from shmq.spark.commit_on_stop import settle
from shmq.spark.queue.kind import QUEUE
from shmq.spark.queue.reader import QueueInputPartition
from tests.prove.spark.query import ONCE, PATIENCE, Query, until
from tests.support.certificates import WHY_NOT, Certificates
from tests.support.server import serve

SESAME = "open-sesame-" * 3


@pytest.fixture
def orders(broker: shmq.Broker) -> shmq.Queue:
    return broker.create_queue("orders", max_deliveries=20)


@pytest.fixture
def stream(spark: SparkSession, broker: shmq.Broker, checkpoint: str) -> Query:
    return Query(spark, checkpoint, {"url": broker.namespace, "subscribe": "orders"})


def bodies(count: int, first: int = 0) -> list[bytes]:
    return [b"%06d" % n for n in range(first, first + count)]


@pytest.mark.smoke
def test_all_there_is_comes_once_and_is_acknowledged(stream: Query, orders: shmq.Queue) -> None:
    orders.put_many(bodies(2000))
    stream.run()

    assert stream.values == bodies(2000)
    assert orders.stats().acked == 2000
    assert orders.stats().depth == orders.stats().in_flight == 0


def test_what_comes_later_is_in_a_later_run(stream: Query, orders: shmq.Queue) -> None:
    for count in (100, 0, 100):
        orders.put_many(bodies(count, len(stream.values)))
        stream.run()
    assert stream.values == bodies(200)
    assert len(stream.batches) == 2


def test_nothing_is_acknowledged_before_spark_has_committed_it(
    stream: Query, orders: shmq.Queue
) -> None:
    orders.put_many(bodies(10))
    stream.fail_at = 0
    assert "the sink fails at batch 0" in stream.fails()

    assert orders.stats().acked == 0
    assert orders.stats().in_flight == 10  # the query's, for its next start


def test_a_batch_that_is_replayed_has_the_very_same_rows_in_as_many_parts_as_are_asked_for(
    stream: Query, orders: shmq.Queue
) -> None:
    orders.put_many(bodies(700), headers={"a": "b"}, group=None)
    parts: list[int] = []
    stream.before = lambda frame: parts.append(frame.rdd.getNumPartitions())
    stream.fail_at = 0
    stream.fails(minPartitions=3, columns="all")
    orders.put_many(bodies(300, 700), priority=shmq.HIGH)  # would be served first
    stream.fail_at = None
    stream.run(minPartitions=3, columns="all")

    def alike(rows: list[Row]) -> list[Row]:
        kept = ("key", "value", "topic", "partition", "offset", "timestamp", "priority", "codec")
        return sorted(Row(**{name: row[name] for name in kept}) for row in rows)

    (_, failed), (_, replayed) = stream.seen[:2]
    assert alike(failed) == alike(replayed)
    assert parts == [3, 3, 3]
    assert len(failed) == 700
    assert stream.values == bodies(1000)
    assert orders.stats().acked == 1000


def test_the_limits_of_a_trigger_are_kept_and_the_progress_says_how_much_waits(
    stream: Query, orders: shmq.Queue
) -> None:
    orders.put_many(bodies(100))
    query = stream.run(maxOffsetsPerTrigger=60)
    assert [len(rows) for rows in stream.batches.values()] == [60, 40]
    said = [json.loads(each.sources[0].latestOffset) for each in query.recentProgress]
    assert [each["backlog"] for each in said] == [40, 0]
    assert said[0]["queues"] == {"orders": 40}
    assert said[0]["oldest"] > said[1]["oldest"] == 0
    assert said[0]["redelivered"] == 0


def test_the_bytes_of_a_trigger_are_bounded(stream: Query, orders: shmq.Queue) -> None:
    orders.put_many([bytes(1000)] * 20)
    stream.run(maxBytesPerTrigger="4500")
    assert sum(len(rows) for rows in stream.batches.values()) == 20
    assert max(len(rows) for rows in stream.batches.values()) == 5


def test_a_run_over_all_there_is_ends_though_more_comes(stream: Query, orders: shmq.Queue) -> None:
    orders.put_many(bodies(50))

    def put_as_many_as_a_batch_takes(_: DataFrame) -> None:
        orders.put_many([b"later"] * 20)

    stream.before = put_as_many_as_a_batch_takes
    stream.run(maxOffsetsPerTrigger=20)
    assert stream.values == bodies(50)


def test_a_batch_waits_until_there_is_enough(stream: Query, orders: shmq.Queue) -> None:
    orders.put_many(bodies(6))
    query = stream.start({"processingTime": "0 seconds"}, minOffsetsPerTrigger=20)
    try:
        until(lambda: query.status["message"] == "Waiting for data to arrive", query)
        assert (stream.values, orders.qsize()) == ([], 6)
        orders.put_many(bodies(14, 6))
        until(lambda: bool(stream.values), query)
    finally:
        query.stop()
    assert stream.values == bodies(20)
    orders.put_many(bodies(2, 20))
    stream.run(minOffsetsPerTrigger=20)  # all there is now is asked for, be it enough or not
    assert stream.values == bodies(22)


def test_a_batch_waits_no_longer_than_its_delay(stream: Query, orders: shmq.Queue) -> None:
    orders.put_many(bodies(6))
    query = stream.start(
        {"processingTime": "0 seconds"}, minOffsetsPerTrigger=20, maxTriggerDelay="1s"
    )
    try:
        until(lambda: bool(stream.values), query)
    finally:
        query.stop()
    assert stream.values == bodies(6)


def test_the_last_batch_of_a_query_that_was_stopped_is_acknowledged_by_the_next(
    stream: Query, orders: shmq.Queue
) -> None:
    orders.put_many(bodies(10))
    query = stream.start(ONCE)
    until(lambda: bool(stream.batches) and (stream.checkpoint / "commits/0").exists())
    query.stop()
    assert orders.stats().in_flight == 10
    stream.run()

    assert stream.values == bodies(10)
    assert orders.stats().acked == 10
    assert list(stream.batches) == [0]


def test_the_last_batch_of_a_query_that_has_ended_can_be_settled(
    stream: Query, orders: shmq.Queue
) -> None:
    orders.put_many(bodies(10))
    query = stream.start(ONCE)
    until((stream.checkpoint / "commits/0").exists)
    query.stop()
    offset = stream.newest_offset()

    assert settle(stream.given, offset) == 10
    assert settle(stream.given, offset) == 0
    assert orders.stats().acked == 10


def test_settling_what_is_no_offset_is_refused(stream: Query, orders: shmq.Queue) -> None:
    for wrong in ("{", '{"index": 3}', "[]"):
        with pytest.raises(shmq.ShmqError, match="offset"):
            settle(stream.given, wrong)


def a_failed_batch(stream: Query, orders: shmq.Queue, count: int = 10) -> None:
    orders.put_many(bodies(count))
    stream.fail_at = 0
    stream.fails(leaseTimeout="1s")
    stream.fail_at = None
    until(lambda: orders.qsize() == count)  # its leases have run out


def test_messages_that_another_consumer_took_meanwhile_are_an_error_or_left_out(
    stream: Query, orders: shmq.Queue
) -> None:
    a_failed_batch(stream, orders)
    for message in orders.get_many(2):
        message.ack()
    said = stream.fails()

    assert "2 of the 10 messages of batch 1 are no longer available in the queue 'orders'" in said
    assert "another consumer took them" in said
    assert "failOnDataLoss=false" in said
    assert orders.stats().acked == 2

    stream.run(failOnDataLoss="false")
    assert stream.values == bodies(8, 2)
    assert orders.stats().acked == 10


def test_a_queue_that_was_deleted_or_made_anew_meanwhile_is_an_error_or_gone_on_with(
    stream: Query, broker: shmq.Broker, orders: shmq.Queue
) -> None:
    a_failed_batch(stream, orders)
    broker.delete_queue("orders")
    said = stream.fails()
    assert "queue 'orders' does not exist" in said or "which was deleted" in said

    broker.create_queue("orders").put_many(bodies(10, 100))
    said = stream.fails()
    assert "10 of the 10 messages of batch 1" in said
    assert "which was deleted and recreated" in said

    stream.run(failOnDataLoss="false")
    assert stream.values == bodies(10, 100)


def test_a_queue_that_is_deleted_while_a_stream_waits_for_it_ends_the_stream(
    stream: Query, broker: shmq.Broker, orders: shmq.Queue
) -> None:
    orders.put_many(bodies(3))
    query = stream.start({"processingTime": "50 milliseconds"})
    try:
        until(lambda: orders.stats().acked == 3)
        broker.delete_queue("orders")
        with pytest.raises(StreamingQueryException, match="queue 'orders' does not exist"):
            query.awaitTermination(PATIENCE)
    finally:
        query.stop()


def test_a_batch_over_few_groups_is_of_full_size_and_in_the_order_of_each(
    stream: Query, orders: shmq.Queue
) -> None:
    for group in ("a", "b", "c"):
        orders.put_many([b"%s%04d" % (group.encode(), n) for n in range(1000)], group=group)
    stream.run(maxOffsetsPerTrigger=1500)
    assert [len(rows) for rows in stream.batches.values()] == [1500, 1500]
    for group in ("a", "b", "c"):
        found = [
            row.value
            for batch in sorted(stream.batches)
            for row in sorted(stream.batches[batch], key=lambda row: row.offset)
            if row.key == group.encode()
        ]
        assert found == [b"%s%04d" % (group.encode(), n) for n in range(1000)]


def test_an_offset_is_as_short_for_many_messages_as_for_one(
    stream: Query, orders: shmq.Queue
) -> None:
    orders.put_many(bodies(5001))
    stream.run(maxOffsetsPerTrigger=5000)
    many, one = (
        (stream.checkpoint / f"offsets/{n}").read_text().splitlines()[-1] for n in range(2)
    )
    assert len(many) == len(one) + 3 < 142  # the count has four digits


def test_a_checkpoint_of_something_else_is_refused_with_what_to_do(
    stream: Query, orders: shmq.Queue
) -> None:
    orders.put(b"x")
    stream.run()
    path = stream.checkpoint / "offsets/0"
    lines = path.read_text().splitlines()[:-1]
    (stream.checkpoint / "offsets/.0.crc").unlink(missing_ok=True)

    path.write_text("\n".join([*lines, '{"index": 3}']))
    assert "the checkpoint has an offset that is not one of" in stream.fails()


def test_messages_of_another_consumer_are_not_those_of_a_query_that_was_away(
    stream: Query, orders: shmq.Queue
) -> None:
    orders.put_many(bodies(10))
    stream.fail_at = 0
    stream.fails()
    stream.fail_at = None
    orders.put(b"later", priority=shmq.HIGH)
    with orders.get(block=False) as other:
        assert other.body == b"later"  # all others are leased, though no process has them
    stream.run()
    assert stream.values == bodies(10)
    assert orders.stats().redelivered == 10


def test_several_queues_share_a_trigger_by_what_is_in_them(
    stream: Query, broker: shmq.Broker, orders: shmq.Queue
) -> None:
    orders.put_many(bodies(90))
    broker.create_queue("few").put_many(bodies(30, 100))
    stream.run(subscribe="orders,few", maxOffsetsPerTrigger=40)

    first = [row.topic for row in stream.batches[0]]
    assert (first.count("orders"), first.count("few")) == (30, 10)
    assert stream.values == sorted(bodies(90) + bodies(30, 100))


def test_a_queue_that_comes_to_fit_the_pattern_is_read_too(
    spark: SparkSession, broker: shmq.Broker, checkpoint: str
) -> None:
    stream = Query(spark, checkpoint, {"url": broker.namespace, "subscribePattern": r"in\..*"})
    broker.create_queue("in.1", dead_letter=None).put(b"1")
    broker.create_queue("out", dead_letter=None).put(b"x")
    stream.run()
    broker.create_queue("in.2", dead_letter=None).put(b"2")
    stream.run()
    assert stream.values == [b"1", b"2"]


def test_leases_are_prolonged_while_a_batch_lasts(stream: Query, orders: shmq.Queue) -> None:
    orders.put_many(bodies(10))

    def slowly(frame: DataFrame) -> None:
        first = min(row.lease_until for row in frame.collect())
        until(lambda: min(row.lease_until for row in frame.collect()) > first)

    stream.before = slowly
    stream.run(leaseTimeout="2s", columns="all")
    assert stream.values == bodies(10)
    assert orders.stats().acked == 10
    assert orders.stats().redelivered == 0


@pytest.mark.parametrize("gone", [{0}, {3, 4, 9}, {99}, set(range(100))])
def test_of_a_part_of_which_some_is_gone_the_rest_is_read_where_data_may_be_lost(
    broker: shmq.Broker, orders: shmq.Queue, gone: set[int]
) -> None:
    orders.put_many(bodies(100))
    run = orders.bulk().lease_run(100)
    part = QueueInputPartition("orders", orders.identity, run.slots, run.sequences)
    for n in gone:
        orders.bulk().ack_run(run.receipts[8 * n : 8 * n + 8])

    def read(**given: str) -> list[bytes]:
        here = {"url": broker.namespace, "subscribe": "orders"}
        reader = QUEUE.stream_reader({**here, **given}, StructType().add("value", "binary"))
        found: list[Any] = list(reader.read(part))
        return [value.as_py() for batch in found for value in batch.column(0)]

    assert read(failOnDataLoss="false") == [
        body for n, body in enumerate(bodies(100)) if n not in gone
    ]
    with pytest.raises(shmq.LeaseExpired, match=f"{len(gone)} of 100 messages"):
        read()


def test_columns_and_headers_are_chosen_as_in_a_batch_read(
    stream: Query, orders: shmq.Queue
) -> None:
    orders.put(b"x", headers={"a": "b"})
    stream.run(columns="headers,value,state,delivery_count")
    (row,) = stream.batches[0]
    assert row == Row(
        headers=[Row(key="a", value=b"b")], value=b"x", state="leased", delivery_count=1
    )


def test_a_server_that_is_away_is_said_where_it_must_tell_a_queue_from_a_stream(
    stream: Query,
) -> None:
    away = {"url": "shmq://127.0.0.1:1", "connectTimeout": "1s", "requestTimeout": "1s"}
    with pytest.raises(AnalysisException, match=r"cannot connect to .*127\.0\.0\.1:1"):
        stream.run(**away)


@pytest.mark.skipif(bool(WHY_NOT), reason=str(WHY_NOT))
def test_a_server_is_read_with_a_token_over_tls_and_replayed(
    stream: Query, broker: shmq.Broker, orders: shmq.Queue, tmp_path_factory: pytest.TempPathFactory
) -> None:
    orders.put_many(bodies(3000))
    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    certificate, key = certificates.sign("server")
    rights = {SESAME: {"consume": ["orders"]}}
    tls = {"certificate": str(certificate), "key": str(key)}
    with serve(broker.namespace, tokens=rights, tls=tls) as server:
        stream.given.update(
            url=server.url, token=SESAME, tlsCa=str(certificates.ca), maxBytesPerBatch="64k"
        )
        stream.fail_at = 0
        stream.fails(maxOffsetsPerTrigger=2000)
        stream.fail_at = None
        stream.run(maxOffsetsPerTrigger=2000)
        assert [len(rows) for rows in stream.batches.values()] == [2000, 1000]
        assert stream.values == bodies(3000)
        until(lambda: orders.stats().acked == 3000)
