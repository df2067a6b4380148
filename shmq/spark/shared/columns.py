"""The columns of a queue's rows, with Kafka's names where the meaning is the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from shmq.errors import InvalidOption

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["COLUMNS", "NAMES", "STATES", "Column", "check", "chosen", "ddl"]

#: The states of a message, as in the column ``state``.
STATES: Final = ("ready", "delayed", "leased", "dying")


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column's name and its Spark type, as DDL."""

    name: str
    kind: str


#: All columns, in their order.
COLUMNS: Final = (
    Column("key", "binary"),
    Column("value", "binary"),
    Column("topic", "string"),
    Column("partition", "int"),
    Column("offset", "bigint"),
    Column("timestamp", "timestamp"),
    Column("timestampType", "int"),
    Column("headers", "array<struct<key:string,value:binary>>"),
    Column("priority", "int"),
    Column("delivery_count", "int"),
    Column("state", "string"),
    Column("codec", "string"),
    Column("correlation_id", "string"),
    Column("reply_to", "string"),
    Column("visible_at", "timestamp"),
    Column("lease_until", "timestamp"),
    Column("expires_at", "timestamp"),
    Column("dead_reason", "string"),
    Column("dead_queue", "string"),
    Column("dead_deliveries", "int"),
    Column("dead_at", "timestamp"),
)

NAMES: Final = tuple(column.name for column in COLUMNS)

_KINDS: Final = {column.name: column.kind for column in COLUMNS}


def chosen(names: Sequence[str] | None, include_headers: bool) -> tuple[str, ...]:
    """The named columns, else all of them, the headers only on request."""
    if names is not None:
        return tuple(names)
    return tuple(name for name in NAMES if include_headers or name != "headers")


def ddl(names: Iterable[str]) -> str:
    """The columns of these names as the DDL of a schema."""
    return ", ".join(f"{name} {_KINDS[name].replace(':', ': ')}" for name in names)


def check(schema: StructType) -> None:
    """Raise InvalidOption unless every column of a schema exists with that name and type."""
    for field in schema.fields:
        kind = _KINDS.get(field.name)
        if kind is None:
            raise InvalidOption(
                f"the schema has a column {field.name!r}, which the messages of a queue have not: "
                f"it may have {', '.join(NAMES)}"
            )
        given = field.dataType.simpleString()
        if given != kind:
            raise InvalidOption(
                f"the column {field.name} is of the type {given} in the schema, and {kind} in the "
                f"messages of a queue: leave the schema out, and cast what is read"
            )
