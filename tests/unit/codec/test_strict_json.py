"""Only what RFC 8259 defines is JSON, whoever sends it."""

from __future__ import annotations

import math
from typing import Any

import pytest

import shmq
from shmq.extras.cloudevents.message import decode_event
from shmq.model.codec import codecs
from shmq.model.codec.strict_json import decode_json, encode_json

#: What Python's decoder accepts or fails on otherwise, and a part of the reason.
REFUSED = [
    ("NaN", "NaN is not a number in JSON"),
    ("[Infinity]", "Infinity is not a number in JSON"),
    ('{"a": -Infinity}', "-Infinity is not a number in JSON"),
    ("1e400", "the number 1e400 is out of the range of a float"),
    ("[-1E+9999]", "out of the range of a float"),
    ("1" * 400 + ".5", "out of the range of a float"),
    ("1" * 5000, "has 5000 digits"),
    ("[" * 100_000, "nested too deeply"),
    (r'"\ud800"', "lone surrogate"),
    (r'{"\uDC00": 1}', "lone surrogate"),
    ("{", "Expecting property name"),
]


@pytest.mark.parametrize(("text", "reason"), REFUSED, ids=[why for _, why in REFUSED])
def test_what_is_not_json_is_refused(text: str, reason: str) -> None:
    for given in (text, text.encode()):
        with pytest.raises(ValueError, match=reason):
            decode_json(given)
    with pytest.raises(shmq.ShmqError, match=reason):
        codecs.decode_body(text.encode(), codecs.CODECS.index("json"), "json")
    with pytest.raises(shmq.ShmqError, match=reason):
        decode_event({"content-type": "application/cloudevents+json"}, text.encode(), "it")


@pytest.mark.parametrize(
    "value",
    [1e308, -1.5e-400, 5e-324, 10**400, 2**64, "\U0001f600", "\u20ac", {"a": [None, True, {}]}],
)
def test_what_is_json_is_read_as_written(value: Any) -> None:
    assert decode_json(encode_json(value)) == value
    assert decode_json(encode_json(value).decode()) == value


def test_a_pair_of_surrogates_is_one_character() -> None:
    assert decode_json(rb'"\ud83d\ude00"') == "\U0001f600"
    assert decode_json("1e-400") == 0.0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "\ud800"])
def test_what_json_cannot_hold_is_not_encoded(value: Any) -> None:
    with pytest.raises(ValueError, match=r"JSON|surrogates"):
        encode_json({"a": [value]})
    refused = shmq.InvalidOption if isinstance(value, str) else TypeError
    with pytest.raises(refused, match=r"JSON cannot hold|^body\[0\]=.*lone surrogate"):
        codecs.encode_body([value], "json")


def test_what_is_nested_too_deeply_is_not_encoded() -> None:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(TypeError, match="JSON cannot hold"):
        codecs.encode_body(value, "json")
    while value:
        value = value.pop()
