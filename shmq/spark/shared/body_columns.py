"""Decodes JSON and msgpack bodies into columns by a schema, in Arrow batches.

For a body that cannot be decoded or does not match the schema, these columns are null and
:data:`PROBLEM` has the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgpack
import pyarrow as pa
from pyspark.sql import functions, types
from pyspark.sql.pandas.types import to_arrow_schema

from shmq.errors import InvalidOption, ShmqError
from shmq.spark.shared.convert import Convert, converter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["PROBLEM", "Decoder", "bad", "good", "in_headers", "schema_of", "tagged", "without_bad"]

#: The column that says what is wrong with a body; null: nothing.
PROBLEM: Final = "decode_problem"

#: The codecs with msgpack bodies.
_PACKED: Final = frozenset({"msgpack", "command", "event"})


def schema_of(ddl: str) -> types.StructType:
    """The schema of a DDL text such as ``"id BIGINT NOT NULL, name STRING"``.

    Raises :class:`~shmq.InvalidOption` for an invalid text or a type that bodies do not have.
    """
    try:
        found = types.StructType.fromDDL(ddl)
    except Exception as error:
        line = next(iter(str(error).splitlines()), type(error).__name__)
        raise InvalidOption(
            f"schema = {ddl!r:.80} must be columns as 'id BIGINT NOT NULL, name STRING': {line}"
        ) from error
    if not isinstance(found, types.StructType):
        raise InvalidOption(
            f"schema = {ddl!r:.80} must be columns as 'id BIGINT NOT NULL, name STRING'"
        )
    converter(found)
    return found


def tagged(rows: DataFrame, table: Mapping[str, Any]) -> DataFrame:
    """The rows with the fields of their ``value`` and :data:`PROBLEM`, as a job's table says.

    ``bad = "fail"`` in the table ends the job at the first bad body, with an error that names
    the message. Raises :class:`~shmq.InvalidOption` for a missing or duplicate column.
    """
    schema, codec = schema_of(table["schema"]), table["codec"]
    if table["into"] is not None:
        schema = types.StructType([types.StructField(table["into"], schema)])
    for name in ["value", "codec"] if codec == "message" else ["value"]:
        if name not in rows.columns:
            raise InvalidOption(
                f"decoding takes the column {name!r}, and there are {', '.join(rows.columns)}"
            )
    twice = [name for name in (*schema.names, PROBLEM) if name in rows.columns]
    if twice:
        raise InvalidOption(
            f"the field {twice[0]!r} is a column of the message already: say into in [decode], "
            f"or name the columns that you need as columns in [source]"
        )
    whole = types.StructType([_loose(field) for field in (*rows.schema, *schema)])
    whole.add(PROBLEM, types.StringType())
    decoder = Decoder(schema, codec, nested=table["into"] is not None, fail=table["bad"] == "fail")
    return rows.mapInArrow(decoder, whole)


def good(rows: DataFrame, table: Mapping[str, Any]) -> DataFrame:
    """The rows with good bodies, with their fields; dropped rows are counted."""
    found = tagged(rows, table)
    if table["bad"] == "drop":
        dropped = functions.count(PROBLEM).alias("bad bodies dropped")
        found = found.observe("decode", dropped)
    return without_bad(found)


def without_bad(found: DataFrame) -> DataFrame:
    """The :func:`tagged` rows that have their fields."""
    return found.where(functions.col(PROBLEM).isNull()).drop(PROBLEM)


def bad(rows: DataFrame, found: DataFrame) -> DataFrame:
    """The ``rows`` that were :func:`tagged` as bad, with :data:`PROBLEM` but without fields."""
    return found.where(functions.col(PROBLEM).isNotNull()).select(*rows.columns, PROBLEM)


def in_headers(rows: DataFrame) -> DataFrame:
    """The rows of :func:`bad` for a queue, with :data:`PROBLEM` as the last header."""
    problem = functions.col(PROBLEM).cast("binary")
    header = functions.struct(functions.lit(PROBLEM).alias("key"), problem.alias("value"))
    headers = functions.array(header)
    if "headers" in rows.columns:
        none = functions.array().cast(rows.schema["headers"].dataType)
        headers = functions.concat(functions.coalesce("headers", none), headers)
    return rows.withColumn("headers", headers).drop(PROBLEM)


def _loose(field: types.StructField) -> types.StructField:
    """The field as nullable: it is null for a bad body."""
    return types.StructField(field.name, field.dataType, True, field.metadata)


class Decoder:
    """Decodes batches; ``mapInArrow`` calls it on executors."""

    def __init__(self, schema: types.StructType, codec: str, *, nested: bool, fail: bool) -> None:
        self._schema = schema
        self._codec = codec
        self._nested = nested
        self._fail = fail

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches with the added columns."""
        convert = self._converter()
        kinds = to_arrow_schema(self._schema, timezone="UTC")
        for batch in batches:
            values = batch.column("value").to_pylist()
            codecs = (
                batch.column("codec").to_pylist()
                if self._codec == "message"
                else [self._codec] * len(values)
            )
            fields: list[dict[str, Any] | None] = []
            problems: list[str | None] = []
            for at, (value, codec) in enumerate(zip(values, codecs, strict=True)):
                try:
                    fields.append(convert(_parsed(value, codec)))
                    problems.append(None)
                except ValueError as error:
                    if self._fail:
                        raise ShmqError(_told(batch, at, str(error))) from None
                    fields.append(None)
                    problems.append(str(error))
            yield _extended(batch, kinds, fields, problems)

    def _converter(self) -> Convert:
        if not self._nested:
            return converter(self._schema)
        (field,) = self._schema.fields
        convert = converter(field.dataType)
        return lambda value: {field.name: convert(value)}


def _parsed(value: bytes | None, codec: str) -> Any:
    """The map in the body. Raises ValueError if the body is not a map."""
    if value is None:
        raise ValueError("there is no body")
    found = _decode(bytes(value), codec)
    if not isinstance(found, dict):
        raise ValueError(f"is {found!r:.60}, not a map")
    return found


def _decode(value: bytes, codec: str) -> Any:
    try:
        if codec == "json":
            return json.loads(value)
        if codec in _PACKED:
            return msgpack.unpackb(value, timestamp=3, strict_map_key=False)
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise ValueError(f"is not {codec}: {error or type(error).__name__}") from None
    raise ValueError(f"has the codec {codec!r}, which has no fields")


def _told(batch: pa.RecordBatch, at: int, problem: str) -> str:
    names = set(batch.schema.names)
    which = [
        f"{what} {batch.column(column)[at].as_py()}"
        for column, what in (("topic", "of queue"), ("offset", "of message"))
        if column in names
    ]
    return f"{' '.join(['the body', *reversed(which)])}: {problem}"


def _extended(
    batch: pa.RecordBatch,
    kinds: pa.Schema,
    fields: list[dict[str, Any] | None],
    problems: list[str | None],
) -> pa.RecordBatch:
    arrays = [
        pa.array([row[kind.name] if row is not None else None for row in fields], kind.type)
        for kind in kinds
    ]
    schema = [*batch.schema, *(kind.with_nullable(True) for kind in kinds)]
    return pa.RecordBatch.from_arrays(
        [*batch.columns, *arrays, pa.array(problems, pa.string())],
        schema=pa.schema([*schema, pa.field(PROBLEM, pa.string())]),
    )
