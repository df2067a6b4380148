"""Arrow's batches as rows for a queue: bodies, and the properties of each."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
from typing import Any

import pyarrow as pa
import pytest

import shmq
from shmq.errors import InvalidOption
from shmq.model.codec.codecs import unpack_properties
from shmq.spark.shared.columns import SinkColumns
from shmq.spark.shared.sink_rows import by_queue
from tests.prove.spark.test_sink_columns import schema

pytestmark = pytest.mark.usefixtures("spark")

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def one(ddl: str, columns: dict[str, pa.Array]) -> shmq.Rows:
    """The rows of a batch for one queue."""
    ((topic, rows),) = split(ddl, columns, "orders")
    assert topic == "orders"
    return rows


def split(ddl: str, columns: dict[str, pa.Array], topic: str | None) -> list[tuple[str, shmq.Rows]]:
    batch = pa.RecordBatch.from_pydict(columns)
    return list(by_queue(batch, SinkColumns.of(schema(ddl), topic), topic))


def sliced(data: Any, offsets: Any) -> list[bytes]:
    places = memoryview(offsets).cast("B").cast("i").tolist()
    return [bytes(data[start:end]) for start, end in itertools.pairwise(places)]


def taken(rows: shmq.Rows) -> list[bytes]:
    """The bodies as the queue takes them."""
    found = sliced(rows.data, rows.offsets)
    assert len(found) == len(rows)
    return found


def properties(rows: shmq.Rows) -> list[dict[str, Any]]:
    """The properties of each row, as the queue takes them."""
    if rows.metas is None:
        return [{}] * len(rows)
    return [unpack_properties(meta) for meta in sliced(rows.metas, rows.meta_offsets)]


def test_a_slice_of_a_batch_is_taken_where_it_lies() -> None:
    values = pa.array([b"one", b"two", b"three", b"four"]).slice(1, 2)
    keys = pa.array(["1", None, "3", "4"]).slice(1, 2)
    rows = one("value binary, key string", {"value": values, "key": keys})
    assert taken(rows) == [b"two", b"three"]
    assert properties(rows) == [{}, {"group": "3"}]
    assert taken(one("value binary", {"value": pa.array([], pa.binary())})) == []


def given(name: str, kind: str, values: pa.Array) -> list[Any]:
    """The property that a column of that name gives to each row; None for none."""
    bodies = pa.array([b""] * len(values))
    rows = one(f"value binary, {name} {kind}", {"value": bodies, name: values})
    assert rows.codec is None
    found = properties(rows)
    assert all(len(each) <= 1 for each in found)
    return [next(iter(each.items()), None) for each in found]


def test_bytes_are_mere_bodies() -> None:
    rows = one("value binary", {"value": pa.array([b"a", b"", b"\xff"])})
    assert (rows.codec, rows.metas) == (None, None)
    assert taken(rows) == [b"a", b"", b"\xff"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_text_is_text_unless_the_codec_says_otherwise(kind: pa.DataType) -> None:
    text = pa.array(["tea", "{}"], kind)
    plain = one("value string", {"value": text})
    assert (plain.codec, plain.metas) == ("text", None)
    assert taken(plain) == [b"tea", b"{}"]
    mixed = one("value string, codec string", {"value": text, "codec": pa.array([None, "json"])})
    assert (mixed.codec, properties(mixed)) == ("text", [{}, {"codec": "json"}])
    alike = one("value string, codec string", {"value": text, "codec": pa.array(["json"] * 2)})
    assert (alike.codec, alike.metas) == ("json", None)
    own = one("value string, codec string", {"value": text, "codec": pa.array(["avro"] * 2)})
    assert (own.codec, properties(own)) == ("text", [{"codec": "avro"}] * 2)


def test_a_column_of_nulls_says_nothing() -> None:
    values = {"value": pa.array([b"a"]), "priority": pa.array([None], pa.int32())}
    assert one("value binary, priority int", values).metas is None


@pytest.mark.parametrize("name", ["delay", "ttl"])
def test_seconds_come_as_numbers_and_as_intervals(name: str) -> None:
    assert given(name, "int", pa.array([3, None])) == [(name, 3000), None]
    assert given(name, "double", pa.array([0.25, 0.3])) == [(name, 250), (name, 300)]
    cents = pa.array([decimal.Decimal("1.50")])
    assert given(name, "decimal(10,2)", cents) == [(name, 1500)]
    spans = pa.array([dt.timedelta(minutes=2, microseconds=5), None], pa.duration("us"))
    assert given(name, "interval day to second", spans) == [(name, 120_001), None]
    for strange in (float("inf"), float("nan"), 1e300):
        with pytest.raises(InvalidOption, match=f"column {name} .* not finite, or too large"):
            given(name, "double", pa.array([0.5, strange]))


def test_a_key_is_a_group_as_text_or_its_bytes() -> None:
    assert given("key", "binary", pa.array(["ü".encode(), None])) == [("group", "ü"), None]
    assert given("key", "string", pa.array(["x"])) == [("group", "x")]
    assert given("group", "string", pa.array(["x"])) == [("group", "x")]
    with pytest.raises(InvalidOption, match="column key is not UTF-8"):
        given("key", "binary", pa.array([b"\xff"]))


def test_headers_are_text_where_their_bytes_are() -> None:
    lists = pa.array(
        [
            [{"key": "kind", "value": b"frame"}, {"key": "id", "value": b"\xff\x00"}],
            [{"key": "none", "value": None}],
            [],
            None,
        ],
        HEADERS,
    )
    ddl = "array<struct<key: string, value: binary>>"
    assert given("headers", ddl, lists) == [
        ("headers", {"kind": "frame", "id": b"\xff\x00"}),
        ("headers", {"none": None}),
        None,
        None,
    ]
    maps = pa.array([[("kind", "frame")], None], pa.map_(pa.string(), pa.string()))
    assert given("headers", "map<string, string>", maps) == [("headers", {"kind": "frame"}), None]


@pytest.mark.parametrize("key", ["kind", None])
def test_a_header_that_is_there_twice_or_has_no_name_is_refused(key: str | None) -> None:
    twice = [[{"key": "kind", "value": b"1"}, {"key": key, "value": b"2"}]]
    with pytest.raises(InvalidOption, match="headers have names, and each one once, not 'kind'"):
        given("headers", "array<struct<key: string, value: binary>>", pa.array(twice, HEADERS))


def test_a_list_of_headers_with_null_in_it_is_refused() -> None:
    with pytest.raises(InvalidOption, match="has a list with null in it"):
        given("headers", "array<struct<key: string, value: binary>>", pa.array([[None]], HEADERS))


def test_a_view_of_lists_is_refused() -> None:
    lists = pa.array([[]], pa.list_view(HEADERS.value_type))
    with pytest.raises(InvalidOption, match="must be a list of structs, or a map"):
        given("headers", "array<struct<key: string, value: binary>>", lists)


def test_a_row_without_a_value_is_refused() -> None:
    with pytest.raises(InvalidOption, match="column value is null in 1 of 2 rows"):
        one("value binary", {"value": pa.array([b"", None])})


def test_rows_go_to_the_queues_that_they_name_in_their_order() -> None:
    columns = {
        "value": pa.array([b"1", b"2", b"3"]),
        "topic": pa.array(["a", "b", "a"]),
        "priority": pa.array([1, None, 0]),
    }
    parts = split("value binary, topic string, priority int", columns, None)
    assert [name for name, _ in parts] == ["a", "b"]
    assert taken(parts[0][1]) == [b"1", b"3"]
    assert properties(parts[0][1]) == [{"pri": 1}, {"pri": 0}]
    assert taken(parts[1][1]) == [b"2"]
    columns["topic"] = pa.array(["a", None, None])
    with pytest.raises(InvalidOption, match="column topic is null in 2 of 3 rows"):
        split("value binary, topic string, priority int", columns, None)
