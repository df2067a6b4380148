"""The shape of a body: the same for one kind of body, and short."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shmq.model.codec.codecs import CODECS
from shmq.model.expression.fingerprint import LONGEST, shape_of


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        (None, "null"),
        (True, "bool"),
        (17, "int"),
        (1.5, "float"),
        ("tea", "str"),
        ([], "[]"),
        ([1, 2, 3], "[int]"),
        ([1, "a", None], "[int|null|str]"),
        ({}, "{}"),
        ({"item": "tea", "id": 17}, "{id: int, item: str}"),
        ({"a b": {"c-d": [1]}}, '{"a b": {c-d: [int]}}'),
        ({"a": {"b": {"c": {"d": {"e": 1}}}}}, "{a: {b: {c: {d: {…}}}}}"),
        ([[[[[1]]]]], "[[[[[…]]]]]"),
        ([{"a": 1}, {"a": 2}, {"b": 1}], "[{a: int}|{b: int}]"),
        ({str(n): n for n in range(41)}, "{*: int}"),
    ],
)
def test_the_shape_of_json_and_msgpack_is_keys_and_types(value: Any, shape: str) -> None:
    assert shape_of("json", json.dumps(value).encode()) == shape
    for codec in ("msgpack", "command", "event"):
        assert shape_of(codec, msgpack.packb(value)) == shape


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        (b"x", "bytes"),
        ({1: "a"}, "{*: str}"),
        (msgpack.Timestamp.from_datetime(dt.datetime.now(dt.UTC)), "timestamp"),
        (msgpack.ExtType(5, b"x"), "ext"),
    ],
)
def test_the_shape_of_what_msgpack_alone_holds(value: Any, shape: str) -> None:
    assert shape_of("msgpack", msgpack.packb(value)) == shape


@pytest.mark.parametrize(
    ("codec", "body", "shape"),
    [
        ("bytes", b"", "0 B"),
        ("bytes", b"\0", "1 B 00"),
        ("bytes", b"\x89PNG" * 16, "64-255 B 89504e47"),
        ("text", b"GET /index.html", '4-15 B "GET "'),
        ("text", b'"' * 16, '16-63 B "\\"\\"\\"\\""'),
        ("bytes", bytes(1023), "256-1023 B 00000000"),
        ("bytes", bytes(1024), "1-4 KiB 00000000"),
        ("packed", bytes(1 << 20), "1-4 MiB 00000000"),
        ("avro", b"Obj\1" + bytes(16384), "16-64 KiB 4f626a01"),
        ("json", b"{nope", 'not json, 4-15 B "{nop"'),
        ("json", b"[" * 100_000, 'not json, 64-256 KiB "[[[["'),
        ("msgpack", b"\x81", "not msgpack, 1 B 81"),
        ("msgpack", b"\x81\x90\x01", "not msgpack, 3 B 819001"),
        ("event", b"", "not event, 0 B"),
    ],
)
def test_the_shape_of_other_bodies_is_their_size_and_how_they_begin(
    codec: str, body: bytes, shape: str
) -> None:
    assert shape_of(codec, body) == shape


def test_a_long_shape_is_cut_and_still_tells_bodies_apart() -> None:
    keys = {f"a long name of a key, number {n}": n for n in range(20)}
    one = shape_of("json", json.dumps(keys).encode())
    other = shape_of("json", json.dumps({**keys, "z": 1}).encode())

    assert len(one) == len(other) == LONGEST
    assert one != other
    assert one[:100] == other[:100]


@given(st.sampled_from([*CODECS, "other"]), st.binary())
def test_every_body_has_a_shape(codec: str, body: bytes) -> None:
    shape = shape_of(codec, body)

    assert 0 < len(shape) <= LONGEST
    assert shape == shape_of(codec, body)


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.none(), max_size=10))
def test_the_shape_is_free_of_what_the_body_says(body: dict[str, Any]) -> None:
    other = {key: value if value is None else type(value)() for key, value in body.items()}

    assert shape_of("json", json.dumps(body).encode()) == shape_of(
        "json", json.dumps(dict(reversed(other.items()))).encode()
    )
