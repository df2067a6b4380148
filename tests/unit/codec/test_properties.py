"""The properties of a put are packed as the msgpack package packs them, byte by byte."""

from __future__ import annotations

import math
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shmq
from shmq.native import _core

#: Lengths of texts and milliseconds about where msgpack's heads grow.
EDGES = (0, 1, 31, 32, 127, 128, 255, 256, 65_535, 65_536)


def encoded(**given: Any) -> tuple[Any, int, bytes, int, float, float]:
    return _core.encode_message(b"body", given, 3)


def packed(**properties: Any) -> bytes:
    """What the msgpack package makes of them; none: nothing."""
    found: bytes = msgpack.packb(properties) if properties else b""
    return found


texts = st.text(st.characters(exclude_categories=["Cs"]))
spans = st.floats(0.001, 1e9)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "priority": st.integers(0, 2),
            "delay": spans,
            "ttl": spans,
            "headers": st.dictionaries(texts, st.integers(-(1 << 63), (1 << 64) - 1) | texts),
            "group": texts,
            "dedupe_id": texts,
            "reply_to": texts,
            "correlation": texts,
            "codec": st.just("other"),
        },
    )
)
def test_properties_are_packed_in_the_order_of_the_protocol(given_: dict[str, Any]) -> None:
    wire = {"priority": "pri", "dedupe_id": "dedupe", "correlation": "corr"}
    order = ("priority", "delay", "ttl", "headers", "group", "dedupe_id", "reply_to")
    ms = {key: math.ceil(given_[key] * 1000) for key in ("delay", "ttl") if key in given_}
    values = given_ | ms
    there = [key for key in (*order, "correlation", "codec") if key in values]
    *_, meta, level, delay, ttl = encoded(**given_)
    assert meta == packed(**{wire.get(key, key): values[key] for key in there})
    assert level == given_.get("priority", 1)
    assert (delay, ttl) == (given_.get("delay", 0.0), given_.get("ttl", 0.0))


@pytest.mark.parametrize("size", EDGES)
def test_texts_and_numbers_of_every_length_of_head(size: int) -> None:
    assert encoded(group="x" * size)[2] == packed(group="x" * size)
    if size:
        assert encoded(ttl=size / 1000)[2] == packed(ttl=size)
        assert encoded(ttl=float(size << 10))[2] == packed(ttl=(size << 10) * 1000)


@pytest.mark.parametrize(
    ("given_", "error", "says"),
    [
        ({"group": 7}, TypeError, "group=7 must be a str, not int"),
        ({"correlation": "\ud800"}, shmq.InvalidOption, r"correlation='\\ud800' cannot be encoded"),
        ({"priority": 3}, shmq.InvalidOption, "priority=3 is out of range: 0 to 2"),
        ({"priority": True}, TypeError, "priority=True must be an int, not bool"),
        ({"ttl": 0}, shmq.InvalidOption, r"ttl=0 s is out of range: 0.001 to 1000000000 s"),
        ({"delay": math.nan}, shmq.InvalidOption, "delay=nan s is out of range"),
        ({"delay": 1, "deliver_at": 1}, shmq.InvalidOption, "exclude each other"),
        ({"deliver_at": math.inf}, shmq.InvalidOption, "deliver_at=inf must be finite"),
        ({"deliver_at": 1e300}, shmq.InvalidOption, "at most 1000000000 s from now"),
        ({"headers": [1]}, TypeError, r"headers=\[1\] must be a map, not list"),
        ({"headers": {"a": 1 << 64}}, TypeError, "msgpack cannot hold"),
    ],
)
def test_a_property_that_cannot_be_is_refused_with_its_value(
    given_: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        encoded(**given_)
