"""Decodes JSON and msgpack bodies into columns by a schema, in Arrow batches.

For a body that cannot be decoded or does not match the schema, these columns are null and
:data:`PROBLEM` has the reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgpack
import pyarrow as pa
from pyspark.sql import functions, types
from pyspark.sql.pandas.types import to_arrow_type

from shmq.errors import InvalidOption, ShmqError
from shmq.model.codec.codecs import unpack
from shmq.spark.shared.convert import converter
from shmq.spark.shared.spark_error import describe_spark_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
        if not isinstance(found, types.StructType):
            raise TypeError(f"it is of the type {found.simpleString()}")
    except Exception as error:
        raise InvalidOption(
            f"schema = {ddl!r:.80} must be columns as 'id BIGINT NOT NULL, name STRING': "
            f"{describe_spark_error(error)}"
        ) from error
    converter(found)
    return found


def tagged(rows: DataFrame, table: Mapping[str, Any]) -> DataFrame:
    """The rows with the fields of their ``value`` and :data:`PROBLEM`, as a job's table says.

    ``bad = "fail"`` in the table ends the job at the first bad body, with an error that names
    the message. Raises :class:`~shmq.InvalidOption` for a missing or duplicate column.
    """
    schema, codec = schema_of(table["schema"]), table["codec"]
    names = schema.names if table["into"] is None else [table["into"]]
    for name in ["value", "codec"] if codec == "message" else ["value"]:
        if name not in rows.columns:
            raise InvalidOption(
                f"decoding takes the column {name!r}, and there are {', '.join(rows.columns)}"
            )
    twice = [name for name in (*names, PROBLEM) if name in rows.columns]
    if twice:
        raise InvalidOption(
            f"the field {twice[0]!r} is a column of the message already: say into in [decode], "
            f"or name the columns that you need as columns in [source]"
        )
    decoder = Decoder(schema, codec, fail=table["bad"] == "fail")
    return _decode_rows(rows, decoder, table["into"])


#: The column of a row that has its fields and its problem.
_FOUND: Final = "__decoded"


def _decode_rows(rows: DataFrame, decoder: Decoder, into: str | None) -> DataFrame:
    """The rows with their fields and problems; only what the decoder reads goes to Python."""
    codec = functions.col("codec") if decoder.codec == "message" else functions.lit(decoder.codec)
    named = [
        functions.col(name) if name in rows.columns else functions.lit(None).cast(kind)
        for name, kind in (("topic", "string"), ("offset", "bigint"))
    ]
    decode = functions.arrow_udf(decoder.decode, decoder.kind).asNondeterministic()  # type: ignore[attr-defined]
    made = rows.withColumn(_FOUND, decode(functions.col("value"), codec, *named))
    fields, problem = (functions.col(_FOUND)[name] for name in ("fields", "problem"))
    each = [fields[name].alias(name) for name in decoder.schema.names]
    whole = each if into is None else [fields.alias(into)]
    return made.select(*rows.columns, *whole, problem.alias(PROBLEM))


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


class Decoder:
    """Decodes bodies in Arrow arrays, by a schema."""

    def __init__(self, schema: types.StructType, codec: str, *, fail: bool) -> None:
        self.schema = schema
        #: ``json``, ``msgpack``, or ``message``: what the column ``codec`` says.
        self.codec = codec
        self._fail = fail

    @property
    def kind(self) -> types.StructType:
        """The type of what it returns: the fields, and what is wrong with the body."""
        loose = types.StructType([_make_nullable(field) for field in self.schema])
        return types.StructType().add("fields", loose).add("problem", types.StringType())

    def decode(
        self, values: pa.Array, codecs: pa.Array, topics: pa.Array, offsets: pa.Array
    ) -> pa.Array:
        """The fields and problems of the bodies. Raises ShmqError for a bad one if it must."""
        kind = to_arrow_type(self.kind, timezone="UTC")
        found = self._find(values, codecs, topics, offsets)
        return pa.StructArray.from_arrays(
            [pa.array(column, field.type) for column, field in zip(found, kind, strict=True)],
            fields=[*kind],
        )

    def _find(
        self, values: pa.Array, codecs: pa.Array, topics: pa.Array, offsets: pa.Array
    ) -> tuple[list[Any], list[str | None]]:
        """The fields of each body, and what is wrong with it."""
        convert = converter(self.schema)
        fields: list[Any] = []
        problems: list[str | None] = []
        given = zip(values.to_pylist(), codecs.to_pylist(), strict=True)
        for at, (value, codec) in enumerate(given):
            try:
                fields.append(convert(_parse(value, codec)))
                problems.append(None)
            except ValueError as error:
                if self._fail:
                    raise ShmqError(
                        _describe(topics[at].as_py(), offsets[at].as_py(), error)
                    ) from None
                fields.append(None)
                problems.append(str(error))
        return fields, problems


def _make_nullable(field: types.StructField) -> types.StructField:
    """The field as nullable: it is null for a bad body."""
    return types.StructField(field.name, field.dataType, True, field.metadata)


def _parse(value: bytes | None, codec: str) -> Any:
    """The map in the body. Raises ValueError if the body is not a map."""
    if value is None:
        raise ValueError("the body is missing")
    found = _decode(bytes(value), codec)
    if not isinstance(found, dict):
        raise ValueError(f"is {found!r:.60}, not a map")
    return found


def _decode(value: bytes, codec: str) -> Any:
    try:
        if codec == "json":
            return json.loads(value)
        if codec in _PACKED:
            return unpack(value)
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise ValueError(f"is not {codec}: {error or type(error).__name__}") from None
    raise ValueError(f"has the codec {codec!r}, which has no fields")


def _describe(topic: str | None, offset: int | None, problem: ValueError) -> str:
    which = "the body"
    if offset is not None:
        which += f" of message {offset}"
    return f"{which}{'' if topic is None else f' of queue {topic}'}: {problem}"
