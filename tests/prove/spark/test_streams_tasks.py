"""What the tasks of a job do with streams, on this host and over TCP."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types

import shmq
from shmq.client.remote.stream import RemoteStream
from shmq.model.codec.compression import compressor
from shmq.native import _stream
from shmq.native._core import Answer
from shmq.protocol.opcodes import Type
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


# ---- a task that runs again after the stream was altered or repartitioned ----

KEYED = types.StructType(
    [
        types.StructField("key", types.StringType()),
        types.StructField("value", types.BinaryType()),
        types.StructField("partition", types.IntegerType()),
    ]
)
SEALED = "takes no records any more"


class CutOffError(Exception):
    """Ends a task in the middle of its rows."""


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks append pieces of some twenty rows, so that a cut leaves some of them appended."""
    monkeypatch.setattr(append, "_MOST", 4096)


def made(count: int, partitions: list[int | None] | None = None) -> pa.RecordBatch:
    """Rows of 100 bytes, two of three with one of seven keys."""
    return pa.RecordBatch.from_pydict(
        {
            "key": [f"k{n % 7}" if n % 3 else None for n in range(count)],
            "value": [b"%0100d" % n for n in range(count)],
            "partition": [None] * count if partitions is None else partitions,
        },
        pa.schema({"key": pa.string(), "value": pa.binary(), "partition": pa.int32()}),
    )


def split(batch: pa.RecordBatch, size: int, until: int | None = None) -> Iterator[pa.RecordBatch]:
    """The rows in batches of that size; with ``until`` the task is cut off there."""
    end = batch.num_rows if until is None else until
    for at in range(0, end, size):
        yield batch.slice(at, min(size, end - at))
    if until is not None:
        raise CutOffError


Run = Callable[..., append.Written]


@pytest.fixture
def run(url: str, orders: shmq.Stream) -> Run:
    """``run(batches, batch=3)``: a run of a task that appends these rows."""
    sink = StreamSink.of(STREAM_KIND.parse({"url": url, "topic": orders.name}, WRITE), KEYED)

    def run(batches: Iterable[pa.RecordBatch], batch: int = 3) -> append.Written:
        return append.append(sink, BatchId("me", batch, "part", 1), batches)

    return run


def appended(stream: shmq.Stream) -> list[shmq.Record]:
    """All records, partition after partition."""
    return [
        record
        for partition in range(stream.partitions)
        for record in stream.read(partition, 0, 10_000, max_bytes=1 << 24)
    ]


def numbers(stream: shmq.Stream) -> list[int]:
    return sorted(int(record.value) for record in appended(stream))


@everywhere
def test_a_task_that_was_cut_off_before_its_stream_got_a_larger_ring_appends_the_rest_once(
    run: Run, orders: shmq.Stream, broker: shmq.Broker
) -> None:
    broker.alter_stream(orders.name, ring_bytes=1 << 20)
    batch = made(9000)
    cuts = ((64, 4000, 1 << 21), (1000, 6000, 1 << 22))
    for size, until, ring_bytes in cuts:
        with pytest.raises(CutOffError):
            run(split(batch, size, until))
        there = len(numbers(orders))
        assert 0 < there < until, "the cut leaves rows that were not appended"
        broker.alter_stream(orders.name, ring_bytes=ring_bytes)
    last = run(split(batch, 700))

    assert (last.rows, last.before) == (9000, there)
    assert numbers(orders) == list(range(9000))
    assert run([batch]).before == 9000


@everywhere
def test_a_task_that_runs_again_after_a_repartition_appends_nothing_more(
    run: Run, orders: shmq.Stream
) -> None:
    batch = made(500)
    assert run([batch]).before == 0
    for partitions in (3, 5):
        orders.repartition(partitions)
        again = run(split(batch, 70))
        assert (again.rows, again.before) == (500, 500)

    assert numbers(orders) == list(range(500))
    assert run([batch], batch=4).before == 0
    assert orders.latest(0) + orders.latest(1) == 500, "the next batch has gone elsewhere"


@pytest.mark.parametrize("url", ["tcp"], indirect=True)
def test_a_task_of_a_repartitioned_stream_asks_once_what_sealed_partitions_have(
    run: Run, orders: shmq.Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    run([made(100)])
    for partitions in (3, 4, 5):
        orders.repartition(partitions)
    asked: list[Type] = []
    ask = RemoteStream.ask

    def count(stream: RemoteStream, kind: Type, rest: bytes, wait: float = 0.0) -> Answer:
        asked.append(kind)
        return ask(stream, kind, rest, wait)

    monkeypatch.setattr(RemoteStream, "ask", count)

    assert run([made(100)], batch=4).before == 0
    assert asked == [Type.STREAM_INFO]


@everywhere
@pytest.mark.usefixtures("small_pieces")
def test_a_task_that_was_cut_off_before_each_repartition_appends_the_rest_once(
    run: Run, orders: shmq.Stream
) -> None:
    batch = made(600)
    for size, until, partitions in ((40, 200, 3), (64, 400, 4), (25, 500, 7)):
        with pytest.raises(CutOffError):
            run(split(batch, size, until))
        there = len(numbers(orders))
        assert 0 < there < until, "the cut leaves rows that were not appended"
        orders.repartition(partitions)
    last = run(split(batch, 600))

    assert (last.rows, last.before) == (600, there)
    assert numbers(orders) == list(range(600))
    orders.repartition(8)
    assert run(split(batch, 99)).before == 600
    assert numbers(orders) == list(range(600))


@pytest.mark.usefixtures("small_pieces")
def test_the_rows_of_a_key_stay_in_order_across_a_repartition(
    run: Run, orders: shmq.Stream
) -> None:
    batch = made(600)
    with pytest.raises(CutOffError):
        run(split(batch, 40, 300))
    orders.repartition(3)
    run([batch])

    by_key: dict[bytes | None, list[int]] = {}
    for record in appended(orders):
        by_key.setdefault(record.key, []).append(int(record.value))
    assert len(by_key) == 8
    for key, values in by_key.items():
        assert key is None or values == sorted(values)


@pytest.mark.usefixtures("small_pieces")
def test_a_repartition_while_a_task_appends_ends_it_and_its_next_run_completes_it(
    run: Run, orders: shmq.Stream
) -> None:
    batch = made(400)

    def repartitioned() -> Iterator[pa.RecordBatch]:
        yield from split(batch.slice(0, 200), 50)
        orders.repartition(3)
        yield batch.slice(200)

    with pytest.raises(shmq.PartitionSealed, match=f"{SEALED}.*run again, it appends"):
        run(repartitioned())
    assert 0 < len(numbers(orders)) < 200

    run([batch])
    assert numbers(orders) == list(range(400))


def test_two_runs_at_once_of_which_one_is_older_than_the_repartition_append_once(
    run: Run, orders: shmq.Stream
) -> None:
    batch = made(400)

    def overtaken() -> Iterator[pa.RecordBatch]:
        yield batch.slice(0, 100)  # less than a piece, so it is not appended yet
        orders.repartition(3)
        assert run([batch]).before == 0
        yield batch.slice(100)

    with pytest.raises(shmq.PartitionSealed, match=SEALED):
        run(overtaken())

    assert run([batch]).before == 400
    assert numbers(orders) == list(range(400))


def test_pieces_of_another_size_than_before_the_repartition_append_once(
    run: Run, orders: shmq.Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = made(400)
    with monkeypatch.context() as patch:
        patch.setattr(append, "_MOST", 4096)  # as with a smaller ring
        with pytest.raises(CutOffError):
            run(split(batch, 50, 200))
    orders.repartition(3)
    run([batch])

    assert numbers(orders) == list(range(400))


def test_rows_that_ask_for_a_partition_are_there_once_and_never_in_another(
    run: Run, orders: shmq.Stream
) -> None:
    batch = made(300, [(n % 2 if n % 5 else None) for n in range(300)])
    run([batch])
    orders.repartition(3)

    assert run([batch]).before == 300
    with pytest.raises(shmq.PartitionSealed, match=SEALED):
        run([batch], batch=4)
    assert numbers(orders) == list(range(300))

    asked = made(300, [2 + n % 3 for n in range(300)])
    run([asked], batch=5)
    orders.repartition(4)
    assert run([asked], batch=5).before == 300
    assert [len(orders.read(p, 0, 1000)) for p in (2, 3, 4)] == [100] * 3


@pytest.mark.usefixtures("small_pieces")
def test_rows_that_ask_for_a_partition_that_was_made_since_get_it(
    run: Run, orders: shmq.Stream
) -> None:
    first = made(200)
    with pytest.raises(CutOffError):
        run(split(first, 50, 200))
    orders.repartition(3)
    second = made(30, [4] * 30)

    assert [run([first, second]).before for _ in range(2)][1] == 230
    assert len(appended(orders)) == 230
    in_4 = {record.value for record in orders.read(4, 0, 1000, max_bytes=1 << 20)}
    assert in_4 >= set(second.column("value").to_pylist())


def test_what_sealed_partitions_have_must_be_on_disk_too_if_the_write_asks_for_it(
    broker: shmq.Broker,
) -> None:
    kept = broker.create_stream("kept", 1, ring_bytes=1 << 20, durability="journal")
    given = {"url": broker.namespace, "topic": "kept", "publishTimeout": "100ms"}
    sink = StreamSink.of(STREAM_KIND.parse(given, WRITE), KEYED)
    task, batch = BatchId("me", 3, "part", 1), made(100)
    append.append(sink, task, [batch], "memory")
    kept.repartition(2)

    assert append.append(sink, task, [batch], "memory").before == 100
    with pytest.raises(shmq.NotConfirmed):  # nothing writes the stream
        append.append(sink, task, [batch], "disk")
