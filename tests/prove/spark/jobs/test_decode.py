"""Bodies become columns of the types that a schema says, or a reason why they do not."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
from typing import TYPE_CHECKING, Any

import msgpack
import pytest

from shmq import InvalidOption
from shmq import spark as shmq_spark
from shmq.spark.jobs.failure import failure_of
from shmq.spark.shared import body_columns
from shmq.spark.shared.body_columns import PROBLEM

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVERY = """
    whole BIGINT, small TINYINT, real DOUBLE, short FLOAT, yes BOOLEAN, text STRING,
    raw BINARY, at TIMESTAMP, local TIMESTAMP_NTZ, day DATE, price DECIMAL(6, 2),
    many ARRAY<INT>, by MAP<STRING, DOUBLE>, inner STRUCT<a: INT, b: STRING>
"""

MOMENT = dt.datetime(2026, 11, 22, 9, 30, 0, 250_000, tzinfo=dt.UTC)

MEANT: dict[str, Any] = {
    "whole": 1 << 40,
    "small": -128,
    "real": 0.5,
    "short": 1.5,
    "yes": True,
    "text": "tea ☕",
    "raw": b"\x00\xff",
    "at": MOMENT,
    "local": dt.datetime.fromisoformat("2026-11-22T09:30"),
    "day": dt.date(2026, 11, 22),
    "price": decimal.Decimal("19.90"),
    "many": [1, None, 3],
    "by": {"x": 1.0, "y": None},
    "inner": {"a": 7, "b": None},
}


def table(schema: str, codec: str = "message", bad: str = "drop", into: str | None = None) -> Any:
    return {"schema": schema, "codec": codec, "bad": bad, "into": into}


def rows(spark: SparkSession, *bodies: tuple[bytes, str]) -> DataFrame:
    """Messages 1, 2, … of these bodies and codecs."""
    data = [("q", at, bytearray(body), codec) for at, (body, codec) in enumerate(bodies, 1)]
    return spark.createDataFrame(data, "topic STRING, offset LONG, value BINARY, codec STRING")


def plain(value: Any) -> Any:
    """A value of a row as Python has it."""
    if isinstance(value, bytearray):
        return bytes(value)
    return value.asDict() if hasattr(value, "asDict") else value


def test_json_and_msgpack_become_columns_of_every_type(spark: SparkSession) -> None:
    as_json = {
        **MEANT,
        "raw": base64.b64encode(MEANT["raw"]).decode(),
        "at": "2026-11-22T10:30:00.25+01:00",
        "local": "2026-11-22T09:30:00",
        "day": "2026-11-22",
        "price": "19.9",
        "left out": 1,
    }
    packed = {**as_json, "raw": MEANT["raw"], "at": msgpack.Timestamp.from_datetime(MOMENT)}

    found = body_columns.good(
        rows(
            spark,
            (json.dumps(as_json).encode(), "json"),
            (msgpack.packb(packed), "msgpack"),
            (msgpack.packb({**packed, "at": MOMENT.timestamp(), "real": 1, "whole": 5.0}), "event"),
            (b"{}", "json"),
        ),
        table(EVERY),
    ).selectExpr("*", "unix_micros(at) AS micros")

    first, second, third, empty = [row.asDict() for row in found.orderBy("offset").collect()]
    for row in (first, second, third):
        assert row.pop("micros") == round(MOMENT.timestamp() * 1e6)
        row.pop("at")
    meant = {key: value for key, value in MEANT.items() if key != "at"}
    assert {key: plain(first[key]) for key in meant} == meant
    assert {key: plain(second[key]) for key in meant} == meant
    assert {key: plain(third[key]) for key in meant} == {**meant, "real": 1.0, "whole": 5}
    assert all(empty[key] is None for key in MEANT)
    assert first["topic"] == "q"


@pytest.mark.parametrize(
    ("schema", "body", "problem"),
    [
        ("a STRING", {"a": "x\ud800"}, "a is 'x\\ud800', not text: half of a surrogate pair"),
        ("a INT", {"a": "7"}, "a is '7', not a whole number"),
        ("a INT", {"a": True}, "a is True, not a whole number"),
        ("a INT", {"a": 1.5}, "a is 1.5, not a whole number"),
        ("a TINYINT", {"a": 128}, "a is 128, not of 8 bits"),
        ("a BIGINT", {"a": 1 << 63}, f"a is {1 << 63}, not of 64 bits"),
        ("a DOUBLE", {"a": "1"}, "a is '1', not a number"),
        ("a FLOAT", {"a": 1e39}, "a is 1e+39, not a number of 32 bits"),
        ("a BOOLEAN", {"a": 1}, "a is 1, not true or false"),
        ("a STRING", {"a": 1}, "a is 1, not text"),
        ("a BINARY", {"a": "?"}, "a is '?', not bytes, nor text in base64"),
        ("a TIMESTAMP", {"a": "noon"}, "a is 'noon', not a time, as text of ISO 8601 or seconds"),
        ("a TIMESTAMP", {"a": [1]}, "a is [1], not a time"),
        ("a TIMESTAMP", {"a": 1e300}, "a is 1e+300, not a time"),
        ("a TIMESTAMP_NTZ", {"a": "2026-11-22T00:00:00Z"}, "a time without a zone"),
        ("a DATE", {"a": "22.11.2026"}, "a is '22.11.2026', not a date"),
        ("a DECIMAL(4, 2)", {"a": "1.234"}, "a is '1.234', not decimal(4,2)"),
        ("a DECIMAL(4, 2)", {"a": 123}, "a is 123, not decimal(4,2)"),
        ("a ARRAY<INT>", {"a": 1}, "a is 1, not a list"),
        ("a MAP<STRING, INT>", {"a": [1]}, "a is [1], not a map"),
        ("a STRUCT<b: INT>", {"a": {"b": "x"}}, "a.b is 'x', not a whole number"),
        ("a INT NOT NULL", {}, "a is missing"),
        ("a INT NOT NULL", {"a": None}, "a is missing"),
        ("a INT", [1], "is [1], not a map"),
    ],
)
def test_a_body_that_does_not_go_with_the_schema_says_why(
    spark: SparkSession, schema: str, body: Any, problem: str
) -> None:
    decoder = body_columns.Decoder(_schema(schema), "json", fail=False)

    found = _decoded(decoder, json.dumps(body).encode())

    assert problem in found["problem"]
    assert found["fields"] is None


@pytest.mark.parametrize(
    ("codec", "body", "problem"),
    [
        ("json", b"{", "is not json: "),
        ("json", b"\xff", "is not json: "),
        ("json", b"[" * 100_000, "is not json: "),
        ("msgpack", b"\xc1", "is not msgpack: "),
        ("msgpack", b"", "is not msgpack: "),
        ("msgpack", b"\x80\x80", "is not msgpack: "),
        ("msgpack", b"\xdf\xff\xff\xff\xff", "is not msgpack: "),
    ],
)
def test_bytes_that_are_no_body_say_so(
    spark: SparkSession, codec: str, body: bytes, problem: str
) -> None:
    decoder = body_columns.Decoder(_schema("a INT"), codec, fail=False)

    assert _decoded(decoder, body)["problem"].startswith(problem)


def test_a_codec_without_fields_is_a_problem_of_its_message(spark: SparkSession) -> None:
    found = body_columns.tagged(rows(spark, (b"{}", "text"), (b"{}", "json")), table("a INT"))

    problems = [row[PROBLEM] for row in found.orderBy("offset").collect()]
    assert problems == ["has the codec 'text', which has no fields", None]


def test_the_fields_can_be_put_into_one_column(spark: SparkSession) -> None:
    good = (b'{"offset": 5}', "json")
    found = body_columns.good(
        rows(spark, good, (b"?", "json")), table("offset INT NOT NULL", into="body")
    )

    assert [(row.offset, row.body.offset) for row in found.collect()] == [(1, 5)]


def test_a_bad_body_ends_the_job_with_its_message_where_it_must_not_be(spark: SparkSession) -> None:
    found = body_columns.good(
        rows(spark, (b"{}", "json"), (b"?", "json")), table("a INT", bad="fail")
    )

    with pytest.raises(Exception, match="ShmqError") as caught:
        found.collect()

    told = str(failure_of(caught.value))
    assert told.startswith("the body of message 2 of queue q: is not json: Expecting value")


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (
            "a INTT",
            r"schema = 'a INTT' must be columns as 'id BIGINT NOT NULL, name STRING': .*INTT",
        ),
        ("INT", "must be columns as"),
        ("a INTERVAL", "must be columns as|cannot be made of a body: there are "),
        ("a MAP<INT, INT>", "the type map<int,int> cannot be made of a body: there are "),
    ],
)
def test_a_schema_that_is_none_is_refused(spark: SparkSession, schema: str, told: str) -> None:
    with pytest.raises(InvalidOption, match=told):
        body_columns.schema_of(schema)


def test_a_field_that_is_a_column_already_is_refused_with_what_to_do(spark: SparkSession) -> None:
    with pytest.raises(
        InvalidOption, match="'offset' is a column of the message already: say into"
    ):
        body_columns.tagged(rows(spark), table("offset INT"))
    with pytest.raises(InvalidOption, match="decoding takes the column 'codec', and there are a"):
        body_columns.tagged(rows(spark).selectExpr("1 AS a", "value"), table("b INT"))


def _schema(ddl: str) -> Any:
    from pyspark.sql import types

    return types.StructType.fromDDL(ddl)


def _decoded(decoder: body_columns.Decoder, body: bytes) -> dict[str, Any]:
    """What the decoder makes of a body."""
    import pyarrow as pa

    columns = [[body], [decoder.codec], ["q"], [1]]
    (found,) = decoder.decode(*map(pa.array, columns)).to_pylist()
    made: dict[str, Any] = found
    return made


def test_any_frame_of_messages_can_be_decoded(spark: SparkSession) -> None:
    frame = rows(spark, (b'{"a": 1}', "json"), (b"?", "json"))

    kept = shmq_spark.decode(frame, "a INT", bad="keep").orderBy("offset").collect()
    dropped = shmq_spark.decode(frame, "a INT", bad="drop", codec="json").collect()

    assert [row.a for row in kept] == [1, None]
    assert [row[PROBLEM] is None for row in kept] == [True, False]
    assert [(row.offset, row.a) for row in dropped] == [(1, 1)]
    with pytest.raises(InvalidOption, match="codec='jsn' must be one of message, json, msgpack"):
        shmq_spark.decode(frame, "a INT", codec="jsn")
    with pytest.raises(InvalidOption, match="bad='route' must be one of fail, drop, keep"):
        shmq_spark.decode(frame, "a INT", bad="route")
