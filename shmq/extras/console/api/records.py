"""Records of a stream: appended, read from an offset on, and the bytes of one."""

from __future__ import annotations

import base64
import binascii
import time
from typing import Any, Final, Literal

import msgspec

import shmq
from shmq.api.options import check_confirm
from shmq.extras.cloudevents.message import key_of
from shmq.extras.console.api.cloud_events import SPECVERSION, events_of
from shmq.extras.console.api.messages import (
    CUT,
    MEDIA,
    UNREADABLE,
    Encoding,
    NewMessage,
    body_of,
    properties_of,
    put_each,
    shown_headers,
    values_of,
)
from shmq.extras.console.api.operation import (
    LONGEST,
    SLICE,
    Answer,
    Call,
    Parameter,
    Wait,
    download,
    operation,
    view_as,
)
from shmq.extras.console.problem import Problem
from shmq.protocol.opcodes import Right

_MOST_READ: Final = 1000
_MOST_APPENDED: Final = 10_000
_MOST_OFFSET: Final = (1 << 63) - 1
_NAME: Final = Parameter("name", "string", "the stream's name", most=255)
_PARTITION: Final = Parameter("partition", "integer", "the partition", None, 0, 1 << 31)


class NewRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A record to be appended."""

    body: Any
    #: How ``body`` is to be understood: a JSON value, a text, or bytes as Base64.
    encoding: Encoding = "json"
    #: How it is stored; null: as the encoding says.
    codec: str | None = None
    #: The key, which chooses the partition.
    key: str | None = None
    #: Whether ``key`` is a text, or bytes as Base64.
    key_encoding: Literal["text", "base64"] = "text"
    headers: dict[str, Any] | None = None
    #: In seconds since 1970; null: now.
    timestamp: float | None = None
    #: The partition; null: by the key, or in turn.
    partition: int | None = None
    confirm: Literal["memory", "disk"] | None = None


class AppendedAt(msgspec.Struct, frozen=True, kw_only=True):
    """Where a record is."""

    partition: int
    offset: int
    timestamp: float


class AppendAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Where each record is, in order."""

    items: list[AppendedAt]


class RecordView(msgspec.Struct, frozen=True, kw_only=True):
    """One record."""

    partition: int
    offset: int
    timestamp: float
    key: str | None
    key_encoding: Literal["text", "base64"]
    #: The value: a JSON value, a text, or Base64, as ``encoding`` says.
    body: Any
    encoding: Encoding
    #: Bytes of the whole value.
    size: int
    #: Whether the value is cut here; ``…/records/OFFSET/value`` has all of it.
    cut: bool
    codec: str
    headers: dict[str, Any]


class RecordsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Records of one partition, in order."""

    items: list[RecordView]
    #: The offset to read next.
    next_offset: int


def view_of(record: shmq.Record) -> RecordView:
    """The record as JSON shows it."""
    raw = bytes(record.value)
    try:
        value: Any = record.body if len(raw) <= CUT else None
    except shmq.ShmqError:
        value = UNREADABLE
    body, encoding, cut = body_of(value, record.codec, raw)
    key, key_encoding = _show_key(record.key)
    try:
        headers = shown_headers(record.headers)
    except shmq.ShmqError:  # they are damaged
        headers = {}
    return RecordView(
        partition=record.partition,
        offset=record.offset,
        timestamp=record.timestamp,
        key=key,
        key_encoding=key_encoding,
        body=body,
        encoding=encoding,
        size=len(raw),
        cut=cut,
        codec=record.codec,
        headers=headers,
    )


def _show_key(key: bytes | None) -> tuple[str | None, Literal["text", "base64"]]:
    try:
        return None if key is None else bytes(key).decode(), "text"
    except UnicodeDecodeError:
        return base64.b64encode(bytes(key or b"")).decode(), "base64"


@operation(
    "GET",
    "/streams/{name}/partitions/{partition}/records",
    _NAME,
    _PARTITION,
    Parameter("offset", "integer", "the first; the oldest if left out", None, 0, _MOST_OFFSET),
    Parameter("limit", "integer", "at most so many", 100, 1, _MOST_READ),
    Parameter("where", "string", "which records: key like 'EU-%'", None, most=4096),
    Parameter("wait", "number", "how long to wait for the first, in seconds", 0.0, 0, LONGEST),
    answer=RecordsAnswer,
    tag="records",
    refusals=(410, 416),
    waits=True,
)
def read_records(call: Call) -> RecordsAnswer:
    """Read records from an offset on; with ``wait`` the first is waited for."""
    call.need(Right.CONSUME, "stream", call["name"])
    with call.console.broker.stream(call["name"]) as stream:
        offset = call["offset"]
        if offset is None:
            offset = stream.earliest(call["partition"])
        found = _read(call, stream, offset)
        return RecordsAnswer(
            items=[view_of(record) for record in found], next_offset=found.next_offset
        )


def _read(call: Call, stream: shmq.Stream, offset: int) -> shmq.Records:
    """The records from there on, after at most the wait that was asked for."""
    until = time.monotonic() + call["wait"]
    while True:
        left = min(until - time.monotonic(), SLICE)
        found = stream.read(
            call["partition"],
            offset,
            call["limit"],
            block=left > 0,
            timeout=max(left, 0.0),
            where=call["where"],
        )
        over = time.monotonic() >= until or call.console.ending.is_set()
        if len(found) or over:
            return found
        offset = found.next_offset  # past those that the expression leaves out


@operation(
    "GET",
    "/streams/{name}/partitions/{partition}/records/{offset}/value",
    _NAME,
    _PARTITION,
    Parameter("offset", "integer", "the record's offset", None, 0, _MOST_OFFSET),
    answer=bytes,
    tag="records",
    refusals=(410, 416),
)
def record_value(call: Call) -> Answer:
    """Give the bytes of one record's value."""
    call.need(Right.CONSUME, "stream", call["name"])
    with call.console.broker.stream(call["name"]) as stream:
        found = stream.read(call["partition"], call["offset"], 1)
        if not len(found) or found[0].offset != call["offset"]:
            raise Problem(
                404,
                "not-found",
                f"partition {call['partition']} of stream {call['name']!r} has no record "
                f"{call['offset']} yet",
            )
        return download(bytes(found[0].value), call["offset"])


@operation(
    "POST",
    "/streams/{name}/records",
    _NAME,
    Parameter("timeout", "number", "how long to wait for room, in seconds", 0.0, 0, LONGEST),
    SPECVERSION,
    body=bytes,
    schema=NewRecord,
    media=MEDIA,
    events=True,
    answer=AppendAnswer,
    status=201,
    tag="records",
    waits=True,
)
def append_records(call: Call) -> AppendAnswer:
    """Append one record, with NDJSON one for each line, or CloudEvents.

    A refusal of a later record tells, as ``taken``, how many were appended before it.
    """
    call.need(Right.PRODUCE, "stream", call["name"])
    ready = events_of(call, "key", key_of)
    if ready is None:
        ready = [_make_arguments(one) for one in values_of(call.body, NewRecord)]
    if not 1 <= len(ready) <= _MOST_APPENDED:
        raise Problem.invalid(f"{len(ready)} records: append 1 to {_MOST_APPENDED} at a time")
    with call.console.broker.stream(call["name"]) as stream:
        for _, how in ready:  # before anything is appended
            check_confirm(how.get("confirm") or "memory", stream.options.durability)
        wait = Wait(call, call["timeout"])
        done = put_each(wait, stream.append, ready, stream.options.confirm, _items)
    return AppendAnswer(**_items(done))


def _make_arguments(given: NewRecord) -> tuple[Any, dict[str, Any]]:
    """The value and the other arguments of an append. Raises Problem for a wrong encoding."""
    body, properties = properties_of(
        NewMessage(body=given.body, encoding=given.encoding, codec=given.codec)
    )
    key: bytes | str | None = given.key
    if key is not None and given.key_encoding == "base64":
        try:
            key = base64.b64decode(key, validate=True)
        except (binascii.Error, ValueError) as error:
            raise Problem.invalid(f"key: it is not Base64: {error}") from None
    more = {name: getattr(given, name) for name in ("headers", "timestamp", "partition", "confirm")}
    return body, {"key": key, "codec": properties["codec"], **more}


def _items(done: list[Any]) -> dict[str, Any]:
    return {"items": [view_as(AppendedAt, one) for one in done]}
