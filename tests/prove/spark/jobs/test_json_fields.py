"""Spark itself reads a body only if it reads it exactly as the decoder does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions

from shmq.spark.shared import body_columns
from shmq.spark.shared.json_fields import JsonFields

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = """
    id BIGINT NOT NULL, small TINYINT, real DOUBLE, short FLOAT, yes BOOLEAN, text STRING,
    at TIMESTAMP, day DATE, local TIMESTAMP_NTZ, many ARRAY<INT>,
    inner STRUCT<a: INT NOT NULL, b: STRING>
"""

GOOD: dict[str, Any] = {
    "id": 1,
    "small": -128,
    "real": 0.5,
    "short": 1.5,
    "yes": True,
    "text": "tea ☕",
    "at": "2026-11-22T10:30:00.25+01:00",
    "day": "2026-11-22",
    "local": "2026-11-22T09:30:00",
    "many": [1, None, 3],
    "inner": {"a": 7, "b": None},
}

#: Each of them in the place of each field.
VALUES: list[Any] = [
    None, "7", True, 1.5, 5.0, 1 << 63, -(1 << 63), {}, [1], "x", 1e300, 128, 200, -129, "",
    "2026-11-22", "2026-11-22T00:00:00Z", "2026-13-22T00:00:00Z", "NaN", 10**400,
]  # fmt: skip

BASE = json.dumps(GOOD)

#: Bodies in which the text is odd.
TEXTS = [
    f"{BASE} x", f"{BASE}}}", BASE + BASE, f"{BASE},{BASE}", f'{BASE},"a":1}} x', f"[{BASE}]",
    f" {BASE} ", "", "{}", "null", "[]", "1", BASE.replace('"', "'"), f"{BASE}/* x */",
    BASE.replace("tea", "t\\ud800ea"), BASE.replace("tea", "t\tea"), BASE[:-1],
    BASE.replace('"text"', '"TEXT"'), f'{BASE[:-1]},"id":2}}', f'{BASE[:-1]},"id":null}}',
    f'{BASE[:-1]},"text":5}}', f'{BASE[:-1]},"more":NaN}}', BASE.replace("0.5", "NaN"),
    BASE.replace("0.5", '"NaN"'), BASE.replace("0.5", "1e999"), BASE.replace("0.5", "05"),
    BASE.replace("0.5", ".5"), BASE.replace(": 1,", ": +1,"), BASE.replace(": 1,", ": 0x1,"),
    BASE.replace(": 1,", ": -0,"), BASE.replace('"b": null', '"b": "x", "b": "y"'),
    BASE.replace('"b": null', '"b": 5, "b": "y"'), BASE.replace('"b": null', '"b": "y", "b": 5'),
    BASE.replace("tea", "t\\u0000ea"), BASE.replace("tea", "\\x"), BASE.replace("tea", "\\/"),
    BASE.replace("☕", "\\u2615"), '{"id":1,}', '{"id":1 "text":"a"}', "{id:1}",
    f'{{"id":1,"x":{"[" * 2000}{"]" * 2000}}}', f'{{"id":1,"x":{"1" * 2000}}}',
    f'{{"id":1,"text":"{"x" * 100_000}"}}', '{"id":9223372036854775807}',
    '{"id":9223372036854775808}', '{"id":1,"inner":{}}', '{"id":1,"many":["1"]}',
    '{"id":1,"many":[2147483648]}', '{"id":1,"real":123456789012345678901234567890}',
    '{"id":1,"real":0.1,"short":0.1}', '{"id":1,"short":3.4028235e38}',
    '{"id":1,"short":3.4028236e38}', '{"id":1,"real":4.9e-324,"short":1e-50}',
    '{"id":1,"at":"1969-12-31T23:59:59.999999Z"}', '{"id":1,"at":"1000-01-01T00:00:00+18:00"}',
    '{"id":1,"at":"2026-11-22T24:00:00Z"}', '{"id":1,"at":"2026-11-22T23:59:60Z"}',
    '{"id":1,"at":"2026-02-29T00:00:00Z"}', '{"id":1,"day":"2026-02-30"}',
    '{"id":1,"at":"1582-10-10T00:00:00Z","day":"1582-10-10","local":"1582-10-10T00:00:00"}',
    '{"id":1}\x00', '{"id":1}\n', '\x0b{"id":1}', '{"id":1}\xa0', '{"id":1}\x1e{"id":2}',
    '{"id":1,"yes":"true"}', '{"id":1,"text":"5"}', '{"id":1,"text": "true"}', '{"id":1,"text":5}',
    '{"id":1,"text":true}', '{"id":1,"text":5,"more":"5"}', '{"id":1,"text":"5","text":5}',
    '{"id":1,"more":{"text":"5"},"text":5}', '{"id":1,"text":"5","t\\u0065xt":5}',
    '{"id":1,"text":{"a":"b"}}', '{"id":1,"text":"{\\"a\\":1}"}', '{"id":1,"text":"[1]"}',
    '{"id":1,"text":[1]}', '{"id":1,"text":-1.5e3}', '{"id":1,"text":"-"}', '{"id":1,"text":false}',
    '{"id":1,"text":"text"}', '{"id":1,"text":"7","more":"text"}',
]  # fmt: skip

BYTES = [
    b"\xef\xbb\xbf" + BASE.encode(),
    BASE.encode("utf-16"),
    BASE.encode() + b"\xff",
    b'{"id":1,"text":"\xed\xa0\x80"}',
]


def bodies() -> list[bytes]:
    changed = [{**GOOD, name: value} for name in GOOD for value in VALUES]
    return [json.dumps(each).encode() for each in [GOOD, *changed]] + [
        *(text.encode() for text in TEXTS),
        *BYTES,
    ]


def test_what_spark_is_sure_of_is_what_the_decoder_makes(spark: SparkSession) -> None:
    schema = body_columns.schema_of(SCHEMA)
    fields = JsonFields.of(schema)
    assert fields is not None
    given = bodies()
    frame = spark.createDataFrame(list(enumerate(map(bytearray, given))), "n INT, value BINARY")
    parsed = frame.withColumn("parsed", fields.parsed(functions.col("value")))
    column = functions.col("parsed")
    rows = parsed.select(
        "n", fields.accepts(column, functions.col("value")), fields.converted(column)
    ).toArrow()
    native = sorted(zip(*(each.to_pylist() for each in rows.columns), strict=True))

    decoder = body_columns.Decoder(schema, "json", fail=False)
    count = len(given)
    columns = [[False] * count, given, ["json"] * count, ["q"] * count, [0] * count]
    strict = decoder(*map(pa.array, columns)).to_pylist()

    sure = 0
    for (_, accepted, made), body, row in zip(native, given, strict, strict=True):
        if accepted:
            sure += 1
            assert (made, None) == (row["fields"], row["problem"]), body[:200]
    assert native[0][1], "the good one is for Spark"
    assert sure > 50


@pytest.mark.parametrize(
    "ddl",
    ["a BINARY", "a DECIMAL(5, 2)", "a MAP<STRING, INT>", "a STRUCT<b: BINARY>", "a INT, A INT"],
)
def test_what_spark_does_not_read_alike_is_left_to_the_decoder(
    spark: SparkSession, ddl: str
) -> None:
    assert JsonFields.of(body_columns.schema_of(ddl)) is None
