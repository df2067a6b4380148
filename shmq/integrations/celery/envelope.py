"""A message of kombu as a message of shmq: its body, its headers, and what the broker has to know.

The body is stored as it is, text or bytes, and the headers are headers of shmq, so that the
console, filters and headers exchanges see them. The rest of the message is the header `REST`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from kombu.utils import json

import shmq

__all__ = ["REST", "Raw", "pack", "properties_of", "unpack"]

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


def pack(raw: Raw, *, as_json: bool = False) -> dict[str, Any]:
    """The headers for a message; ``as_json``: for headers that msgpack cannot hold."""
    given = raw["properties"]
    properties = {key: given[key] for key in _PROPERTIES if given.get(key) is not None}
    rest = {"type": raw.get("content-type"), "encoding": raw.get("content-encoding")}
    headers = raw.get("headers") or {}
    if as_json:
        return {REST: {**rest, "json": json.dumps([headers, properties])}}
    return {**headers, REST: {**rest, "properties": properties}}


def properties_of(raw: Raw, *, native_eta: bool) -> dict[str, Any]:
    """The properties of the put but for headers and priority: its ttl, and when it is delivered."""
    found: dict[str, Any] = {}
    expiration = raw["properties"].get("expiration")
    if expiration is not None:
        found["ttl"] = min(max(int(expiration) / 1000, _LEAST_TTL), _LONGEST)
    at = _eta_of(raw.get("headers")) if native_eta else None
    if at is not None and at > (now := time.time()):
        found["deliver_at"] = min(at, now + _LONGEST)
    return found


def _eta_of(headers: Any) -> float | None:
    """When a task of Celery is to run; None: at once, or its producer wrote no valid time."""
    eta = headers.get("eta") if isinstance(headers, Mapping) else None
    if not isinstance(eta, str):
        return None
    try:
        at = datetime.fromisoformat(eta)
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
        if isinstance(rest.get("json"), str):
            headers, properties = json.loads(rest["json"])
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
