"""What `encode_common` makes of each type."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import json
import pathlib
import uuid
from typing import Any

import msgpack
import msgspec
import pydantic
import pytest

import shmq
from shmq.model.codec.codecs import CODECS, decode_body, encode_body
from shmq.model.expression.fingerprint import shape_of

AWARE = dt.datetime(2026, 3, 1, 12, 30, tzinfo=dt.timezone(dt.timedelta(hours=2)))
NAMED = uuid.UUID(int=7)


class Color(enum.Enum):
    RED = "red"
    EXACT = decimal.Decimal("1.50")


@dataclasses.dataclass
class Line:
    item: str
    price: decimal.Decimal
    more: Any = None


class Order(msgspec.Struct, rename="camel"):
    order_id: uuid.UUID
    lines: list[Line]
    wait_for: dt.timedelta
    at: dt.datetime


class Model(pydantic.BaseModel):
    id: uuid.UUID
    tags: frozenset[int]


CASES: dict[str, tuple[Any, Any]] = {
    "date": (dt.date(2026, 3, 1), "2026-03-01"),
    "time": (dt.time(12, 30), "12:30:00"),
    "timedelta": (dt.timedelta(minutes=1.5), 90.0),
    "uuid": (NAMED, str(NAMED)),
    "decimal": (decimal.Decimal("1.50"), "1.50"),
    "path": (pathlib.PurePosixPath("/a/b"), "/a/b"),
    "enum": ([Color.RED, Color.EXACT], ["red", "1.50"]),
    "set": ({7}, [7]),
    "dataclass": (
        Line("a", decimal.Decimal(1), Line("b", decimal.Decimal(2))),
        {"item": "a", "price": "1", "more": {"item": "b", "price": "2", "more": None}},
    ),
    "pydantic": (Model(id=NAMED, tags=frozenset({1})), {"id": str(NAMED), "tags": [1]}),
}


@pytest.mark.parametrize("codec", ["msgpack", "json"])
@pytest.mark.parametrize("kind", CASES)
def test_a_common_type_becomes_a_plain_value(kind: str, codec: str) -> None:
    value, plain = CASES[kind]
    raw, number = encode_body({"value": value}, codec, shmq.encode_common)
    assert decode_body(bytes(raw), number, CODECS[number]) == {"value": plain}


@pytest.mark.parametrize("codec", ["msgpack", "json"])
def test_a_struct_is_a_map_whose_fields_are_converted_alike(codec: str) -> None:
    order = Order(NAMED, [Line("a", decimal.Decimal(1))], dt.timedelta(1), AWARE)
    raw, number = encode_body(order, codec, shmq.encode_common)
    assert decode_body(bytes(raw), number, CODECS[number]) == {
        "orderId": str(NAMED),
        "lines": [{"item": "a", "price": "1", "more": None}],
        "waitFor": 86_400.0,
        "at": AWARE if codec == "msgpack" else AWARE.isoformat(),
    }


@pytest.mark.parametrize("value", [object(), AWARE.replace(tzinfo=None), Order, Line, 1j])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        shmq.encode_common(value)


def test_a_subclass_of_datetime_is_a_timestamp_too() -> None:
    class Moment(dt.datetime):
        pass

    raw, number = encode_body(Moment.fromtimestamp(-0.5, dt.UTC), None)
    assert decode_body(raw, number, "msgpack") == dt.datetime.fromtimestamp(-0.5, dt.UTC)


def test_a_value_whose_repr_fails_is_refused_all_the_same() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise ValueError("no")

    with pytest.raises(TypeError, match=r"repr\(\) raises ValueError.* at body\['a'\]"):
        encode_body({"a": Odd()}, None)


def test_a_timestamp_has_the_same_shape_whatever_its_year() -> None:
    far = msgpack.packb([msgpack.Timestamp(300_000_000_000)])
    near, _ = encode_body([AWARE], None)
    assert shape_of("msgpack", far) == shape_of("msgpack", near)
    assert "timestamp" in shape_of("msgpack", near)


def test_json_without_a_default_holds_no_datetime() -> None:
    with pytest.raises(TypeError, match=r"JSON cannot hold .*body\['at'\].*default="):
        encode_body({"at": AWARE}, "json")
    raw, _ = encode_body({"at": AWARE}, "json", dt.datetime.isoformat)
    assert json.loads(raw) == {"at": AWARE.isoformat()}
