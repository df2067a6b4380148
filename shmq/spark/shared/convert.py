"""Converts values of JSON and msgpack to Spark's types, or says why they do not fit.

A conversion that would change the value is refused: a number for text, a fraction for a whole
number, a number with too many bits. A time is ISO 8601 text (in UTC if it has no zone),
seconds since 1970, or a msgpack timestamp.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import decimal
import math
from collections.abc import Callable
from typing import Any, Final

from pyspark.sql import types

from shmq.errors import InvalidOption

#: Converts a value to the type. Raises ValueError that says what it is and what it should be.
Convert = Callable[[Any], Any]

#: The whole numbers.
_BITS: Final[dict[type[types.DataType], int]] = {
    types.ByteType: 8,
    types.ShortType: 16,
    types.IntegerType: 32,
    types.LongType: 64,
}
#: The greatest finite number of 32 bits.
_LARGEST_FLOAT: Final = 3.4028234663852886e38
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def converter(kind: types.DataType, nullable: bool = True) -> Convert:
    """The converter to that type; if ``nullable`` it accepts None, too.

    Raises :class:`~shmq.InvalidOption` for a type that bodies do not have.
    """
    convert = _choose_converter(kind)

    def checked(value: Any) -> Any:
        if value is None:
            if nullable:
                return None
            raise ValueError("is missing")
        return convert(value)

    return checked


def _choose_converter(kind: types.DataType) -> Convert:
    if bits := _BITS.get(type(kind)):
        return _make_integer(bits)
    if isinstance(kind, types.DecimalType):
        return _make_decimal(kind)
    if isinstance(kind, types.ArrayType):
        return _list(converter(kind.elementType, kind.containsNull))
    if isinstance(kind, types.MapType) and isinstance(kind.keyType, types.StringType):
        return _map(converter(kind.valueType, kind.valueContainsNull))
    if isinstance(kind, types.StructType):
        return _make_struct(kind)
    simple = _SIMPLE.get(type(kind))
    if simple is None:
        raise InvalidOption(
            f"the type {kind.simpleString()} cannot be made of a body: there are "
            f"{', '.join(sorted({k.typeName() for k in (*_BITS, *_SIMPLE)}))}, decimal, array, "
            f"map<string,…> and struct"
        )
    return simple


def _make_error(value: Any, wanted: str) -> ValueError:
    return ValueError(f"is {value!r:.60}, not {wanted}")


def _make_integer(bits: int) -> Convert:
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1

    def convert(value: Any) -> int:
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int:
            raise _make_error(value, "a whole number")
        if not least <= value <= most:
            raise _make_error(value, f"of {bits} bits")
        return value

    return convert


def _convert_double(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is not int:
        raise _make_error(value, "a number")
    try:
        made = float(value)
    except OverflowError:
        raise _make_error(value, "a number of 64 bits") from None
    return made


def _convert_float(value: Any) -> float:
    made = _convert_double(value)
    if math.isfinite(made) and abs(made) > _LARGEST_FLOAT:
        raise _make_error(value, "a number of 32 bits")
    return made


def _convert_text(value: Any) -> str:
    if type(value) is not str:
        raise _make_error(value, "text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"is {value!a:.60}, not text: half of a surrogate pair") from None
    return value


def _convert_boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise _make_error(value, "true or false")
    return value


def _convert_binary(value: Any) -> bytes:
    if type(value) is bytes:
        return value
    if type(value) is str:
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            pass
    raise _make_error(value, "bytes, nor text in base64")


def _convert_timestamp(value: Any) -> dt.datetime:
    try:
        if type(value) is str:
            found = dt.datetime.fromisoformat(value)
        elif type(value) is int or type(value) is float:
            found = _EPOCH + dt.timedelta(seconds=value)
        elif isinstance(value, dt.datetime):
            found = value
        else:
            raise _make_error(value, "a time")
        return (found if found.tzinfo else found.replace(tzinfo=dt.UTC)).astimezone(dt.UTC)
    except (ValueError, OverflowError):
        raise _make_error(value, "a time, as text of ISO 8601 or seconds since 1970") from None


def _convert_local(value: Any) -> dt.datetime:
    try:
        found = dt.datetime.fromisoformat(_convert_text(value))
    except ValueError:
        found = None
    if found is None or found.tzinfo is not None:
        raise _make_error(value, "a time without a zone, as text of ISO 8601")
    return found


def _convert_date(value: Any) -> dt.date:
    try:
        return dt.date.fromisoformat(_convert_text(value))
    except ValueError:
        raise _make_error(value, "a date, as text of ISO 8601") from None


def _make_decimal(kind: types.DecimalType) -> Convert:
    unit = decimal.Decimal(1).scaleb(-kind.scale)
    context = decimal.Context(
        prec=kind.precision, traps=[decimal.Inexact, decimal.InvalidOperation]
    )

    def convert(value: Any) -> decimal.Decimal:
        if type(value) not in {int, float, str}:
            raise _make_error(value, "a decimal number")
        try:
            return decimal.Decimal(str(value)).quantize(unit, context=context)
        except decimal.DecimalException:
            raise _make_error(value, kind.simpleString()) from None

    return convert


def _list(convert: Convert) -> Convert:
    def converted(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise _make_error(value, "a list")
        return [convert(each) for each in value]

    return converted


def _map(convert: Convert) -> Convert:
    def converted(value: Any) -> list[tuple[str, Any]]:
        if not isinstance(value, dict):
            raise _make_error(value, "a map")
        return [(_convert_text(key), convert(each)) for key, each in value.items()]

    return converted


def _make_struct(kind: types.StructType) -> Convert:
    fields = [(field.name, converter(field.dataType, field.nullable)) for field in kind.fields]

    def converted(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _make_error(value, "a map")
        made = {}
        for name, convert in fields:
            try:
                made[name] = convert(value.get(name))
            except ValueError as error:
                reason = str(error)
                raise ValueError(
                    f"{name} {reason}" if reason.startswith("is ") else f"{name}.{reason}"
                ) from None
        return made

    return converted


_SIMPLE: Final[dict[type[types.DataType], Convert]] = {
    types.StringType: _convert_text,
    types.BooleanType: _convert_boolean,
    types.DoubleType: _convert_double,
    types.FloatType: _convert_float,
    types.BinaryType: _convert_binary,
    types.TimestampType: _convert_timestamp,
    types.TimestampNTZType: _convert_local,
    types.DateType: _convert_date,
}
