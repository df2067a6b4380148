"""Log records as messages: maps of the record's attributes, without pickle."""

from __future__ import annotations

import logging
from typing import Any, Final

#: What the message replaces: its text has the arguments, and the traceback is text.
_REPLACED: Final = frozenset({"msg", "args", "exc_info", "exc_text", "stack_info"})
#: How deep lists and maps in ``extra`` are stored as such.
_DEEPEST: Final = 8
_FORMATTER: Final = logging.Formatter()


def encode_record(record: logging.LogRecord, formatter: logging.Formatter | None) -> dict[str, Any]:
    """The attributes of the record; values that a message cannot hold are their repr.

    ``msg`` is the text with its arguments, and ``exc_text`` the traceback; with a ``formatter``
    ``msg`` is what it returns, which has the traceback and the stack. The record is not changed.
    Raises what the formatting raises.
    """
    fields = {
        name: _to_storable(value, _DEEPEST)
        for name, value in record.__dict__.items()
        if name not in _REPLACED
    }
    exc_text, stack_info = record.exc_text, record.stack_info
    if formatter is not None:
        msg = formatter.format(record)
        record.exc_text = exc_text  # which it has set for the formatters that follow
        exc_text = stack_info = None
    else:
        msg = record.getMessage()
        if record.exc_info and not exc_text:
            exc_text = _FORMATTER.formatException(record.exc_info)
    texts = {"msg": msg, "exc_text": exc_text, "stack_info": stack_info}
    return fields | {name: text and _to_text(text) for name, text in texts.items()}


def decode_record(fields: Any) -> logging.LogRecord:
    """The record of such attributes. Raises TypeError for what is not a record."""
    if not isinstance(fields, dict) or type(fields.get("levelno")) is not int:
        raise TypeError(f"a log record must be a map with a levelno, not {fields!r:.80}")
    return logging.makeLogRecord({"args": None, "exc_info": None, **fields})


def _to_text(text: str) -> str:
    """The text, with escapes in place of lone surrogates."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _to_storable(value: Any, depth: int) -> Any:
    """The value itself if a message holds it, or else its repr."""
    kind = type(value)
    if value is None or kind in {bool, float, bytes}:
        return value
    if kind is int and -(1 << 63) <= value < 1 << 63:
        return value
    if kind is str:
        return _to_text(value)
    if depth and kind in {list, tuple}:
        return [_to_storable(each, depth - 1) for each in value]
    if depth and kind is dict and all(type(key) is str for key in value):
        return {_to_text(key): _to_storable(each, depth - 1) for key, each in value.items()}
    return _to_text(_describe(value))


def _describe(value: Any) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - of any class
        return object.__repr__(value)
