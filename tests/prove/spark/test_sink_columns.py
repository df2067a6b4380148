"""Which columns a sink takes, and what it says of those that it does not."""

from __future__ import annotations

import re

import pytest
from pyspark.sql.types import StructType

from shmq.errors import InvalidOption
from shmq.spark.shared import columns
from shmq.spark.shared.columns import QUEUE_SINK, SinkColumns

KINDS = {
    "string": "s string",
    "binary": "b binary",
    "int": "i tinyint, j smallint, k int, l bigint",
    "number (of seconds)": "f float, d double, e decimal(10,3)",
    "interval day to second": "v interval day to second",
    "array<struct<key: string, value: string>>": "a array<struct<key: string, value: string>>",
    "array<struct<key: string, value: binary>>": "c array<struct<key: string, value: binary>>",
    "map<string, string>": "m map<string, string>",
    "map<string, binary>": "n map<string, binary>",
    "nothing": "x boolean, y date, z array<string>, w map<int, string>, u timestamp",
    "other structs": "t array<struct<name: string, value: string>>",
}

ALLOWED = {
    "value": {"string", "binary"},
    "key": {"string", "binary"},
    "group": {"string"},
    "headers": {kind for kind in KINDS if kind.startswith(("array", "map"))},
    "priority": {"int"},
    "delay": {"int", "number (of seconds)", "interval day to second"},
    "ttl": {"int", "number (of seconds)", "interval day to second"},
    "dedupe_id": {"string"},
    "codec": {"string"},
    "correlation_id": {"string"},
    "reply_to": {"string"},
    "topic": {"string"},
    "queue": {"string"},
}


#: Spark's session reads DDL.
pytestmark = pytest.mark.usefixtures("spark")


def schema(ddl: str) -> StructType:
    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType)
    return found


def test_the_columns_are_those_of_the_test() -> None:
    assert {column.name for column in QUEUE_SINK} == set(ALLOWED)


def test_a_column_has_the_types_that_it_says_and_no_other() -> None:
    fields = {kind: schema(ddl).fields for kind, ddl in KINDS.items()}
    for column in QUEUE_SINK:
        for kind in KINDS:
            fitting = {field.name for field in fields[kind] if column.fits(field.dataType)}
            every = {field.name for field in fields[kind]}
            assert fitting == (every if kind in ALLOWED[column.name] else set()), (column, kind)


def test_each_column_becomes_an_argument_of_a_put() -> None:
    found = SinkColumns.of(
        schema("key binary, value string, ttl int, topic string, correlation_id string"), None
    )
    assert (found.body, found.queue) == (1, 3)
    assert dict(found.arguments) == {"group": 0, "ttl": 2, "correlation": 4}


def test_the_option_overrides_the_column_topic() -> None:
    assert SinkColumns.of(schema("value string, topic string"), "orders").queue is None


def test_the_case_of_a_name_matters_to_nobody() -> None:
    assert SinkColumns.of(schema("Priority int, VALUE binary"), "orders").body == 1


def test_what_a_source_gives_beside_it_is_left_out() -> None:
    read = schema(columns.ddl(columns.NAMES))
    found = SinkColumns.of(read, "orders")
    taken = {name for name, _ in found.arguments}
    assert taken == {"group", "headers", "priority", "codec", "correlation", "reply_to"}


@pytest.mark.parametrize(
    ("ddl", "topic", "said"),
    [
        ("body string", "orders", "column 'value' is missing"),
        ("body string", "orders", r"\(there are body\)"),
        ("value int", "orders", "column value is int, and must be string or binary"),
        ("value string, priority string", "orders", "priority is string, and must be int"),
        ("value string, headers array<string>", "orders", "headers is array<string>, and must"),
        ("value string, key string, group string", "orders", "key and group both say the group"),
        ("value string, topic string, queue string", None, "topic and queue both say the queue"),
        ("value string, prority int", "orders", "column prority .* did you mean 'priority'"),
        ("value string, weather string", "orders", "column weather has no meaning in a message"),
        ("value string", None, r"which queue to write to: give .option\('topic', NAME\)"),
    ],
)
def test_wrong_columns_are_one_clear_error(ddl: str, topic: str | None, said: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        SinkColumns.of(schema(ddl), topic)
    assert re.search(said, str(caught.value)), str(caught.value)
