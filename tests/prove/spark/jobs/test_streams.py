"""Jobs whose sources and sinks are streams."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

import shmq
from shmq.spark.queue.kind import QUEUE
from shmq.spark.shared.kind import Kind
from shmq.spark.stream.kind import STREAM_KIND
from tests.prove.spark.jobs.tools import rows_of, run_job, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVE = """
checkpoint = "checkpoint"
trigger = "available-now"
[source.options]
url = "{namespace}"
subscribe = "flights"
startingOffsets = "earliest"
group = "archive"
[sink]
path = "archive"
"""

HOT = """
checkpoint = "checkpoint"
trigger = "available-now"
[source.options]
url = "{namespace}"
subscribe = "flights"
startingOffsets = "earliest"
[aggregate]
window = "10s"
late = 0
by = ["stream", "partition"]
hot = 3
[hot.options]
url = "{namespace}"
topic = "hot"
"""


def test_a_stream_is_archived_once_and_its_group_is_told_of_all(
    spark: SparkSession, broker: shmq.Broker, namespace: str, tmp_path: Path
) -> None:
    flights = broker.create_stream("flights", 2, ring_bytes=1 << 16)
    path = written(tmp_path, ARCHIVE.format(namespace=namespace))
    for turn in range(2):
        flights.append_many([b"%d%d" % (turn, n) for n in range(10)], partition=turn)
        run_job(spark, "archive", path)

    rows = rows_of(spark, tmp_path / "archive").collect()
    assert sorted(bytes(row.value) for row in rows) == [b"%02d" % n for n in range(20)]
    assert {row.topic for row in rows} == {"flights"}
    assert flights.group("archive").committed() == {0: 10, 1: 10}


def test_a_partition_that_is_hot_is_raised_as_a_record(
    spark: SparkSession, broker: shmq.Broker, namespace: str, tmp_path: Path
) -> None:
    flights = broker.create_stream("flights", 5, ring_bytes=1 << 16)
    hot = broker.create_stream("hot", 1, ring_bytes=1 << 16)
    for partition in range(5):
        count = 96 if partition == 3 else 1
        flights.append_many([b"x"] * count, partition=partition, timestamp=1_700_000_000.0)
    flights.append(b"the end", partition=0, timestamp=1_700_000_100.0)
    run_job(spark, "aggregate", written(tmp_path, HOT.format(namespace=namespace)))

    (told,) = (record.body for record in hot.read(0, 0))
    assert (told["stream"], told["partition"], told["messages"]) == ("flights", "3", 96)
    assert told["times"] == pytest.approx(96 / 20)


@pytest.mark.parametrize("kind", [QUEUE, STREAM_KIND], ids=lambda kind: str(kind.name))
def test_a_source_has_nothing_new_once_its_stop_file_exists(
    spark: SparkSession, broker: shmq.Broker, namespace: str, tmp_path: Path, kind: Kind[Any]
) -> None:
    stop = tmp_path / "stop"
    options = {"url": namespace, "subscribe": "in", "stopFile": str(stop)}
    if kind is QUEUE:
        put = broker.create_queue("in", dead_letter=None).put
    else:
        put = broker.create_stream("in", 1, ring_bytes=1 << 16).append  # type: ignore[assignment]
        options["startingOffsets"] = "earliest"
    schema = StructType.fromDDL(kind.schema(options))
    reader: Any = kind.stream_reader(options, schema)  # type: ignore[arg-type]
    try:
        put(b"1")
        first = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        put(b"2")
        stop.touch()
        assert reader.latestOffset(first, ReadAllAvailable()) == first
        stop.unlink()
        assert reader.latestOffset(first, ReadAllAvailable()) != first
    finally:
        reader.stop()
