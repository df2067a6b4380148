"""CloudEvents as bodies of requests: binary, structured and batched mode of the HTTP binding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote

from shmq.errors import ShmqError
from shmq.extras.cloudevents.event import CloudEvent
from shmq.extras.cloudevents.message import (
    BATCH,
    STRUCTURED,
    EncodedEvent,
    Mode,
    decode_event,
    encode_event,
)
from shmq.extras.console.api.operation import EVENT_PREFIX, Call, Parameter
from shmq.extras.console.problem import Problem
from shmq.model.codec.strict_json import decode_json

#: The parameter that says so of a request in binary mode.
SPECVERSION: Final = Parameter(
    f"{EVENT_PREFIX}specversion",
    "string",
    "the body is the data of a CloudEvent, and each header ce-NAME an attribute of it",
    place="header",
)


def _encoded_events(call: Call) -> list[tuple[CloudEvent, EncodedEvent]] | None:
    """The events of the request, each in the mode in which it came; None: it has no event.

    Raises Problem for an event that is not as the specification says.
    """
    media, content = call.body
    try:
        if media == BATCH:
            return [_encode_structured(one) for one in _read_batch(content)]
        if media == STRUCTURED:
            return [_encode({"content-type": media}, content, "structured")]
        headers = _event_headers(call.headers)
        return [_encode(headers, content, "binary")] if headers else None
    except (ShmqError, TypeError, UnicodeDecodeError) as error:
        raise Problem.invalid(str(error)) from None


def events_of(
    call: Call, name: str, read: Callable[[CloudEvent], Any]
) -> list[tuple[Any, dict[str, Any]]] | None:
    """The body and the properties of each event, of which ``read`` gives the one of that name.

    None if the request has no event. Raises Problem.
    """
    found = _encoded_events(call)
    if found is None:
        return None
    return [
        (encoded.body, {"codec": encoded.codec, "headers": encoded.headers, name: read(event)})
        for event, encoded in found
    ]


def _read_batch(content: bytes) -> list[Any]:
    try:
        found = decode_json(content)
    except ValueError as error:
        raise Problem.invalid(f"the body is not JSON: {error}") from None
    if not isinstance(found, list):
        raise Problem.invalid(f"the body is not an array of events, as {BATCH} says")
    return found


def _encode_structured(members: Any) -> tuple[CloudEvent, EncodedEvent]:
    return _encode({"content-type": STRUCTURED}, members, "structured")


def _encode(headers: Mapping[str, str], body: Any, mode: Mode) -> tuple[CloudEvent, EncodedEvent]:
    event = decode_event(headers, body, "the request")
    return event, encode_event(event, mode)


def _event_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The attributes and the media type of the data; empty without an attribute."""
    found = {
        name: unquote(value, errors="strict")
        for name, value in headers.items()
        if name.startswith(EVENT_PREFIX)
    }
    if found and "content-type" in headers:
        found["content-type"] = headers["content-type"]
    return found
