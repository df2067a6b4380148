"""Encodes and decodes bodies, and maps of properties.

A body is any buffer, a str, or a value that msgpack can hold; its codec says which. Properties
are one msgpack map with the keys of the wire protocol, so that a message put locally and one
put over the network look the same to the consumer. Nothing is ever unpickled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgpack

from shmq.api.properties import PROPERTIES
from shmq.errors import InvalidOption, ShmqError
from shmq.model.codec.strict_json import decode_json, encode_json
from shmq.native import _core

#: The codecs by their number in a slot. Any other codec has the number 255 and its name in
#: the properties; its bodies are bytes.
CODECS = _core.CODECS
OTHER = _core.CODEC_OTHER

#: The arguments of a put by their keys in the properties.
PUT_ARGUMENTS: Final = {row.key: name for name, row in PROPERTIES.items() if row.key}

#: The properties in ms; the arguments are in seconds.
_TIMES: Final = {row.key for row in PROPERTIES.values() if row.unit == "seconds"}

_BYTES, _TEXT, _MSGPACK, _JSON = map(CODECS.index, ("bytes", "text", "msgpack", "json"))
_PACKED = _core.CODEC_PACKED
_INT64 = range(-(1 << 63), 1 << 64)


def encode_body(body: Any, codec: str | None) -> tuple[Any, int]:
    """The body as a buffer, and its codec's number. ``codec`` None: by the body's type."""
    if codec is None:
        return _encode_by_type(body)
    if codec not in CODECS:
        return _make_contiguous(body, _check_text("codec", codec)), OTHER
    encode: Callable[[Any], Any] = _ENCODERS.get(codec, _to_msgpack)
    return encode(body), CODECS.index(codec)


def _encode_by_type(body: Any) -> tuple[Any, int]:
    if isinstance(body, bytes):
        return body, _BYTES
    if isinstance(body, str):
        return body.encode(), _TEXT
    try:
        view = memoryview(body)
    except TypeError:
        return _to_msgpack(body), _MSGPACK
    return _flatten(view), _BYTES


def _make_contiguous(body: Any, codec: str) -> Any:
    try:
        return _flatten(memoryview(body))
    except TypeError:
        raise TypeError(
            f"codec {codec!r} takes bytes or another buffer, not {type(body).__name__}"
        ) from None


def _flatten(view: memoryview) -> Any:
    return view if view.c_contiguous else view.tobytes()


def _to_packed(body: Any) -> bytes:
    try:
        records = [bytes(memoryview(record)) for record in body]
    except TypeError:
        raise TypeError(
            f"codec 'packed' takes the records as buffers, not {type(body).__name__}"
        ) from None
    data = b"".join(records)
    return data + _core.packed_trailer(len(data), [len(record) for record in records])


def _to_bytes(body: Any) -> Any:
    return _make_contiguous(body, "bytes")


def _to_text(body: Any) -> bytes:
    if not isinstance(body, str):
        raise TypeError(f"codec 'text' takes a str, not {type(body).__name__}")
    return body.encode()


def _to_json(body: Any) -> bytes:
    try:
        return encode_json(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"JSON cannot hold this {type(body).__name__}: {error}") from None


def _to_msgpack(body: Any) -> bytes:
    try:
        packed: bytes = msgpack.packb(body, default=_reject)
    except (OverflowError, ValueError) as error:
        culprit = _find_wide_int(body)
        what = f"the int {culprit}" if culprit is not None else f"this {type(body).__name__}"
        raise TypeError(f"msgpack cannot hold {what}: {error}") from None
    return packed


def _reject(value: object) -> Any:
    raise TypeError(
        f"msgpack cannot hold {value!r:.80} of type {type(value).__name__}: "
        f"put bytes, a str, or maps and lists of plain values"
    )


def _find_wide_int(value: object, depth: int = 0) -> int | None:
    """The first int in ``value`` that has more than 64 bits."""
    if isinstance(value, int):
        return None if value in _INT64 else value
    if depth > 100 or not isinstance(value, dict | list | tuple):
        return None
    parts = [*value.keys(), *value.values()] if isinstance(value, dict) else value
    found = (_find_wide_int(part, depth + 1) for part in parts)
    return next((part for part in found if part is not None), None)


#: The encoders by codec; the other codecs are msgpack.
_ENCODERS: Mapping[str, Callable[[Any], Any]] = {
    "bytes": _to_bytes,
    "text": _to_text,
    "json": _to_json,
    "packed": _to_packed,
}


def decode_body(raw: bytes, number: int, codec: str) -> Any:
    """Decode the body. Raises :class:`~shmq.ShmqError` if the codec cannot decode it."""
    try:
        if number == _TEXT:
            return raw.decode()
        if number == _JSON:
            return decode_json(raw)
        if number == _PACKED:
            return _core.unpack_records(raw)
        if _MSGPACK <= number < _PACKED:
            return msgpack.unpackb(raw, strict_map_key=False)
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise ShmqError(
            f"the body is not {codec}: {error}; its {len(raw)} bytes are in `view`"
        ) from error
    return raw


def pack_properties(properties: Mapping[str, Any]) -> bytes:
    """The properties as one msgpack map."""
    return _to_msgpack(properties)


def unpack_properties(meta: bytes | None) -> dict[str, Any]:
    """The properties of a message; empty if there are no bytes."""
    if not meta:
        return {}
    properties = msgpack.unpackb(meta, strict_map_key=False)
    return properties if isinstance(properties, dict) else {}


def put_arguments(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The properties as arguments of a put; unknown ones are ignored. Raises TypeError."""
    found = {}
    for key, argument in PUT_ARGUMENTS.items():
        value = properties.get(key)
        if value is None:
            continue
        if key in _TIMES and (not isinstance(value, int) or isinstance(value, bool)):
            raise TypeError(f"{key!r} must be an int")
        found[argument] = value / 1000 if key in _TIMES else value
    return found


def _check_text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name}={value!r} must be a str, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidOption(f"{name}={value!a} cannot be encoded as UTF-8") from None
    return value
