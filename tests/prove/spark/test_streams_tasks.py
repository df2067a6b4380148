"""What the tasks of a job do with streams, on this host and over TCP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types

import shmq
from shmq.model.codec.compression import compressor
from shmq.native import _stream
from shmq.spark.format_dispatch import find_kind
from shmq.spark.shared.address import Address
from shmq.spark.shared.options import WRITE
from shmq.spark.shared.sink import BatchId
from shmq.spark.stream import append
from shmq.spark.stream.kind import STREAM_KIND
from shmq.spark.stream.reader import Range, read_range
from shmq.spark.stream.writer import StreamSink
from tests.support.server import serve
from tests.support.writer_process import running_writer
from tests.system.wire import entries

READ = types.StructType(
    [
        types.StructField("key", types.BinaryType()),
        types.StructField("value", types.BinaryType()),
        types.StructField("offset", types.LongType()),
    ]
)
WITH_HEADERS = types.StructType(
    [
        types.StructField("offset", types.LongType()),
        types.StructField(
            "headers",
            types.ArrayType(
                types.StructType(
                    [
                        types.StructField("key", types.StringType()),
                        types.StructField("value", types.BinaryType()),
                    ]
                )
            ),
        ),
    ]
)
WRITTEN = types.StructType(
    [types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())]
)


@pytest.fixture
def url(request: pytest.FixtureRequest, broker: shmq.Broker) -> Iterator[str]:
    """Where the tasks find the streams of the broker: on this host, unless a test asks for TCP."""
    if getattr(request, "param", "local") == "local":
        yield broker.namespace
        return
    with serve(broker.namespace, persist=False) as server:  # a test may have a writer of its own
        yield server.url


everywhere = pytest.mark.parametrize("url", ["local", "tcp"], indirect=True)


@pytest.fixture
def orders(broker: shmq.Broker) -> shmq.Stream:
    return broker.create_stream("orders", 2, ring_bytes=1 << 19)


def rows(url: str, stream: shmq.Stream, start: int, end: int, **how: Any) -> list[dict[str, Any]]:
    """The rows of partition 0, as a task reads them."""
    wanted = Range(stream.name, how.pop("identity", stream.identity), 0, start, end)
    strict = how.pop("strict", True)
    batches = read_range(Address(url), wanted, READ, 1 << 12, strict=strict)
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize(
    "packed",
    [b"\x81\xa1h\xd7\xff" + b"\xff" * 8, b"\x81\xa1h\xc7\x0c\xff" + b"\xff" * 12],
    ids=["of 64 bits", "of 96 bits"],
)
def test_headers_with_a_time_that_is_none_are_told_with_the_record(
    url: str, orders: shmq.Stream, packed: bytes
) -> None:
    orders.append(b"good", headers={"h": 1}, partition=0)
    orders.append_block(entries.entry(b"bad", None, packed), partition=0)
    wanted = Range("orders", orders.identity, 0, 0, 2)

    with pytest.raises(
        shmq.ShmqError, match=r"offset 1 of partition 0 of stream 'orders' are damaged.*'headers'"
    ):
        list(read_range(Address(url), wanted, WITH_HEADERS, 1 << 12, strict=True))

    assert [row["value"] for row in rows(url, orders, 0, 2)] == [b"good", b"bad"]


def test_headers_whose_values_are_maps_with_any_keys_are_json(
    url: str, orders: shmq.Stream
) -> None:
    orders.append(b"", headers={"h": {b"k": [{1: None}], "t": True}}, partition=0)
    wanted = Range("orders", orders.identity, 0, 0, 1)

    (batch,) = read_range(Address(url), wanted, WITH_HEADERS, 1 << 12, strict=True)

    value = b'{"aw==": [{"1": null}], "t": true}'
    assert batch.to_pylist() == [{"offset": 0, "headers": [{"key": "h", "value": value}]}]


@everywhere
def test_a_task_has_just_the_offsets_of_its_range(url: str, orders: shmq.Stream) -> None:
    orders.append_many([b"%03d" % n for n in range(300)], partition=0)
    found = rows(url, orders, 17, 290)
    assert [row["offset"] for row in found] == list(range(17, 290))
    assert [row["value"] for row in found] == [b"%03d" % n for n in range(17, 290)]


def test_records_that_were_compressed_together_are_rows_of_their_own(
    url: str, orders: shmq.Stream
) -> None:
    block = _stream.pack_records([b"%03d" % n for n in range(100)], keys=["k"] * 100)
    orders.append_block(
        compressor("lz4")(block), partition=0, count=100, compression="lz4", raw_bytes=len(block)
    )
    assert [(row["key"], row["value"]) for row in rows(url, orders, 30, 60)] == [
        (b"k", b"%03d" % number) for number in range(30, 60)
    ]


def test_what_has_left_the_ring_is_rows_from_the_files(url: str, broker: shmq.Broker) -> None:
    values = [b"%0100d" % n for n in range(2000)]
    with running_writer(broker.namespace):
        kept = broker.create_stream("kept", 1, ring_bytes=64 << 10, durability="journal")
        for first in range(0, 2000, 20):
            lot = values[first : first + 20]
            kept.append_many(lot, partition=0, confirm="disk", timeout=60)
        found = rows(url, kept, 17, 1990)
    assert [(row["offset"], row["value"]) for row in found] == [
        (offset, values[offset]) for offset in range(17, 1990)
    ]


@everywhere
def test_a_task_that_comes_too_late_says_so_or_leaves_out(url: str, orders: shmq.Stream) -> None:
    orders.append_many([bytes(1000)] * 2000, partition=0)
    gone = orders.earliest(0)
    with pytest.raises(shmq.OffsetOutOfRange, match=f"offsets 0 to {gone - 1}, are gone"):
        rows(url, orders, 0, 2000)
    left = rows(url, orders, 0, 2000, strict=False)
    assert [row["offset"] for row in left] == list(range(gone, 2000))
    with pytest.raises(shmq.StreamDeleted, match="recreated"):
        rows(url, orders, gone, 2000, identity=1)


@everywhere
def test_a_task_that_runs_again_appends_nothing_more(url: str, orders: shmq.Stream) -> None:
    given = {"url": url, "topic": "orders"}
    chosen = STREAM_KIND.parse(given, WRITE)
    sink = StreamSink.of(chosen, WRITTEN)
    batch = pa.RecordBatch.from_pydict(
        {"key": [f"k{n % 5}" for n in range(4000)], "value": [b"%0100d" % n for n in range(4000)]},
        pa.schema({"key": pa.string(), "value": pa.binary()}),
    )
    edition = BatchId("me", 3, "part", 0)
    first = append.append(sink, edition, [batch])
    again = append.append(sink, edition, [batch.slice(0, 1000), batch.slice(1000)])

    assert (first.rows, first.before) == (4000, 0)
    assert (again.rows, again.before) == (4000, 4000)
    assert sum(each.latest for each in orders.offsets()) == 4000
    next_one = append.append(sink, BatchId("me", 4, "part", 0), [batch])
    assert next_one.before == 0


@everywhere
def test_a_name_is_found_to_be_a_stream(url: str, orders: shmq.Stream) -> None:
    assert find_kind({"url": url, "subscribe": orders.name}) is STREAM_KIND
