"""Events as messages and records.

In binary mode the attributes are headers with the prefix ``ce-``, and the body is the data. In
structured mode the body is the whole event as JSON. The header ``content-type`` tells which.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

from shmq.errors import InvalidOption, ShmqError
from shmq.extras.cloudevents.event import CloudEvent, check_name, is_json, text_of
from shmq.model.codec.strict_json import decode_json

if TYPE_CHECKING:
    from shmq.api import Appended, Message, Put, Queue, Record, Stream

Mode = Literal["binary", "structured"]

#: The media type of an event in structured mode.
STRUCTURED: Final = "application/cloudevents+json"
#: That of many events, an array.
BATCH: Final = "application/cloudevents-batch+json"
_PREFIX: Final = "ce-"
_TYPE: Final = "content-type"


@dataclasses.dataclass(frozen=True, slots=True)
class EncodedEvent:
    """An event as what a put takes: a body, its codec, and headers."""

    #: The body.
    body: Any
    #: Its codec.
    codec: str
    #: The headers.
    headers: dict[str, str]


def encode_event(event: object, mode: Mode = "binary") -> EncodedEvent:
    """The event as a body, its codec and headers, for a put of another kind.

    ``event`` is a :class:`CloudEvent`, one of the SDK ``cloudevents``, or a map of its attributes
    with ``data`` or ``data_base64``. Data that is bytes is stored as is; a str as a text, or as
    JSON if ``datacontenttype`` says so; other data as JSON. Raises :class:`~shmq.InvalidOption` and
    TypeError for an event that the specification does not allow.
    """
    made = CloudEvent.of(event)
    if mode == "structured":
        return EncodedEvent(made.to_dict(), "json", {_TYPE: STRUCTURED})
    if mode != "binary":
        raise InvalidOption(f"mode={mode!r} is neither 'binary' nor 'structured'")
    made.check_data()
    headers = {
        f"{_PREFIX}{name}": text_of(value)
        for name, value in made.attributes().items()
        if name != "datacontenttype"
    }
    if made.datacontenttype is not None:
        headers[_TYPE] = made.datacontenttype
    return EncodedEvent(*_encode_body(made), headers)


def _encode_body(event: CloudEvent) -> tuple[Any, str]:
    data = event.data
    if data is None:
        return b"", "bytes"
    if isinstance(data, bytes | bytearray | memoryview):
        return data, "bytes"
    media = event.datacontenttype
    if isinstance(data, str) and (media is None or not is_json(media)):
        return data, "text"
    return data, "json"


def put_event(queue: Queue, event: object, *, mode: Mode = "binary", **properties: Any) -> Put:
    """Put the event; ``properties`` are those of :meth:`Queue.put`.

    If the queue has a ``dedupe_window`` and no ``dedupe_id`` is passed, it is made of the event's
    source and id. Raises what :func:`encode_event` and ``Queue.put`` raise.
    """
    return queue.put(**_make_arguments(queue, event, mode, properties))


async def aput_event(
    queue: Queue, event: object, *, mode: Mode = "binary", **properties: Any
) -> Put:
    """:func:`put_event` for asyncio; ``properties`` are those of :meth:`Queue.aput`."""
    return await queue.aput(**_make_arguments(queue, event, mode, properties))


def _make_arguments(
    queue: Queue, event: object, mode: Mode, properties: dict[str, Any]
) -> dict[str, Any]:
    made = CloudEvent.of(event)
    encoded = encode_event(made, mode)
    headers = _merge(properties.pop("headers", None), encoded.headers)
    if properties.get("dedupe_id") is None and queue.options.dedupe_window > 0:
        properties["dedupe_id"] = dedupe_id_of(made)
    return {**properties, "body": encoded.body, "codec": encoded.codec, "headers": headers}


def dedupe_id_of(event: CloudEvent) -> str:
    """The id of a put of the event: no other event has it, since a source has no space."""
    return f"{event.source} {event.id}"


def append_event(
    stream: Stream, event: object, *, mode: Mode = "binary", **properties: Any
) -> Appended:
    """Append the event; ``properties`` are those of :meth:`Stream.append`.

    Without a ``key`` or a ``partition``, the event's extension ``partitionkey`` is the key. Raises
    what :func:`encode_event` and ``Stream.append`` raise.
    """
    made = CloudEvent.of(event)
    encoded = encode_event(made, mode)
    headers = _merge(properties.pop("headers", None), encoded.headers)
    if properties.get("key") is None and properties.get("partition") is None:
        properties["key"] = key_of(made)
    return stream.append(encoded.body, codec=encoded.codec, headers=headers, **properties)


def key_of(event: CloudEvent) -> str | None:
    """The key of the event's record: its extension ``partitionkey``."""
    key = event.extensions.get("partitionkey")
    return None if key is None else text_of(key)


def _merge(given: Mapping[str, Any] | None, own: dict[str, str]) -> dict[str, Any]:
    """The event's headers and others. Raises InvalidOption for another that could be of it."""
    for name in given or {}:
        if isinstance(name, str) and (name.lower().startswith(_PREFIX) or name.lower() == _TYPE):
            raise InvalidOption(f"header {name[:80]!r} is the event's: give it as an attribute")
    return {**(given or {}), **own}


def event_of(message: Message | Record) -> CloudEvent:
    """The event that a message or a record holds, in whichever mode.

    The data is a JSON value, a str or bytes, as ``datacontenttype`` says. In binary mode each
    extension is a str. Raises :class:`~shmq.ShmqError` for a message that is not an event, and for
    data that is not of its type.
    """
    return decode_event(message.headers, message.body, _place(message))


def _place(message: Message | Record) -> str:
    sequence = getattr(message, "sequence", None)
    if sequence is not None:
        return f"message {sequence}"
    return f"record {getattr(message, 'offset', '')}"


def decode_event(headers: Mapping[str, Any], body: Any, place: str) -> CloudEvent:
    """The event of headers and a body, either decoded or bytes; ``place`` is for a refusal."""
    lower = {str(name).lower(): value for name, value in headers.items()}
    media = str(lower.get(_TYPE, ""))
    if media.partition(";")[0].strip().lower() == STRUCTURED:
        return _read_structured(body, place)
    attributes = {
        check_name(name.removeprefix(_PREFIX)): value
        for name, value in lower.items()
        if name.startswith(_PREFIX)
    }
    if "specversion" not in attributes:
        raise ShmqError(
            f"{place} is not an event: it has neither the header ce-specversion nor the "
            f"content-type {STRUCTURED}"
        )
    if media:
        attributes["datacontenttype"] = media
    return CloudEvent.from_dict({**attributes, "data": _decode_data(body, media, place)})


def _read_structured(body: Any, place: str) -> CloudEvent:
    if isinstance(body, bytes | str):
        body = _parse_json(body, f"{place} is not an event in JSON")
    if not isinstance(body, Mapping):
        raise ShmqError(f"{place} is not an event: its body is a {type(body).__name__} and no map")
    if "specversion" not in body:
        raise ShmqError(f"{place} is not an event: it has no specversion")
    event = CloudEvent.from_dict(body)
    if not isinstance(event.data, bytes):
        return event
    data = _decode_data(event.data, event.datacontenttype or "", place)
    return CloudEvent.from_dict({**event.attributes(), "data": data})


def _decode_data(body: Any, media: str, place: str) -> Any:
    """The data as its media type says, if it is not decoded yet."""
    if not isinstance(body, bytes):
        return body
    if not body:
        return None
    if is_json(media):
        return _parse_json(body, f"the data of {place} is not {media}")
    if media.lower().startswith("text/"):
        try:
            return body.decode()
        except UnicodeDecodeError:
            return body
    return body


def _parse_json(text: bytes | str, what: str) -> Any:
    try:
        return decode_json(text)
    except ValueError as error:
        raise ShmqError(f"{what}: {error}") from None
