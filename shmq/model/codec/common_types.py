"""A ready-made ``default`` of ``connect``, for common types."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import pathlib
import sys
import uuid
from collections.abc import Callable
from operator import attrgetter, methodcaller
from typing import Any, Final


def encode_common(value: Any) -> Any:
    """Return a value of a common type as one that bodies can hold: ``default=`` of ``connect``.

    A date, a time, and in JSON an aware datetime become texts of ISO 8601; a timedelta becomes its
    seconds; a UUID, a Decimal and a Path become texts; an Enum becomes its value; a set becomes a
    list, in no order; a dataclass, a ``msgspec.Struct`` and a model of pydantic become maps of
    their fields. Fields and items are converted in the same way.

    Raises TypeError for other types, and for a naive datetime.
    """
    if isinstance(value, dt.datetime) and value.utcoffset() is None:
        raise TypeError(f"{value!r} has no time zone: give it one, such as datetime.UTC")
    for types, convert in _CONVERSIONS:
        if isinstance(value, types):
            return convert(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return _encode_model(value)


def _encode_model(value: Any) -> Any:
    """The map of a struct of msgspec or a model of pydantic. Raises TypeError."""
    # Only a library that is loaded can have made the value.
    msgspec: Any = sys.modules.get("msgspec")
    if msgspec is not None and isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value, builtin_types=_KEPT, enc_hook=encode_common)
    pydantic: Any = sys.modules.get("pydantic")
    if pydantic is not None and isinstance(value, pydantic.BaseModel):
        return value.model_dump()
    raise TypeError(f"encode_common does not know the type {type(value).__qualname__}")


#: What each type becomes; a datetime is a date, too.
_CONVERSIONS: Final[tuple[tuple[Any, Callable[[Any], Any]], ...]] = (
    ((dt.date, dt.time), methodcaller("isoformat")),
    (dt.timedelta, dt.timedelta.total_seconds),
    ((uuid.UUID, decimal.Decimal, pathlib.PurePath), str),
    (enum.Enum, attrgetter("value")),
    ((set, frozenset), list),
)

#: What stays in the map of a struct, and is converted with the rest of the body.
_KEPT: Final = (
    *(bytes, bytearray, memoryview, dt.datetime, dt.date, dt.time, dt.timedelta),
    *(uuid.UUID, decimal.Decimal),
)
