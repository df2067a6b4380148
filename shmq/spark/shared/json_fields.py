"""JSON bodies as columns by Spark's own expressions, where these are as strict as a decoder is.

Spark's parser accepts more than a decoder: text after the value, a number for text, a byte of 200.
So fields are parsed as wider types, and a row is accepted only if its values show that nothing
was changed. Every other row, and every row with a type that is not here, is left to
:mod:`shmq.spark.shared.body_columns`, which says what is wrong with it, if anything is.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import secrets
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f
from pyspark.sql import types

from shmq.spark.shared.convert import BITS, LARGEST_FLOAT

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["JsonFields"]

#: Texts that Spark and Python read as the same time; the year is far from the ends of both ranges.
_DATE: Final = "[1-8][0-9]{3}-[0-9]{2}-[0-9]{2}"
_TIME: Final = "[T ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,6})?"
_MOMENTS: Final[Mapping[type[types.DataType], str]] = MappingProxyType(
    {
        types.TimestampType: f"^{_DATE}{_TIME}(Z|[+-][0-9]{{2}}:[0-9]{{2}})$",
        types.TimestampNTZType: f"^{_DATE}{_TIME}$",
        types.DateType: f"^{_DATE}$",
    }
)

#: Spark accepts these unless it is told otherwise; where Python does, too, the decoder reads them.
_STRICT: Final = MappingProxyType({"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"})

#: With these begin the values of JSON that are neither texts, nor true, false or null.
_FIRST: Final = tuple("-0123456789{[")

#: Half of a surrogate pair may follow; Spark replaces one that stands alone.
_SURROGATES: Final = ("\\ud", "\\uD")


@dataclasses.dataclass(frozen=True)
class _Field:
    """How a value of a type is parsed, whether it is accepted, and how it is converted."""

    parsed: types.DataType

    def accepts(self, value: Column, name: str | None, body: Column) -> Column | None:
        """Whether a value that is not null is what the type says; None: it always is.

        The value is that of a field of that name, or in a list, in the text of a body.
        """
        del value, name, body
        return None

    def converted(self, value: Column) -> Column:
        """An accepted value as the type says."""
        return value


@dataclasses.dataclass(frozen=True)
class _Whole(_Field):
    kind: types.DataType
    bits: int

    def accepts(self, value: Column, name: str | None, body: Column) -> Column | None:
        del name, body
        most = 1 << self.bits - 1
        return None if self.bits == max(BITS.values()) else value.between(-most, most - 1)

    def converted(self, value: Column) -> Column:
        return value if self.bits == max(BITS.values()) else value.try_cast(self.kind)


@dataclasses.dataclass(frozen=True)
class _Number(_Field):
    kind: types.DataType
    most: float

    def accepts(self, value: Column, name: str | None, body: Column) -> Column:
        del name, body
        return f.abs(value) <= self.most  # not so for NaN, which is the greatest of all

    def converted(self, value: Column) -> Column:
        return value.cast(self.kind)


class _Text(_Field):
    def accepts(self, value: Column, name: str | None, body: Column) -> Column:
        """Spark makes text of every value: what looks like another one must stand in quotes.

        In a body without a backslash each quote begins or ends a text. So if the field's name
        is there once in quotes, a text in quotes behind it is the field's.
        """
        plain = ~(f.substring(value, 1, 1).isin(*_FIRST) | value.isin("true", "false"))
        if name is None or not name.isidentifier():
            return plain
        key = f'"{name}"'
        once = f.length(f.replace(body, f.lit(key), f.lit(""))) == f.length(body) - len(key)
        behind = (f.concat(f.lit(key + colon), value, f.lit('"')) for colon in (':"', ': "'))
        quoted = functools.reduce(operator.or_, map(body.contains, behind))
        return plain | (~body.contains("\\") & once & quoted)


@dataclasses.dataclass(frozen=True)
class _Moment(_Field):
    kind: types.DataType

    def accepts(self, value: Column, name: str | None, body: Column) -> Column:
        """No other value looks like a time."""
        del name, body
        return value.rlike(_MOMENTS[type(self.kind)]) & value.try_cast(self.kind).isNotNull()

    def converted(self, value: Column) -> Column:
        return value.try_cast(self.kind)


@dataclasses.dataclass(frozen=True)
class _List(_Field):
    each: _Field
    nullable: bool

    def accepts(self, value: Column, name: str | None, body: Column) -> Column:
        del name
        return f.forall(value, lambda item: _checked(self.each, item, self.nullable, None, body))

    def converted(self, value: Column) -> Column:
        return f.transform(value, self.each.converted)


@dataclasses.dataclass(frozen=True)
class _Struct(_Field):
    fields: tuple[tuple[str, _Field, bool], ...]

    def accepts(self, value: Column, name: str | None, body: Column) -> Column:
        del name
        each = (
            _checked(field, value[key], nullable, key, body) for key, field, nullable in self.fields
        )
        return functools.reduce(operator.and_, each, f.lit(True))

    def converted(self, value: Column) -> Column:
        made = [field.converted(value[name]).alias(name) for name, field, _ in self.fields]
        return f.when(value.isNotNull(), f.struct(*made))


def _checked(
    field: _Field, value: Column, nullable: bool, name: str | None, body: Column
) -> Column:
    accepted = field.accepts(value, name, body)
    if not nullable:
        return value.isNotNull() if accepted is None else value.isNotNull() & accepted
    return f.lit(True) if accepted is None else value.isNull() | accepted


def _field(kind: types.DataType) -> _Field | None:
    """How a type is parsed; None: not by Spark."""
    if isinstance(kind, types.ArrayType):
        return _list(kind)
    if isinstance(kind, types.StructType):
        return _struct(kind)
    if bits := BITS.get(type(kind)):
        return _Whole(types.LongType(), kind, bits)
    if type(kind) in _MOMENTS:
        return _Moment(types.StringType(), kind)
    simple = _SIMPLE.get(type(kind))
    return simple(kind) if simple is not None else None


_SIMPLE: Final[Mapping[type[types.DataType], Callable[[types.DataType], _Field]]] = (
    MappingProxyType(
        {
            types.BooleanType: _Field,
            types.StringType: _Text,
            types.DoubleType: lambda kind: _Number(types.DoubleType(), kind, sys.float_info.max),
            types.FloatType: lambda kind: _Number(types.DoubleType(), kind, LARGEST_FLOAT),
        }
    )
)


def _list(kind: types.ArrayType) -> _List | None:
    each = _field(kind.elementType)
    if each is None:
        return None
    return _List(types.ArrayType(each.parsed), each, kind.containsNull)


def _struct(kind: types.StructType) -> _Struct | None:
    made: list[tuple[str, _Field, bool]] = []
    if len({name.lower() for name in kind.names}) < len(kind.names):
        return None  # Spark's expressions do not tell them apart
    for field in kind.fields:
        found = _field(field.dataType)
        if found is None:
            return None
        made.append((field.name, found, field.nullable))
    parsed = types.StructType([types.StructField(name, each.parsed) for name, each, _ in made])
    return _Struct(parsed, tuple(made))


class JsonFields:
    """The fields of JSON bodies, by a schema."""

    def __init__(self, root: _Struct) -> None:
        self._root = root
        # No body can end the object around it and go on, as it does not know this name.
        self._name = f"end_{secrets.token_hex(8)}"

    @classmethod
    def of(cls, schema: types.StructType) -> JsonFields | None:
        """The fields of a schema; None if Spark does not read every type in it as it should."""
        root = _struct(schema)
        return None if root is None else cls(root)

    def parsed(self, value: Column) -> Column:
        """The body as a struct, for the other methods; null if it is surely bad."""
        text = value.cast("string")
        whole = f.concat(f.lit('{"body":'), text, f.lit(f',"{self._name}":1}}'))
        schema = types.StructType(
            [
                types.StructField("body", self._root.parsed),
                types.StructField(self._name, types.LongType()),
                types.StructField("bad", types.StringType()),
            ]
        )
        sure = f.is_valid_utf8(text)
        for half in _SURROGATES:
            sure &= ~text.contains(half)
        options = {**_STRICT, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": "bad"}
        return f.when(sure, f.from_json(whole, schema, options))

    def accepts(self, parsed: Column, value: Column) -> Column:
        """Whether every field of the struct is what its body has, and what the schema says."""
        body = parsed["body"]
        whole = parsed["bad"].isNull() & (parsed[self._name] == 1) & body.isNotNull()
        return f.coalesce(
            whole & self._root.accepts(body, None, value.cast("string")), f.lit(False)
        )

    def converted(self, parsed: Column) -> Column:
        """The fields of an accepted body, as a struct of the schema's types."""
        return self._root.converted(parsed["body"])
