"""The shape of a body: its structure, without its values.

Bodies of one shape usually come from one kind of producer, so dead letters fall into a few
kinds. A shape is one line of text, the same for the same kind everywhere:
:mod:`shmq.model.expression.parse` compares it.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

import msgpack

from shmq.errors import ShmqError
from shmq.model.codec.codecs import decode_body
from shmq.native._core import codec_number

#: The most characters of a shape. A longer one is cut, and ends in a hash of the whole.
LONGEST: Final = 200

#: The codecs whose bodies have keys and types.
_STRUCTURED: Final = ("json", "msgpack", "command", "event")

#: How much of a body is inspected, so that a large one takes no longer than a small one.
_DEPTH: Final = 4
_ITEMS: Final = 100
_KEYS: Final = 40

_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_.-]+")
_LEADING: Final = 4

_UNITS: Final = ("KiB", "MiB", "GiB")


def shape_of(codec: str, body: bytes) -> str:
    """The shape of a body, given as its bytes; at most `LONGEST` characters.

    For JSON and msgpack the sorted keys and the types: ``{id: int, item: str}``. For other
    codecs, and for bodies that their codec cannot decode, the size and the leading bytes:
    ``64-255 B 89504e47``. Raises nothing: every body has a shape.
    """
    if codec not in _STRUCTURED:
        return _describe_bytes(body)
    try:
        value = decode_body(body, codec_number(codec), codec)
    except (ShmqError, ValueError, TypeError, RecursionError):
        return f"not {codec}, {_describe_bytes(body)}"
    shape = _describe_value(value, _DEPTH)
    if len(shape) <= LONGEST:
        return shape
    digest = hashlib.sha256(shape.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{shape[: LONGEST - 9]}…{digest}"


def _describe_bytes(body: bytes) -> str:
    size = _classify_size(len(body))
    if not body:
        return size
    leading = body[:_LEADING]
    if all(0x20 <= byte < 0x7F for byte in leading):
        return f"{size} {json.dumps(leading.decode('ascii'))}"
    return f"{size} {leading.hex()}"


def _classify_size(size: int) -> str:
    """The powers of four that a size lies between, in bytes: ``64-255 B``, ``4-16 KiB``."""
    if size < 4:
        return f"{size} B"
    least = 4 ** ((size.bit_length() - 1) // 2)
    if least < 1024:
        return f"{least}-{4 * least - 1} B"
    unit = min((least.bit_length() - 1) // 10, len(_UNITS))
    least >>= 10 * unit
    return f"{least}-{4 * least} {_UNITS[unit - 1]}"


def _describe_value(value: Any, depth: int) -> str:
    match value:
        case None:
            return "null"
        case dict():
            return _describe_map(value, depth)
        case list():
            inside = _join_types(value, depth - 1) if depth else "…"
            return f"[{inside}]"
        case dt.datetime() | msgpack.Timestamp():
            return "timestamp"
        case msgpack.ExtType():
            return "ext"
    return type(value).__name__


def _describe_map(value: dict[Any, Any], depth: int) -> str:
    """The keys with their types; for a map whose keys are data, only the values' types."""
    if not value:
        return "{}"
    if not depth:
        return "{…}"
    if len(value) > _KEYS or not all(isinstance(key, str) for key in value):
        return f"{{*: {_join_types(value.values(), depth - 1)}}}"
    pairs = (
        f"{_describe_key(key)}: {_describe_value(value[key], depth - 1)}" for key in sorted(value)
    )
    return f"{{{', '.join(pairs)}}}"


def _describe_key(key: str) -> str:
    return key if _PLAIN_KEY.fullmatch(key) else json.dumps(key)


def _join_types(values: Iterable[Any], depth: int) -> str:
    """The types that occur among the first of the values."""
    return "|".join(sorted({_describe_value(value, depth) for value in islice(values, _ITEMS)}))
