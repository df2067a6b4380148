"""What the driver's side of a streaming read asks of its queues and streams, and how often."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import BinaryType, StructField, StructType

import shmq
from shmq.api.query_pages import TABLE
from shmq.client.local.queue import LocalQueue
from shmq.client.local.stream import LocalStream
from shmq.spark.queue import leases
from shmq.spark.queue.kind import QUEUE
from shmq.spark.shared.kind import Kind
from shmq.spark.stream.kind import STREAM_KIND

SCHEMA = StructType([StructField("value", BinaryType(), nullable=False)])

Reader = Callable[..., Any]


@pytest.fixture
def reader(broker: shmq.Broker, request: pytest.FixtureRequest) -> Reader:
    """Makes the streaming reader of the queue or stream ``orders``."""

    def make(kind: Kind[Any], **options: str) -> Any:
        given = {"url": broker.namespace, "subscribe": "orders", **options}
        made: Any = kind.stream_reader(given, SCHEMA)
        request.addfinalizer(made.stop)
        return made

    return make


def counted(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[None]:
    """Gets an item for each call of the method."""
    calls: list[None] = []
    method = getattr(owner, name)

    def call(*given: Any, **named: Any) -> Any:
        calls.append(None)
        return method(*given, **named)

    monkeypatch.setattr(owner, name, call)
    return calls


def test_a_batch_of_queues_asks_once_how_much_waits(
    broker: shmq.Broker, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_queue("orders").put_many([b"x"] * 9)
    source = reader(QUEUE, minOffsetsPerTrigger="5")
    source.prepareForTriggerAvailableNow()
    asked = counted(monkeypatch, LocalQueue, "qsize")
    end = source.latestOffset(source.initialOffset(), ReadMaxRows(6))
    assert end["queues"]["orders"]["count"] == 6
    assert len(asked) == 1


def test_the_progress_of_queues_looks_at_all_messages_only_now_and_then(
    broker: shmq.Broker, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = broker.create_queue("orders")
    queue.put_many([b"x"] * 9)
    source = reader(QUEUE)
    looks = counted(monkeypatch, LocalQueue, "stats")
    monkeypatch.setattr(leases, "LOOK", 1e9)
    assert source.reportLatestOffset()["backlog"] == 9
    queue.put(b"x")
    assert source.reportLatestOffset()["queues"] == {"orders": 10}
    queue.purge()
    assert source.reportLatestOffset()["oldest"] == 0
    assert len(looks) == 1


def test_the_progress_of_streams_reads_what_waits_first_only_when_it_is_another(
    broker: shmq.Broker, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = broker.create_stream("orders", 2)
    for partition in range(2):
        stream.append_many([b"x"] * 5, partition=partition)
    source = reader(STREAM_KIND, startingOffsets="earliest")
    reads = counted(monkeypatch, LocalStream, "read")
    looks = counted(monkeypatch, LocalStream, "offsets")
    end = source.latestOffset(source.initialOffset(), ReadMaxRows(4))
    for _ in range(3):
        told = source.reportLatestOffset()
        assert (told["backlog"], told["offsets"]) == (6, {"orders": {"0": 5, "1": 5}})
        assert told["oldest"] > 0
    assert (len(looks), len(reads)) == (1, 2)
    source.latestOffset(end, ReadMaxRows(4))
    assert source.reportLatestOffset()["backlog"] == 2
    assert (len(looks), len(reads)) == (2, 4)


def test_a_task_of_a_replay_has_the_same_messages_whatever_the_cores_and_the_options(
    broker: shmq.Broker, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("orders", "parcels"):
        broker.create_queue(name).put_many([b"x"] * 6000)
    first = reader(QUEUE, subscribe="orders,parcels")
    begin = first.latestOffset(first.initialOffset(), ReadMaxRows(1))
    end = first.latestOffset(begin, ReadMaxRows(8000))
    planned = first.partitions(begin, end)
    assert planned[0].topic == "orders", "although the turn is that of the other queue"

    monkeypatch.setattr(os, "cpu_count", lambda: len(planned) + 1)
    for given in ({}, {"minPartitions": str(len(planned) + 3)}):
        again = reader(QUEUE, subscribe="orders,parcels", **given)
        assert again.partitions(begin, end) == planned


def test_a_task_of_a_replay_has_the_same_records_whatever_the_options(
    broker: shmq.Broker, reader: Reader
) -> None:
    broker.create_stream("orders", 2).append_many([b"x"] * 90, partition=1)
    for given, others in (
        ({"minPartitions": "3"}, {"minPartitions": "7"}),
        ({}, {"minPartitions": "2"}),
    ):
        first = reader(STREAM_KIND, startingOffsets="earliest", **given)
        begin = first.initialOffset()
        end = first.latestOffset(begin, ReadAllAvailable())
        again = reader(STREAM_KIND, **others)
        assert again.partitions(begin, end) == first.partitions(begin, end)


def test_a_queue_that_was_made_again_since_the_read_was_planned_is_an_error(
    broker: shmq.Broker,
) -> None:
    broker.create_queue("orders").put(b"x")
    source: Any = QUEUE.reader({"url": broker.namespace, "subscribe": "orders"}, SCHEMA)
    (part,) = source.partitions()
    assert [batch.num_rows for batch in source.read(part)] == [1]
    broker.delete_queue("orders")
    broker.create_queue("orders").put(b"y")
    with pytest.raises(shmq.QueueDeleted, match="recreated"):
        list(source.read(part))


def test_batches_have_all_of_sealed_partitions_before_any_record_of_those_behind_them(
    broker: shmq.Broker, reader: Reader
) -> None:
    stream = broker.create_stream("orders", 2)
    for partitions in (3, 4):
        for partition in stream.open_partitions:
            stream.append_many([b"x"] * 5, partition=partition)
        stream.repartition(partitions)
    stream.append_many([b"x"] * 5, partition=5)
    source = reader(STREAM_KIND, startingOffsets="earliest", maxOffsetsPerTrigger="8")
    end, batches = source.initialOffset(), []
    while (begin := end) != (end := source.latestOffset(begin, ReadMaxRows(8))):
        batches.append([(each.partition, len(each)) for each in source.partitions(begin, end)])
    assert batches == [
        [(0, 4), (1, 4)],
        [(0, 1), (1, 1)],
        [(2, 3), (3, 3), (4, 2)],
        [(2, 2), (3, 2), (4, 3)],
        [(5, 5)],
    ]


@pytest.mark.parametrize("kind", [QUEUE, STREAM_KIND], ids=lambda kind: str(kind.name))
def test_the_page_is_told_from_the_first_batch_on(
    broker: shmq.Broker, reader: Reader, kind: Kind[Any]
) -> None:
    if kind is QUEUE:
        broker.create_queue("orders")
    else:
        broker.create_stream("orders", 1)
    source = reader(kind, uiWebUrl="http://driver:4040")
    source.latestOffset(source.initialOffset(), ReadAllAvailable())
    with broker.table(TABLE) as table:
        assert [key.rpartition("/")[0] for key in table.keys("")] == [f"{kind.name}/orders"]
