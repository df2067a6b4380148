"""Values of msgpack maps become Arrow's columns, as a simple model in Python makes them."""

from __future__ import annotations

import itertools
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from shmq.native import _arrow  # noqa: E402

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
OTHERS = st.one_of(
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.booleans(),
    st.floats(allow_nan=False),
    st.lists(TEXTS, max_size=2),
)
VALUES = st.one_of(st.none(), TEXTS, st.binary(max_size=300), OTHERS)
HEADERS = st.dictionaries(TEXTS, VALUES, max_size=20)
DEAD = st.fixed_dictionaries({}, optional={"reason": TEXTS, "at": st.integers(0, 1 << 50)})
PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "group": VALUES,
        "headers": HEADERS,
        "pri": st.integers(0, 9),
        "dead": st.fixed_dictionaries(
            {}, optional={"reason": TEXTS, "at": st.integers(0, 1 << 50)}
        ),
        "other": VALUES,
    },
)


def numbers(*given: int) -> Any:
    return np.array(given, np.int32)


def run_of(maps: list[dict[str, Any]]) -> tuple[Any, bytes]:
    """The maps as a column of texts: those without entries have no bytes."""
    packed = [msgpack.packb(each) if each else b"" for each in maps]
    return numbers(0, *itertools.accumulate(map(len, packed))), b"".join(packed)


def texts(made: tuple[bytes, bytes, bytes], count: int) -> list[bytes | None]:
    buffers = [pa.py_buffer(each) for each in made]
    array = pa.Array.from_buffers(pa.binary(), count, buffers)
    array.validate(full=True)
    found: list[bytes | None] = array.to_pylist()
    return found


def as_text(value: Any) -> bytes | None:
    if isinstance(value, str):
        return value.encode()
    return value if isinstance(value, bytes) else None


@given(st.lists(PROPERTIES, max_size=12))
def test_texts_are_those_of_their_key(maps: list[dict[str, Any]]) -> None:
    run = run_of(maps)

    for outer, key in ((None, "group"), ("dead", "reason")):
        within = [each.get(outer, {}) if outer else each for each in maps]
        meant = [as_text(each.get(key)) for each in within]
        made = _arrow.texts_of(*run, outer.encode() if outer else None, key.encode())
        found = [None] * len(maps) if made is None else texts(made, len(maps))
        assert found == meant
        assert (made is None) == all(each is None for each in meant)


def test_a_path_leads_to_an_inner_map_if_there_is_one() -> None:
    maps: list[dict[str, Any]] = [
        {"dead": {"error": {"line": "a"}, "at": 1}},
        {},
        {"dead": {"at": 1}},
        {"dead": {"error": "text"}},
        {"dead": ["list"]},
        {"error": {"line": "b"}},
        {"dead": {"error": {"line": "c"}}},
    ]
    made = _arrow.texts_of(*run_of(maps), b"dead.error", b"line")
    assert made is not None
    assert texts(made, len(maps)) == [b"a", None, None, None, None, None, b"c"]


@given(st.lists(PROPERTIES, max_size=12))
def test_ints_are_those_of_their_key(maps: list[dict[str, Any]]) -> None:
    run = run_of(maps)
    meant = [each.get("dead", {}).get("at") for each in maps]

    made = _arrow.ints_of(*run, b"dead", b"at")

    if made is None:
        assert meant == [None] * len(maps)
    else:
        buffers = [pa.py_buffer(each) for each in made]
        assert pa.Array.from_buffers(pa.int64(), len(maps), buffers).to_pylist() == meant


def plain(packed: bytes, row: int) -> bytes:
    """The slow path of the tests: what is neither text nor bytes becomes its repr."""
    made: bytes = msgpack.packb(
        {
            key: value if isinstance(value, str | bytes | None) else repr(value)
            for key, value in msgpack.unpackb(packed).items()
        }
    )
    return made


def pairs(made: _arrow.Pairs, count: int) -> list[list[tuple[bytes, bytes | None]] | None]:
    keys = [None, *map(pa.py_buffer, (made.key_ends, made.keys))]
    values = [*map(pa.py_buffer, (made.has_value, made.value_ends, made.values))]
    kind = pa.struct([("key", pa.binary()), ("value", pa.binary())])
    entries = pa.Array.from_buffers(
        kind,
        made.count,
        [None],
        children=[
            pa.Array.from_buffers(pa.binary(), made.count, keys),
            pa.Array.from_buffers(pa.binary(), made.count, values),
        ],
    )
    lists = [pa.py_buffer(made.there), pa.py_buffer(made.ends)]
    array = pa.Array.from_buffers(pa.list_(kind), count, lists, children=[entries])
    array.validate(full=True)
    return [each and [(pair["key"], pair["value"]) for pair in each] for each in array.to_pylist()]


@given(st.lists(PROPERTIES, max_size=12), st.booleans())
def test_maps_become_lists_of_pairs(maps: list[dict[str, Any]], nested: bool) -> None:
    headers = [each.get("headers", {}) for each in maps]
    run = run_of(maps if nested else headers)
    slow: list[int] = []

    def told(packed: bytes, row: int) -> bytes:
        slow.append(row)
        return plain(packed, row)

    made = _arrow.pairs_of(*run, b"headers" if nested else None, told)

    meant = [
        [
            (key.encode(), None if value is None else as_text(value) or _repr(value))
            for key, value in each.items()
        ]
        or None
        for each in headers
    ]
    found = [None] * len(maps) if made is None else pairs(made, len(maps))
    assert found == meant
    odd = [any(not isinstance(v, str | bytes | None) for v in each.values()) for each in headers]
    assert slow == [row for row, is_odd in enumerate(odd) if is_odd]


def _repr(value: Any) -> bytes:
    return b"" if isinstance(value, str | bytes) else repr(value).encode()


def test_a_key_that_comes_twice_takes_the_slow_path() -> None:
    twice = b"\x82\xa1a\xa1x\xa1a\xa1y"
    made = _arrow.pairs_of(numbers(0, len(twice)), twice, None, plain)

    assert made is not None
    assert pairs(made, 1) == [[(b"a", b"y")]]


def test_what_the_slow_path_makes_must_be_plain() -> None:
    odd = msgpack.packb({"a": 1})
    with pytest.raises(ValueError, match="the map of row 0 is malformed"):
        _arrow.pairs_of(numbers(0, len(odd)), odd, None, lambda packed, row: packed)


@pytest.mark.parametrize(
    "packed",
    [b"\xc1", b"\x82\xa1a\xa1x", b"\x81\xa5group", b"\xa1a", b"\x80\x80", b"\xdf\xff\xff\xff\xff"],
)
def test_a_malformed_map_is_refused_with_its_row(packed: bytes) -> None:
    good = msgpack.packb({"group": "g"})
    ends = numbers(0, len(good), len(good) + len(packed))

    with pytest.raises(ValueError, match="the map of row 1 is malformed"):
        _arrow.texts_of(ends, good + packed, None, b"group")


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        ([0, 9], "contradict their bytes"),
        ([0, 8, 4], "contradict their bytes"),
        ([-1, 8], "contradict their bytes"),
        ([], "0 bytes are no ends"),
    ],
)
def test_ends_that_contradict_their_bytes_are_refused(ends: list[int], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        _arrow.texts_of(numbers(*ends), bytes(8), None, b"a")


def test_ends_that_are_not_aligned_are_refused() -> None:
    buffer = memoryview(bytes(13))[1:9]
    with pytest.raises(ValueError, match="8 bytes are no ends of maps"):
        _arrow.texts_of(buffer, b"", None, b"a")
