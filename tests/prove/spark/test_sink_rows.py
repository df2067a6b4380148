"""Arrow's batches as messages: bodies, and the arguments of a put for each."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
from typing import Any

import pyarrow as pa
import pytest

from shmq.errors import InvalidOption
from shmq.spark.shared.columns import SinkColumns
from shmq.spark.shared.sink_rows import Rows, by_queue
from tests.prove.spark.test_sink_columns import schema

pytestmark = pytest.mark.usefixtures("spark")

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def one(ddl: str, columns: dict[str, pa.Array]) -> Rows:
    """The rows of a batch for one queue."""
    ((topic, rows),) = split(ddl, columns, "orders")
    assert topic == "orders"
    return rows


def split(ddl: str, columns: dict[str, pa.Array], topic: str | None) -> list[tuple[str, Rows]]:
    batch = pa.RecordBatch.from_pydict(columns)
    return list(by_queue(batch, SinkColumns.of(schema(ddl), topic), topic))


def taken(rows: Rows) -> list[bytes]:
    """The bodies as the queue takes them."""
    prepared_puts = rows.prepared_puts()
    if isinstance(prepared_puts, list):
        return [body for body, _ in prepared_puts]
    offsets = list(prepared_puts.offsets)
    pairs = itertools.pairwise(offsets)
    return [bytes(prepared_puts.data[start:end]) for start, end in pairs]


def test_a_slice_of_a_batch_is_taken_where_it_lies() -> None:
    values = pa.array([b"one", b"two", b"three", b"four"]).slice(1, 2)
    assert taken(one("value binary", {"value": values})) == [b"two", b"three"]
    assert taken(one("value binary", {"value": pa.array([], pa.binary())})) == []


def arguments(name: str, kind: str, values: pa.Array) -> list[Any]:
    """What a column of that name gives to the put of each row; None for nothing."""
    bodies = pa.array([b""] * len(values))
    rows = one(f"value binary, {name} {kind}", {"value": bodies, name: values})
    given = rows.properties or [{}] * len(values)
    assert all(len(each) <= 1 for each in given)
    return [next(iter(each.items()), None) for each in given]


def test_bytes_are_mere_bodies() -> None:
    rows = one("value binary", {"value": pa.array([b"a", b"", b"\xff"])})
    assert (rows.codec, rows.properties) == (None, None)
    assert taken(rows) == [b"a", b"", b"\xff"]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_text_is_text_unless_the_codec_says_otherwise(kind: pa.DataType) -> None:
    text = pa.array(["tea", "{}"], kind)
    plain = one("value string", {"value": text})
    assert (plain.codec, plain.properties) == ("text", None)
    assert taken(plain) == [b"tea", b"{}"]
    codecs = pa.array([None, "json"])
    assert one("value string, codec string", {"value": text, "codec": codecs}).prepared_puts() == [
        (b"tea", {"codec": "text"}),
        (b"{}", {"codec": "json"}),
    ]


def test_a_column_of_nulls_says_nothing() -> None:
    values = {"value": pa.array([b"a"]), "priority": pa.array([None], pa.int32())}
    assert one("value binary, priority int", values).properties is None


@pytest.mark.parametrize("name", ["delay", "ttl"])
def test_seconds_come_as_numbers_and_as_intervals(name: str) -> None:
    assert arguments(name, "int", pa.array([3, None])) == [(name, 3.0), None]
    assert arguments(name, "double", pa.array([0.25])) == [(name, 0.25)]
    cents = pa.array([decimal.Decimal("1.50")])
    assert arguments(name, "decimal(10,2)", cents) == [(name, 1.5)]
    spans = pa.array([dt.timedelta(minutes=2, microseconds=5), None], pa.duration("us"))
    assert arguments(name, "interval day to second", spans) == [(name, 120.000005), None]


def test_a_key_is_a_group_as_text_or_its_bytes() -> None:
    assert arguments("key", "binary", pa.array(["ü".encode(), None])) == [("group", "ü"), None]
    assert arguments("key", "string", pa.array(["x"])) == [("group", "x")]
    assert arguments("group", "string", pa.array(["x"])) == [("group", "x")]
    with pytest.raises(InvalidOption, match="column key is not UTF-8"):
        arguments("key", "binary", pa.array([b"\xff"]))


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
    assert arguments("headers", ddl, lists) == [
        ("headers", {"kind": "frame", "id": b"\xff\x00"}),
        ("headers", {"none": None}),
        None,
        None,
    ]
    maps = pa.array([[("kind", "frame")], None], pa.map_(pa.string(), pa.string()))
    assert arguments("headers", "map<string, string>", maps) == [
        ("headers", {"kind": "frame"}),
        None,
    ]


@pytest.mark.parametrize("key", ["kind", None])
def test_a_header_that_is_there_twice_or_has_no_name_is_refused(key: str | None) -> None:
    twice = [[{"key": "kind", "value": b"1"}, {"key": key, "value": b"2"}]]
    with pytest.raises(InvalidOption, match="headers have names, and each one once, not 'kind'"):
        arguments("headers", "array<struct<key: string, value: binary>>", pa.array(twice, HEADERS))


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
    assert parts[0][1].prepared_puts() == [(b"1", {"priority": 1}), (b"3", {"priority": 0})]
    assert taken(parts[1][1]) == [b"2"]
    columns["topic"] = pa.array(["a", None, None])
    with pytest.raises(InvalidOption, match="column topic is null in 2 of 3 rows"):
        split("value binary, topic string, priority int", columns, None)
