"""Expressions that select records of a stream.

``key like 'EU-%' and age < 2h``. The language is that of :mod:`shmq.model.expression.parse`, with
the fields of a record.
"""

from __future__ import annotations

from typing import Any, Final

from shmq.api import Record
from shmq.model.expression.parse import Asked, Expression, Field, Fields


class _Entry(Asked):
    """A record."""

    what: Record

    @property
    def raw(self) -> bytes:
        """The bytes of its value."""
        return bytes(self.what.value)


def _read_key(entry: _Entry) -> Any:
    """Its key as text; a key that is not UTF-8 stays bytes, and matches no text."""
    key = entry.what.key
    try:
        return None if key is None else bytes(key).decode()
    except UnicodeDecodeError:
        return key


_FIELDS: Final[Fields] = {
    field.name: field
    for field in (
        Field("key", "text", _read_key),
        Field("codec", "text", lambda entry: entry.what.codec),
        Field("shape", "text", lambda entry: entry.shape),
        Field("partition", "number", lambda entry: entry.what.partition),
        Field("offset", "number", lambda entry: entry.what.offset),
        Field("size", "bytes", lambda entry: len(entry.what.value)),
        Field("age", "seconds", lambda entry: entry.now - entry.what.timestamp),
        Field("at", "moment", lambda entry: entry.what.timestamp),
    )
}


class RecordWhere(Expression[Record]):
    """An expression that selects records of a stream."""

    _fields = _FIELDS
    _asked = _Entry
