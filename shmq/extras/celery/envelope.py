"""A message of kombu as a message of shmq: its body, its headers, and what the broker has to know.

The body is stored as is, text or bytes, and the headers are headers of shmq, so that the
console, filters and headers exchanges see them. The rest of the message is the header `REST`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgpack
from kombu.exceptions import EncodeError
from kombu.utils import json

import shmq

#: The header that holds content type, content encoding and properties.
REST: Final = "kombu"

#: A message as kombu's virtual transports have it.
Raw = dict[str, Any]

#: The content types of bodies that were not put by kombu, by shmq's codecs.
_TYPES: Final = {
    "text": ("text/plain", "utf-8"),
    "json": ("application/json", "utf-8"),
    "msgpack": ("application/x-msgpack", "binary"),
}
_BYTES: Final = ("application/data", "binary")

#: The properties of a message of AMQP that are no headers; it has no others.
_PROPERTIES: Final = (
    *("app_id", "cluster_id", "correlation_id", "delivery_info", "delivery_mode", "expiration"),
    *("message_id", "priority", "reply_to", "timestamp", "type", "user_id"),
)

#: The limits of times: what shmq takes.
_LEAST_TTL: Final = 0.001
_LONGEST: Final = 1e9
#: How long a task that has expired waits for a worker, which stores the state REVOKED for its
#: caller, in seconds: as long as Celery stores results by default.
_GRACE: Final = 86_400.0
#: How long after its expiration a task is delivered that is not due yet, in seconds: the worker
#: that gets it compares microseconds.
_LATER: Final = 0.01


def pack(raw: Raw, *, checked: bool = False) -> dict[str, Any]:
    """The headers for a message; ``checked``: those that msgpack cannot hold are JSON in `REST`.

    So is a header of the name `REST`. Raises EncodeError for a header that JSON cannot hold either.
    """
    given = raw["properties"]
    headers = raw.get("headers") or {}
    rest: dict[str, Any] = {
        "type": raw.get("content-type"),
        "encoding": raw.get("content-encoding"),
        "properties": {key: given[key] for key in _PROPERTIES if given.get(key) is not None},
    }
    if checked or REST in headers:
        plain = {key: value for key, value in headers.items() if _is_plain(key, value)}
        rest["json"] = [_as_json(key, headers[key]) for key in headers if key not in plain]
        headers = plain
        if not _is_plain("properties", rest["properties"]):
            rest["properties"] = _as_json("properties", rest["properties"])
    return {**headers, REST: rest}


def _is_plain(key: Any, value: Any) -> bool:
    """Whether shmq holds the header unchanged."""
    try:
        msgpack.packb({key: value})
    except (TypeError, ValueError, OverflowError):
        return False
    return key != REST and isinstance(key, str)


def _as_json(key: Any, value: Any) -> str:
    try:
        text: str = json.dumps([key, value])  # NaN, too: only `unpack` reads it
    except (TypeError, ValueError) as error:
        raise EncodeError(
            f"the header {key!r} must be a value that JSON or msgpack can hold, "
            f"not {type(value).__name__}: {error}"
        ) from error
    return text


def properties_of(raw: Raw, *, native_eta: bool) -> dict[str, Any]:
    """The properties of the put but for headers and priority: its ttl, and when it is delivered.

    Raises EncodeError for a negative expiration.
    """
    found: dict[str, Any] = {}
    headers = raw.get("headers")
    expires = _read_time(headers, "expires")
    expiration = raw["properties"].get("expiration")
    if expiration is not None:
        if int(expiration) < 0:
            raise EncodeError(f"expiration must be 0 or more, not {int(expiration) / 1000}")
        grace = 0.0 if expires is None else _GRACE
        found["ttl"] = min(max(int(expiration) / 1000 + grace, _LEAST_TTL), _LONGEST)
    at = _read_time(headers, "eta") if native_eta else None
    if at is not None and expires is not None:
        at = min(at, expires + _LATER)
    if at is not None and at > (now := time.time()):
        found["deliver_at"] = min(at, now + _LONGEST)
    return found


def _read_time(headers: Any, name: str) -> float | None:
    """A time of a task of Celery; None: it has none, or its producer wrote no valid one."""
    text = headers.get(name) if isinstance(headers, Mapping) else None
    if not isinstance(text, str):
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def unpack(message: shmq.Message) -> Raw:
    """The message as kombu has it; what was not put by kombu gets a content type by its codec."""
    codec = message.codec
    body = message.body if codec in ("bytes", "text") else bytes(message.view)
    headers = dict(message.headers)
    rest = headers.pop(REST, None)
    kind: Any
    encoding: Any
    kind, encoding = _TYPES.get(codec, _BYTES)
    properties: Any = {}
    if isinstance(rest, Mapping):
        kind, encoding = rest.get("type"), rest.get("encoding")
        properties = rest.get("properties")
        if isinstance(properties, str):
            _, properties = json.loads(properties)
        headers.update(json.loads(text) for text in rest.get("json") or ())
    properties = dict(properties) if isinstance(properties, Mapping) else {}
    delivery_info = properties.get("delivery_info")
    properties["delivery_info"] = {
        **(delivery_info if isinstance(delivery_info, Mapping) else {}),
        "redelivered": message.delivery_count > 1,
    }
    return {
        "body": body,
        "content-type": kind,
        "content-encoding": encoding,
        "headers": headers,
        "properties": properties,
    }
