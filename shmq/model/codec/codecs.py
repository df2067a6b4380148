"""Encodes and decodes bodies, and maps of properties.

A body is any buffer, a str, or a value that msgpack can hold; its codec says which. An aware
datetime is a timestamp of msgpack; of other values the ``default`` of ``connect`` makes what the
codec can hold. Properties are one msgpack map with the keys of the wire protocol, so that a message
put locally and one put over the network look the same to the consumer. Nothing is ever unpickled.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

import msgpack

from shmq.api.properties import PROPERTIES
from shmq.errors import AS_BYTES, InvalidOption, ShmqError, not_utf8, to_utf8
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

_unpackb: Final = msgpack.unpackb  # the lookup counts
_BYTES, _TEXT, _MSGPACK, _JSON = map(CODECS.index, ("bytes", "text", "msgpack", "json"))
_PACKED = _core.CODEC_PACKED
_INT64 = range(-(1 << 63), 1 << 64)
#: How deep a value is searched for what cannot be encoded.
_DEEPEST: Final = 100


#: Makes a value that a codec can hold of one that it cannot: the ``default`` of ``connect``.
Default = Callable[[Any], Any]

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
#: What msgpack holds as it is.
_PLAIN: Final = (
    *(str, bytes, bytearray, memoryview, int, float, type(None), list, tuple, dict),
    *(msgpack.Timestamp, msgpack.ExtType),
)
#: How often in a row ``default`` may return a value that it must convert again.
_MOST_STEPS: Final = 100
_HINTS: Final[Mapping[type, str]] = {
    dt.datetime: "without a time zone it is not a moment: give it one, or ",
    int: "it has more than 64 bits: put it as a str, or ",
}
#: Of a program: on the command line a value is JSON, which msgpack holds but for long integers.
ADVICE: Final = (
    "pass default= to connect, such as shmq.encode_common for the common types, or use a typed "
    "queue (broker.typed)"
)


def encode_body(body: Any, codec: str | None, default: Default | None = None) -> tuple[Any, int]:
    """The body as a buffer, and its codec's number. ``codec`` None: by the body's type."""
    if codec is None:
        return _encode_by_type(body, default)
    if codec not in CODECS:
        return _make_contiguous(body, _check_text("codec", codec)), OTHER
    encode: Callable[[Any], Any] | None = _ENCODERS.get(codec)
    if encode is None:
        encode = partial(_to_json if codec == "json" else _to_msgpack, default=default)
    return encode(body), CODECS.index(codec)


def _encode_by_type(body: Any, default: Default | None) -> tuple[Any, int]:
    if isinstance(body, bytes):
        return body, _BYTES
    if isinstance(body, str):
        return _to_text(body), _TEXT
    try:
        view = memoryview(body)
    except TypeError:
        return _to_msgpack(body, default), _MSGPACK
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
    return to_utf8("body", body, AS_BYTES)


def _to_json(body: Any, default: Default | None) -> bytes:
    try:
        return encode_json(body, partial(_convert, default, "JSON"))
    except _Unencodable as found:
        raise found.locate(body, "body") from found.__cause__
    except UnicodeEncodeError as error:
        raise _make_not_utf8(body, "body", error) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"JSON cannot hold this {type(body).__name__}: {error}") from None


def _to_msgpack(
    body: Any,
    default: Default | None = None,
    hook: Callable[[Any], Any] | None = None,
    what: str = "body",
) -> bytes:
    # Not with datetime=True: the parsing of that argument costs every body more.
    if hook is None:
        hook = _CONVERT if default is None else partial(_convert, default, "msgpack")
    try:
        packed: bytes = msgpack.packb(body, default=hook)
    except _Unencodable as found:
        raise found.locate(body, what) from found.__cause__
    except UnicodeEncodeError as error:
        raise _make_not_utf8(body, what, error) from None
    except (OverflowError, ValueError) as error:
        where = _find(body, lambda part: isinstance(part, int) and part not in _INT64, what)
        part = f"this {type(body).__name__}" if where is None else f"the int {where[1]}{where[0]}"
        raise TypeError(f"msgpack cannot hold {part}: {error}") from None
    return packed


def _refuse(value: Any) -> Any:
    raise _Unencodable("msgpack", value, "headers hold plain values: text, bytes, numbers, maps")


class _Unencodable(Exception):
    """A value that the codec cannot hold, on its way out of the encoder."""

    def __init__(self, codec: str, value: Any, reason: str) -> None:
        self._codec = codec
        self._value = value
        self._reason = reason

    def locate(self, body: Any, what: str) -> TypeError:
        """The error, with the place of the value in the body, which is called ``what``."""
        where = _find(body, lambda part: part is self._value, what)
        return TypeError(
            f"{self._codec} cannot hold {_show(self._value)} of type {type(self._value).__name__}"
            f"{'' if where is None else where[0]}: {self._reason}"
        )


def _show(value: Any) -> str:
    try:
        return f"{value!r:.80}"
    except Exception as error:  # noqa: BLE001 - it is the application's code
        return f"a value whose repr() raises {type(error).__name__},"


def _convert(default: Default | None, codec: str, value: Any) -> Any:
    """Return what the codec can hold for a value that it cannot. Raises _Unencodable."""
    found = value
    for step in range(_MOST_STEPS):
        if step and isinstance(found, _PLAIN):
            return found
        if codec == "msgpack" and isinstance(found, dt.datetime) and found.utcoffset() is not None:
            since = found - _EPOCH
            return msgpack.Timestamp(since.days * 86_400 + since.seconds, since.microseconds * 1000)
        if default is None:
            hint = _HINTS.get(type(value), "") if codec == "msgpack" else ""
            raise _Unencodable(codec, value, hint + ADVICE)
        try:
            made = default(found)
        except Exception as error:
            reason = f"default= failed with {type(error).__name__}: {error}"
            raise _Unencodable(codec, value, reason) from error
        if made is found:
            break
        found = made
    reason = f"default= returned {_show(found)} of type {type(found).__name__}, not a plain value"
    raise _Unencodable(codec, value, reason)


_CONVERT: Final = partial(_convert, None, "msgpack")


def _make_not_utf8(body: Any, what: str, error: UnicodeEncodeError) -> InvalidOption:
    """The error for a body with a text that cannot be encoded, with its place."""
    place, text = _find(body, _has_surrogate, what) or ("", error.object)
    return not_utf8(place.removeprefix(" at ") or what, text)


def _has_surrogate(part: object) -> bool:
    if isinstance(part, str) and not part.isascii():
        try:
            part.encode()
        except UnicodeEncodeError:
            return True
    return False


def _find(
    value: Any, is_wanted: Callable[[Any], bool], path: str, depth: int = 0
) -> tuple[str, Any] | None:
    """The first wanted part of a body, after its place as text: "" is that of the body itself."""
    if is_wanted(value):
        return (f" at {path}" if depth else ""), value
    parts: Iterable[tuple[str, Any]] = ()
    if isinstance(value, dict) and depth <= _DEEPEST:
        parts = [(f"[{_show(key)}]", part) for key, part in value.items()]
        parts += [(" (a key)", key) for key in value]
    elif isinstance(value, list | tuple) and depth <= _DEEPEST:
        parts = ((f"[{at}]", part) for at, part in enumerate(value))
    found = (_find(part, is_wanted, path + step, depth + 1) for step, part in parts)
    return next((one for one in found if one is not None), None)


#: The encoders of the codecs that need no ``default``; the others are JSON and msgpack.
_ENCODERS: Mapping[str, Callable[[Any], Any]] = {
    "bytes": _to_bytes,
    "text": _to_text,
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
            if 0xFF in raw:  # the type of a timestamp, which no UTF-8 has
                return unpack(raw)
            return _unpackb(raw, strict_map_key=False)
    except (ValueError, msgpack.UnpackException, RecursionError) as error:
        raise ShmqError(
            f"the body is not {codec}: {error}; its {len(raw)} bytes are in `view`"
        ) from error
    return raw


def unpack(raw: bytes) -> Any:
    """The value of msgpack; a timestamp is an aware datetime, in UTC and cut to microseconds.

    One that is out of the range of a datetime, the years 1 to 9999, is a ``msgpack.Timestamp``.
    """
    try:
        return msgpack.unpackb(raw, strict_map_key=False, timestamp=3)
    except OverflowError:
        found = msgpack.unpackb(
            raw,
            strict_map_key=False,
            object_pairs_hook=lambda pairs: {_to_datetime(k): _to_datetime(v) for k, v in pairs},
            list_hook=lambda parts: [_to_datetime(part) for part in parts],
        )
        return _to_datetime(found)


def _to_datetime(value: Any) -> Any:
    if type(value) is not msgpack.Timestamp:
        return value
    try:
        return value.to_datetime()
    except OverflowError:
        return value


def pack_properties(properties: Mapping[str, Any]) -> bytes:
    """The properties, or headers, as one msgpack map of plain values. Raises TypeError."""
    return _to_msgpack(properties, hook=_refuse, what="headers")


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
    to_utf8(name, value)
    return value
