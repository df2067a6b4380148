"""The columns of a queue's rows, with Kafka's names where the meaning is the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self

from pyspark.sql import types

from shmq.api import columns as api
from shmq.errors import InvalidOption
from shmq.suggestions import suggest

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

#: The states of a message, as in the column ``state``.
STATES: Final = tuple(filter(None, api.STATES))

#: All columns, in their order, each with its Spark type, as DDL.
COLUMNS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "key": "binary",
        "value": "binary",
        "topic": "string",
        "partition": "int",
        "offset": "bigint",
        "timestamp": "timestamp",
        "timestampType": "int",
        "headers": "array<struct<key:string,value:binary>>",
        "priority": "int",
        "delivery_count": "int",
        "state": "string",
        "codec": "string",
        "correlation_id": "string",
        "reply_to": "string",
        "visible_at": "timestamp",
        "lease_until": "timestamp",
        "expires_at": "timestamp",
        "dead_reason": "string",
        "dead_queue": "string",
        "dead_deliveries": "int",
        "dead_at": "timestamp",
        "last_error": "string",
    }
)

NAMES: Final = tuple(COLUMNS)

#: The columns that are there by default: those of Kafka's connector.
KAFKA: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")

#: In the option ``columns``: every column, the headers if they are included.
ALL: Final = "all"


def chosen(options: Mapping[str, Any], there: Sequence[str] = NAMES) -> tuple[str, ...]:
    """The columns that ``columns`` and ``includeHeaders`` name, of those that are there."""
    named: tuple[str, ...] = options["columns"] or (*KAFKA, "headers")
    if options["columns"] and ALL not in named:
        return named
    whole = there if ALL in named else named
    return tuple(name for name in whole if name != "headers" or options["includeHeaders"])


def ddl(names: Iterable[str]) -> str:
    """The columns of these names as the DDL of a schema."""
    return ", ".join(f"{name} {COLUMNS[name].replace(':', ': ')}" for name in names)


def check(schema: StructType) -> None:
    """Raise InvalidOption unless every column of a schema exists with that name and type."""
    for field in schema.fields:
        kind = COLUMNS.get(field.name)
        if kind is None:
            raise InvalidOption(
                f"the schema has a column {field.name!r}, which a message does not have: "
                f"it may have {', '.join(NAMES)}"
            )
        given = field.dataType.simpleString()
        if given != kind:
            raise InvalidOption(
                f"the column {field.name} is of the type {given} in the schema, and {kind} in the "
                f"messages of a queue: leave the schema out, and cast what is read"
            )


@dataclasses.dataclass(frozen=True, slots=True)
class SinkColumn:
    """A column that a sink reads: its name, its argument of a put, and its allowed types."""

    name: str
    #: The argument of ``Queue.put`` that it becomes; ``body`` and ``queue`` are not arguments.
    argument: str
    fits: Callable[[DataType], bool]
    #: The types in words, for errors and docs.
    kinds: str


def _make_type_check(*allowed: type[DataType]) -> Callable[[DataType], bool]:
    return lambda kind: isinstance(kind, allowed)


_TEXTS: Final = (types.StringType, types.CharType, types.VarcharType)
_WHOLE: Final = (types.ByteType, types.ShortType, types.IntegerType, types.LongType)

_is_text: Final = _make_type_check(*_TEXTS)
_is_text_or_binary: Final = _make_type_check(*_TEXTS, types.BinaryType)
_is_whole: Final = _make_type_check(*_WHOLE)
_is_seconds: Final = _make_type_check(
    *_WHOLE, types.FloatType, types.DoubleType, types.DecimalType, types.DayTimeIntervalType
)


def _is_headers(kind: DataType) -> bool:
    if isinstance(kind, types.MapType):
        return _is_text(kind.keyType) and _is_text_or_binary(kind.valueType)
    if not isinstance(kind, types.ArrayType) or not isinstance(kind.elementType, types.StructType):
        return False
    fields = kind.elementType.fields
    return (
        [field.name.lower() for field in fields] == ["key", "value"]
        and _is_text(fields[0].dataType)
        and _is_text_or_binary(fields[1].dataType)
    )


_TEXT: Final = "string"
_EITHER: Final = "string or binary"
_SECONDS: Final = "a number (of seconds) or interval day to second"

_VALUE: Final = SinkColumn("value", "body", _is_text_or_binary, _EITHER)
_HEADERS: Final = SinkColumn(
    "headers",
    "headers",
    _is_headers,
    "array<struct<key: string, value: string or binary>> or map<string, string or binary>",
)
_CODEC: Final = SinkColumn("codec", "codec", _is_text, _TEXT)
_TOPIC: Final = SinkColumn("topic", "queue", _is_text, _TEXT)

#: Every column that the sink of a queue reads; docs/integrate/spark.md has the same table.
QUEUE_SINK: Final = (
    _VALUE,
    SinkColumn("key", "group", _is_text_or_binary, _EITHER),
    SinkColumn("group", "group", _is_text, _TEXT),
    _HEADERS,
    SinkColumn("priority", "priority", _is_whole, "int"),
    SinkColumn("delay", "delay", _is_seconds, _SECONDS),
    SinkColumn("ttl", "ttl", _is_seconds, _SECONDS),
    SinkColumn("dedupe_id", "dedupe_id", _is_text, _TEXT),
    _CODEC,
    SinkColumn("correlation_id", "correlation", _is_text, _TEXT),
    SinkColumn("reply_to", "reply_to", _is_text, _TEXT),
    _TOPIC,
    SinkColumn("queue", "queue", _is_text, _TEXT),
)

#: Every column that the sink of a stream reads; docs/integrate/spark.md has the same table.
STREAM_SINK: Final = (
    _VALUE,
    SinkColumn("key", "key", _is_text_or_binary, _EITHER),
    _HEADERS,
    SinkColumn("partition", "partition", _is_whole, "int"),
    _CODEC,
    _TOPIC,
)

#: The columns of a source in lower case: a sink ignores those that it does not read.
_READ: Final = frozenset(name.lower() for name in NAMES)


@dataclasses.dataclass(frozen=True, slots=True)
class SinkColumns:
    """The place in a row of each part of a message."""

    #: The place of the column ``value``.
    body: int
    #: The place of the column that names the queue; None: the option names it.
    queue: int | None
    #: The places of the other columns, each with the argument of a put that it becomes.
    arguments: tuple[tuple[str, int], ...]

    @classmethod
    def of(
        cls,
        schema: StructType,
        topic: str | None,
        table: Sequence[SinkColumn] = QUEUE_SINK,
        thing: str = "queue",
    ) -> Self:
        """The columns of the schema; ``topic``: the queue or stream that the options name, if any.

        Raises :class:`~shmq.InvalidOption` for a column that is missing, unknown, or of a
        type that it cannot have, and for two columns with the same meaning.
        """
        known = {column.name: column for column in table}
        found: dict[str, tuple[str, int]] = {}
        for at, field in enumerate(schema.fields):
            column = known.get(field.name.lower())
            if column is None:
                continue
            if not column.fits(field.dataType):
                raise InvalidOption(
                    f"the column {field.name} is {field.dataType.simpleString()}, and must be "
                    f"{column.kinds}: cast it"
                )
            if column.argument in found:
                raise InvalidOption(
                    f"the columns {found[column.argument][0]} and {field.name} both say the "
                    f"{column.argument} of a message: drop one of them"
                )
            found[column.argument] = (field.name, at)
        _check_names(schema.fieldNames(), known)
        if topic is None and "queue" not in found:
            raise InvalidOption(
                f"nothing says which {thing} to write to: give .option('topic', NAME), or a column "
                "topic with the name in each row"
            )
        body, queue = found.pop("body")[1], found.pop("queue", None)
        arguments = tuple((argument, at) for argument, (_, at) in found.items())
        return cls(body, None if topic is not None or queue is None else queue[1], arguments)


def _check_names(names: Sequence[str], known: Collection[str]) -> None:
    folded = [name.lower() for name in names]
    if "value" not in folded:
        raise InvalidOption(
            f"the column 'value' is missing, which is a message's body: name one so (there are "
            f"{', '.join(names) or 'none'}), or make it: to_json(struct('*')).alias('value')"
        )
    for name in names:
        if name.lower() not in known and name.lower() not in _READ:
            raise InvalidOption(
                f"the column {name} has no meaning in a message: "
                f"{suggest(name, known, '')} Drop it, or put it into value or headers; "
                f"the columns are {', '.join(known)}"
            )
