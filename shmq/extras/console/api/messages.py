"""Messages of a queue: looked at, one body, and put."""

from __future__ import annotations

import base64
import binascii
import contextlib
import datetime as dt
from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar, get_args

import msgspec

import shmq
from shmq.api.options import Confirm, Level
from shmq.api.properties import PROPERTIES, TEXTS, Property
from shmq.extras.cloudevents.message import BATCH, STRUCTURED, dedupe_id_of
from shmq.extras.console.api.cloud_events import SPECVERSION, events_of
from shmq.extras.console.api.operation import (
    LONGEST,
    Answer,
    Call,
    Parameter,
    Wait,
    download,
    operation,
    view_as,
)
from shmq.extras.console.api.routes import decode
from shmq.extras.console.problem import Problem, problem_of
from shmq.protocol.opcodes import Right
from shmq.units import seconds_of

#: Where a body is cut in a list, in bytes.
CUT: Final = 4096
MOST_PEEKED: Final = 1000
#: How many messages one call may put.
_MOST_PUT: Final = 10_000
_NAME: Final = Parameter("name", "string", "the queue's name", most=255)

#: What a body with new messages or records may be.
MEDIA: Final = ("application/json", "application/x-ndjson", STRUCTURED, BATCH)

Encoding = Literal["json", "text", "base64"]
_Value = TypeVar("_Value")


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The error of a failed delivery."""

    #: The exception's class; empty for a text.
    type: str
    text: str
    #: The last frames of the traceback.
    trace: str
    at: float


class Dead(msgspec.Struct, frozen=True, kw_only=True):
    """Why a message is a dead letter."""

    reason: str
    queue: str
    deliveries: int
    at: float
    error: Failure | None = None


class MessageView(msgspec.Struct, frozen=True, kw_only=True):
    """One message."""

    sequence: int
    #: The body: a JSON value, a text, or Base64, as ``encoding`` says.
    body: Any
    encoding: Encoding
    #: Bytes of the whole body.
    size: int
    #: Whether the body is cut here; ``…/messages/SEQUENCE/body`` has all of it.
    cut: bool
    codec: str
    headers: dict[str, Any]
    priority: int
    # fields of a view: made by tools/options.py
    group: str | None
    reply_to: str | None
    correlation: str | None
    # end
    deliveries: int
    dead: Dead | None = None
    #: The error that its last failed delivery was returned with.
    last_error: Failure | None = None
    #: What settles it, if it is leased.
    receipt: str | None = None


class Messages(msgspec.Struct, frozen=True, kw_only=True):
    """Messages, those to be delivered first at the beginning."""

    items: list[MessageView]


class NewMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message to be put, with the properties of `Queue.put`."""

    body: Any
    #: How ``body`` is to be understood: a JSON value, a text, or bytes as Base64.
    encoding: Encoding = "json"
    # fields of a message: made by tools/options.py
    priority: int | str | None = None
    group: str | None = None
    headers: dict[str, Any] | None = None
    delay: float | str | None = None
    deliver_at: float | str | None = None
    ttl: float | str | None = None
    dedupe_id: str | None = None
    codec: str | None = None
    reply_to: str | None = None
    correlation: str | None = None
    confirm: Confirm | None = None
    # end


class PutAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was put."""

    #: The sequence number of each message, in order.
    sequences: list[int]
    #: How many were known already, by their dedupe id.
    duplicates: int = 0


#: The value of a body that its codec cannot read: its bytes are shown.
UNREADABLE: Final = object()
#: How a value fails that JSON does not have: with a surrogate, None as a key, or too deep.
_NO_JSON: Final = (TypeError, ValueError, RecursionError, OverflowError)


def _as_json(value: Any) -> msgspec.Raw:
    """The value as JSON, which answers hold as is. Raises one of `_NO_JSON`."""
    return msgspec.Raw(msgspec.json.encode(value))


def body_of(
    value: Any, codec: str, raw: bytes, most: int | None = CUT
) -> tuple[Any, Encoding, bool]:
    """A body as JSON shows it, its encoding, and whether it was cut at ``most`` bytes."""
    cut = most is not None and len(raw) > most
    if not cut and value is not UNREADABLE and codec not in {"bytes", "text"}:
        with contextlib.suppress(*_NO_JSON):
            return _as_json(value), "json", False
    piece = raw[:most] if cut else raw
    try:
        return piece.decode(), "text", cut
    except UnicodeDecodeError as error:
        if codec == "text" and cut and error.start >= len(piece) - 3:  # cut within a character
            return piece[: error.start].decode(), "text", True
    return base64.b64encode(piece).decode(), "base64", cut


def view_of(message: shmq.Message, receipt: str | None = None) -> MessageView:
    """The message as JSON shows it; the body of one that is leased, by its receipt, is whole."""
    raw = bytes(message.view)
    most = CUT if receipt is None else None
    try:
        value: Any = message.body if most is None or len(raw) <= most else None
    except shmq.ShmqError:
        value = UNREADABLE
    body, encoding, cut = body_of(value, message.codec, raw, most)
    dead, failed = message.dead, message.last_error
    return MessageView(
        sequence=message.sequence,
        body=body,
        encoding=encoding,
        size=len(raw),
        cut=cut,
        codec=message.codec,
        headers=shown_headers(message.headers),
        priority=message.priority,
        **{name: getattr(message, name) for name in TEXTS},
        deliveries=message.delivery_count,
        dead=None if dead is None else view_as(Dead, dead),
        last_error=None if failed is None else view_as(Failure, failed),
        receipt=receipt,
    )


def shown_headers(headers: Any) -> dict[str, Any]:
    """Headers with values that JSON has; others as text."""
    found: dict[str, Any] = {}
    for key, value in headers.items():
        try:
            found[str(key)] = _as_json(value)
        except _NO_JSON:
            found[str(key)] = repr(value)
    return found


@operation(
    "GET",
    "/queues/{name}/messages",
    _NAME,
    Parameter("limit", "integer", "at most so many", 10, 1, MOST_PEEKED),
    Parameter("where", "string", "which messages", None, most=4096),
    answer=Messages,
    tag="messages",
)
def peek_messages(call: Call) -> Messages:
    """Show visible messages, those to be delivered first; nothing is leased."""
    call.need(Right.CONSUME, "queue", call["name"])
    with call.console.broker.queue(call["name"]) as queue:
        return Messages(
            items=[view_of(one) for one in queue.peek(call["limit"], where=call["where"])]
        )


@operation(
    "GET",
    "/queues/{name}/messages/{sequence}/body",
    _NAME,
    Parameter("sequence", "integer", "its sequence number", None, 1, (1 << 63) - 1),
    answer=bytes,
    tag="messages",
)
def message_body(call: Call) -> Answer:
    """Give the bytes of one visible message's body."""
    call.need(Right.CONSUME, "queue", call["name"])
    with call.console.broker.queue(call["name"]) as queue:
        found = queue.peek(1, where=f"sequence = {call['sequence']}")
        if not found:
            raise Problem(
                404,
                "not-found",
                f"queue {call['name']!r} has no visible message {call['sequence']}: it may be "
                f"leased, delayed or settled",
            )
        return download(bytes(found[0].view), call["sequence"])


def _parse_property(row: Property, value: Any) -> Any:
    """The value as `Queue.put` takes it: times and priorities may be strings."""
    found = value
    if row.unit and isinstance(value, str):
        found = seconds_of(value) if row.unit == "seconds" else _moment_of(value)
        if found is None:
            example = "a time such as 30, 500ms, 10min or 2h"
            if row.unit != "seconds":
                example = "an ISO 8601 time with its zone, such as 2026-01-31T12:00:00Z"
            raise Problem.invalid(f"{row.name}: {value!r:.80} is not {example}")
    elif row.name == "priority" and isinstance(value, str) and value not in get_args(Level):
        raise Problem.invalid(f"{row.name}: {value!r:.80} is not an integer, low, normal or high")
    return found


def _moment_of(text: str) -> dt.datetime | None:
    with contextlib.suppress(ValueError):
        found = dt.datetime.fromisoformat(text.strip())
        return found if found.tzinfo else None
    return None


def properties_of(given: NewMessage) -> tuple[Any, dict[str, Any]]:
    """The body and the properties of a put. Raises Problem for a body that is not as encoded."""
    properties = {
        name: _parse_property(row, value)
        for name, row in PROPERTIES.items()
        if (value := getattr(given, name)) is not None
    }
    body = given.body
    if given.encoding != "json" and not isinstance(body, str):
        raise Problem.invalid(f"body: with encoding {given.encoding!r} it is a string")
    if given.encoding == "base64":
        try:
            body = base64.b64decode(body, validate=True)
        except (binascii.Error, ValueError) as error:
            raise Problem.invalid(f"body: it is not Base64: {error}") from None
    default = {"json": "json", "text": "text", "base64": "bytes"}[given.encoding]
    properties.setdefault("codec", default)
    return body, properties


@operation(
    "POST",
    "/queues/{name}/messages",
    _NAME,
    Parameter("Idempotency-Key", "string", "the dedupe id of the message", None, 1, 255,
              place="header"),
    Parameter("timeout", "number", "how long to wait for room, in seconds", 0.0, 0, LONGEST),
    SPECVERSION,
    body=bytes,
    schema=NewMessage,
    media=MEDIA,
    events=True,
    answer=PutAnswer,
    status=201,
    tag="messages",
    waits=True,
)  # fmt: skip
def put_messages(call: Call) -> PutAnswer:
    """Put one message, with NDJSON one for each line, or CloudEvents.

    A refusal of a later message tells, as ``taken``, how many were put before it.
    """
    name = call["name"]
    call.need(Right.PRODUCE, "queue", name)
    events = events_of(call, "dedupe_id", dedupe_id_of)
    ready = events or []
    if events is None:
        ready = [properties_of(one) for one in values_of(call.body, NewMessage)]
    if not 1 <= len(ready) <= _MOST_PUT:
        raise Problem.invalid(f"{len(ready)} messages: put 1 to {_MOST_PUT} at a time")
    if call["Idempotency-Key"] is not None:
        if len(ready) != 1:
            raise Problem.invalid("Idempotency-Key is of one message: use dedupe_id")
        ready[0][1]["dedupe_id"] = call["Idempotency-Key"]
    with call.console.broker.put_target(name) as queue:
        if events and call["Idempotency-Key"] is None and not queue.options.dedupe_window:
            for _, properties in ready:
                del properties["dedupe_id"]  # the event's, which only a window remembers
        wait = Wait(call, call["timeout"])
        done = put_each(wait, queue.put, ready, queue.options.confirm, _sequences)
    return PutAnswer(**_sequences(done), duplicates=sum(one.duplicate for one in done))


def values_of(body: tuple[str, bytes], kind: type[_Value]) -> list[_Value]:
    """The value of a body of JSON, or those of the lines of NDJSON. Raises Problem."""
    media, content = body
    lines = [content] if media == "application/json" else content.split(b"\n")
    return [decode(line, kind) for line in lines if line.strip()]


def put_each(
    wait: Wait,
    put: Callable[..., _Value],
    ready: list[tuple[Any, dict[str, Any]]],
    confirm: Confirm,
    show_done: Callable[[list[_Value]], dict[str, Any]],
) -> list[_Value]:
    """Put bodies with their properties one by one; ``confirm`` is the default of the place.

    A refusal says, as ``taken`` and by what ``show_done`` returns, what was put before it.
    """
    done: list[_Value] = []
    for body, properties in ready:
        disk = (properties.get("confirm") or confirm) == "disk"
        try:
            done.append(wait.put(put, body, disk=disk, **properties))
        except (shmq.ShmqError, TypeError) as error:
            problem = problem_of(error)
            if problem is None:
                raise
            problem.more = {"taken": len(done), **show_done(done), **problem.more}
            raise problem from error
    return done


def _sequences(done: list[shmq.Put]) -> dict[str, Any]:
    return {"sequences": [one.sequence for one in done]}
