"""Arrow's columns become msgpack maps, as a simple model in Python makes them."""

from __future__ import annotations

import itertools
import zlib
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from shmq.native import _arrow  # noqa: E402

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
WIDE = st.one_of(TEXTS, st.integers(1, 70_000).map("x".__mul__))
NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)
BYTES = st.one_of(st.binary(max_size=40), st.integers(1, 70_000).map(b"\xff".__mul__))
HEADERS = st.dictionaries(TEXTS, st.one_of(st.none(), BYTES), max_size=40)

KINDS = {
    "text": pa.string(),
    "int": pa.int64(),
    "list": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    "map": pa.map_(pa.string(), pa.binary()),
}


@st.composite
def columns(draw: Any) -> tuple[dict[str, tuple[str, Any]], int]:
    """Columns of each kind, sliced somewhere, and how many rows they have."""
    count = draw(st.integers(0, 6))
    made = {}
    for name, kind, values in (
        ("group", "text", WIDE),
        ("pri", "int", NUMBERS),
        ("headers", draw(st.sampled_from(["list", "map"])), HEADERS),
    ):
        before = draw(st.integers(0, 9))
        whole = draw(
            st.lists(st.one_of(st.none(), values), min_size=count + before, max_size=count + before)
        )
        if kind == "list":
            whole = [
                None if each is None else [{"key": k, "value": v} for k, v in each.items()]
                for each in whole
            ]
        elif kind == "map":
            whole = [None if each is None else list(each.items()) for each in whole]
        made[name] = (kind, pa.array(whole, KINDS[kind]).slice(before))
    return made, count


def texts_of(column: Any) -> tuple[Any, Any, Any, int]:
    there, ends, data = column.buffers()
    return there, ends, data, column.offset


def buffers_of(kind: str, column: Any) -> tuple[str, Any]:
    if kind == "text":
        return "text", texts_of(column)
    if kind == "int":
        there, data = column.buffers()
        return "int", (there, data, column.offset)
    there, ends = column.buffers()[:2]
    pairs = column.values
    keys, values = texts_of(pairs.field(0)), texts_of(pairs.field(1))
    return "pairs", ((there, ends, column.offset), keys, values, len(pairs), True)


def maps_of(made: Any) -> list[Any]:
    ends, data = made
    places = np.frombuffer(ends, np.int32).tolist()
    packed = [data[start:end] for start, end in itertools.pairwise(places)]
    return [msgpack.unpackb(each) if each else {} for each in packed]


def as_put(value: bytes | None) -> Any:
    try:
        return value.decode() if value is not None else None
    except UnicodeDecodeError:
        return value


def meant(kind: str, value: Any) -> Any:
    if kind not in {"list", "map"} or value is None:
        return value
    pairs = [tuple(pair.values()) for pair in value] if kind == "list" else value
    return {key: as_put(each) for key, each in pairs}


@given(columns())
def test_rows_become_maps(drawn: tuple[dict[str, tuple[str, Any]], int]) -> None:
    given_, count = drawn
    made = _arrow.pack_maps(
        [(name.encode(), *buffers_of(kind, column)) for name, (kind, column) in given_.items()],
        count,
    )

    rows = [
        {
            name: meant(kind, column[row].as_py())
            for name, (kind, column) in given_.items()
            if column[row].as_py() not in (None, [])
        }
        for row in range(count)
    ]
    assert maps_of(made) == rows
    assert isinstance(made, tuple)
    if all((row.get("pri") or 0) >= -32 for row in rows):  # of others it may write more bytes
        assert made[1] == b"".join(msgpack.packb(row) for row in rows if row)


@given(columns())
def test_pairs_without_a_key_are_the_map(drawn: tuple[dict[str, tuple[str, Any]], int]) -> None:
    given_, count = drawn
    kind, column = given_["headers"]

    made = _arrow.pack_maps([(None, *buffers_of(kind, column))], count)

    assert maps_of(made) == [meant(kind, each) or {} for each in column.to_pylist()]


def one(kind: str, values: list[Any]) -> Any:
    return _arrow.pack_maps([(b"k", *buffers_of(kind, pa.array(values, KINDS[kind])))], len(values))


@pytest.mark.parametrize("many", [1, 40])
def test_names_that_are_null_or_there_twice_are_told_with_their_row(many: int) -> None:
    good = [{"key": str(n), "value": b""} for n in range(many)]
    for key in ("0", None):
        fault = one("list", [good, None, [*good, {"key": key, "value": b"x"}]])
        assert (fault.fault, fault.row, fault.column) == ("names", 2, 0)


def test_text_that_is_not_utf8_is_told_with_its_row() -> None:
    column = pa.array([b"a", b"\xff"]).view(pa.string())
    fault = _arrow.pack_maps([(b"k", "text", texts_of(column))], 2)
    assert isinstance(fault, _arrow.MapFault)
    assert (fault.fault, fault.row, fault.column) == ("text", 1, 0)


def ends(*numbers: int) -> Any:
    return np.array(numbers, np.int32)


NONE: Any = (None, ends(0), b"", 0)


@pytest.mark.parametrize(
    ("kind", "buffers", "told"),
    [
        ("text", (None, ends(0, 9), b"abc", 0), "ends of column 0 contradict their bytes"),
        ("text", (None, ends(2, 1), b"abc", 0), "ends of column 0 contradict their bytes"),
        ("text", (None, ends(-1, 1), b"abc", 0), "ends of column 0 contradict their bytes"),
        ("text", (None, ends(0, 1), None, 0), "ends of column 0 contradict their bytes"),
        ("text", (None, ends(0, 1), b"abc", 1), "8 bytes are no ends of 1 items from 1 on"),
        ("text", (None, memoryview(bytes(13))[1:9], b"", 0), "8 bytes are no ends"),
        ("text", (b"", ends(0, 1), b"abc", 0), "0 bytes are not a bit for each of 1 items"),
        ("text", (b"\x01", ends(*range(9)), b"12345678", 8), "36 bytes are no ends"),
        ("int", (None, bytes(8), 1), "8 bytes are not 1 numbers from 1 on"),
        ("int", (b"", bytes(8), 0), "0 bytes are not a bit"),
        ("pairs", ((None, ends(0, 1), 0), NONE, NONE, 0, True), "contradict their bytes"),
        ("pairs", ((None, ends(1, 0), 0), NONE, NONE, 0, True), "contradict their bytes"),
        ("pairs", ((None, ends(-1, 0), 0), NONE, NONE, 0, True), "contradict their bytes"),
        ("pairs", ((None, ends(0, 1), 0), NONE, NONE, 1, True), "are no ends of 1 items"),
        (
            "pairs",
            ((None, ends(0, 1), 0), (None, ends(0, 5), b"key", 0), NONE, 1, True),
            "are no ends of 1 items",
        ),
        (
            "pairs",
            ((None, ends(0, 1), 0), *2 * [(None, ends(0, 5), b"key", 0)], 1, True),
            "contradict their bytes",
        ),
        ("pairs", ((None, ends(0, 0), 0), NONE, NONE, 1 << 31, True), "pairs are too many"),
        ("float", (None, bytes(8), 0), "kind='float' must be text or int"),
    ],
)
def test_buffers_that_contradict_themselves_are_refused(kind: str, buffers: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        _arrow.pack_maps([(b"k", kind, buffers)], 1)


def test_columns_without_a_key_or_too_many_are_refused() -> None:
    texts = ("text", NONE)
    for wrong in ([], [(None, *texts), (b"a", *texts)], [(b"a", *texts)] * 16):
        with pytest.raises(ValueError, match="are not 1 to 15 with a key each"):
            _arrow.pack_maps(wrong, 0)
    with pytest.raises(ValueError, match="must have 1 to 31 bytes"):
        _arrow.pack_maps([(b"x" * 32, *texts)], 0)


@given(st.lists(st.one_of(st.none(), BYTES), max_size=20), st.integers(0, 20), st.integers(1, 9))
def test_partitions_are_those_of_zlib(keys: list[bytes | None], first: int, count: int) -> None:
    column = pa.array(keys, pa.binary()).slice(min(first, len(keys)))
    made = _arrow.partitions_of(texts_of(column), len(column), 2, count)
    assert np.frombuffer(made, np.int64).tolist() == [
        -1 if key is None else 2 + zlib.crc32(key) % count for key in column.to_pylist()
    ]


def test_keys_that_contradict_their_bytes_have_no_partition() -> None:
    with pytest.raises(ValueError, match="ends of the keys contradict their bytes"):
        _arrow.partitions_of((None, ends(0, 9), b"key", 0), 1, 0, 1)
