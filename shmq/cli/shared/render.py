"""Messages and records as JSON, as text, or as the bytes they are.

``docs/reference/cli.md`` fixes the shape of the JSON.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import shmq
from shmq.cli.shared.output import on_a_terminal, printable

#: What ``--format`` takes.
FORMATS = ("body", "json", "raw")


class WithBody(Protocol):
    """What has a body."""

    @property
    def body(self) -> Any:
        """The body, decoded."""

    @property
    def view(self) -> memoryview:
        """The body's bytes."""


class Readable(WithBody, Protocol):
    """The parts of a message that are shown; a queue or a file may have it."""

    @property
    def sequence(self) -> int:
        """Its sequence number."""

    @property
    def priority(self) -> int:
        """Its priority."""

    @property
    def group(self) -> str | None:
        """Its group."""

    @property
    def delivery_count(self) -> int:
        """How often it has been delivered."""

    @property
    def codec(self) -> str:
        """The name of its codec."""

    @property
    def headers(self) -> Mapping[str, Any]:
        """Its headers."""

    @property
    def properties(self) -> Mapping[str, Any]:
        """All of its properties."""

    @property
    def dead(self) -> shmq.DeadLetter | None:
        """Why it is a dead letter."""

    @property
    def last_error(self) -> shmq.Failure | None:
        """The error of its last failed delivery."""


def raw(message: WithBody) -> bytes:
    """The body's bytes as they were put."""
    with message.view as view:
        return bytes(view)


def as_text(message: WithBody) -> str:
    """The body to read: text as is, bytes as UTF-8 with the rest escaped, else JSON."""
    body = _decode_value(message)
    if isinstance(body, str):
        return body
    if isinstance(body, bytes):
        return body.decode(errors="backslashreplace")
    try:
        return dumps(plain(body))
    except (ValueError, RecursionError):
        return raw(message).decode(errors="backslashreplace")


def as_json(message: Readable) -> str:
    """:func:`as_dict` as one line of ASCII."""
    return dumps(as_dict(message))


def as_dict(message: Readable) -> dict[str, Any]:
    """The message with its properties, as values of JSON.

    ``encoding`` says what ``body`` is: ``text`` (the body is that string), ``json``
    (the body is that value) or ``base64`` (of the body's bytes).
    """
    body, encoding = body_of(message)
    return {
        "sequence": message.sequence,
        "priority": message.priority,
        "group": message.group,
        "delivery_count": message.delivery_count,
        "codec": message.codec,
        "headers": plain(message.headers),
        "properties": plain(_collect_other_properties(message)),
        "dead": dataclasses.asdict(message.dead) if message.dead is not None else None,
        "last_error": dataclasses.asdict(message.last_error) if message.last_error else None,
        "body": body,
        "encoding": encoding,
    }


def _collect_other_properties(message: Readable) -> dict[str, Any]:
    shown = ("pri", "group", "headers", "codec", "dead", "error")
    return {key: value for key, value in message.properties.items() if key not in shown}


def body_of(message: WithBody) -> tuple[Any, str]:
    """The body as a value of JSON, and the ``encoding`` of :func:`as_dict`."""
    body = _decode_value(message)
    if isinstance(body, str):
        return body, "text"
    if not isinstance(body, bytes):
        try:
            out = plain(body)
            dumps(out)
            return out, "json"
        except (ValueError, RecursionError):
            body = raw(message)
    return _encode_base64(body), "base64"


def _decode_value(message: WithBody) -> Any:
    """The decoded body, or its bytes if the codec cannot decode them."""
    try:
        return message.body
    except (shmq.ShmqError, ValueError, TypeError, RecursionError):
        return raw(message)


def plain(value: Any) -> Any:
    """``value`` as JSON: bytes are ``{"base64": …}``, NaN its name, datetimes ISO 8601."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return {"base64": _encode_base64(bytes(value))}
    if isinstance(value, Mapping):
        return {_format_key(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.isoformat() if isinstance(value, dt.datetime) else str(value)


def _format_key(key: Any) -> str:
    if isinstance(key, bytes):
        return key.decode(errors="backslashreplace")
    return key if isinstance(key, str) else dumps(plain(key))


def _encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def dumps(value: Any) -> str:
    """``value`` as one line of ASCII."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


class _Seen:
    """A record with the attributes of :class:`WithBody`."""

    def __init__(self, record: shmq.Record) -> None:
        self._record = record

    @property
    def body(self) -> Any:
        """The value, decoded."""
        return self._record.body

    @property
    def view(self) -> memoryview:
        """The value's bytes."""
        return memoryview(self._record.value)


def record_as_dict(record: shmq.Record) -> dict[str, Any]:
    """The record as values of JSON; ``encoding`` says what ``value`` is."""
    value, encoding = body_of(_Seen(record))
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": None if record.key is None else record.key.decode(errors="backslashreplace"),
        "headers": plain(record.headers),
        "codec": record.codec,
        "value": value,
        "encoding": encoding,
    }


def record_writer(as_json: bool, with_key: bool) -> Callable[[shmq.Record], bytes]:
    """The function that turns a record into its line of output."""
    if as_json:
        return lambda record: dumps(record_as_dict(record)).encode() + b"\n"

    def line(record: shmq.Record) -> bytes:
        text = as_text(_Seen(record))
        if on_a_terminal():
            text = printable(text, keep="\n\t")
        key = (record.key or b"") + b"\t" if with_key else b""
        return key + text.encode(errors="backslashreplace") + b"\n"

    return line
