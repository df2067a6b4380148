"""A partition of a stream as a stream of JetStream: records as messages, offsets as sequences."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import secrets
import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import nats.errors
from nats.aio.msg import Msg

from shmq.api.options import check_one_of
from shmq.api.stream_options import StreamOptions
from shmq.errors import ConnectionLost, MessageTooLarge, OffsetOutOfRange
from shmq.extras.nats.client import names
from shmq.extras.nats.client.connection import ApiError, ClusterConnection
from shmq.extras.nats.client.jetstream import (
    MOST_TOGETHER,
    NO_STREAM,
    create_stream,
    nanoseconds,
    publish_together,
)
from shmq.extras.nats.client.message import packed, unpacked
from shmq.model.codec import codecs
from shmq.model.codec.codecs import pack_properties
from shmq.native import _clock as time
from shmq.native import _stream

#: The head of an entry of a block of records: shmq/core/stream/entry.h.
_HEAD: Final = struct.Struct("<IIBBBBIQqIIII")
_ENTRY, _KEYED = 10, 2
_WINDOW: Final = 120.0
_NS: Final = 10**9
_PAUSE: Final = 0.05
#: How long a replica that answers a read may be behind, in seconds.
_BEHIND: Final = 5.0
_ROOM: Final = 512


class StreamGone(Exception):
    """The stream of JetStream is not there."""


class Row(NamedTuple):
    """A record as it is appended."""

    value: bytes
    key: bytes | None
    headers: dict[str, Any]
    codec: str
    timestamp_ns: int

    def wire(self) -> dict[str, str]:
        """The headers of its message."""
        properties: dict[str, Any] = {"ts": self.timestamp_ns}
        if self.codec != "bytes":
            properties["codec"] = self.codec
        if self.key is not None:
            properties["key"] = self.key
        if self.headers:
            properties["headers"] = self.headers
        return packed(properties)


class Bounds(NamedTuple):
    """What a partition has."""

    earliest: int
    latest: int
    earliest_at: float | None
    latest_at: float | None
    bytes: int


class Partition:
    """One partition. Its methods run in the process's loop."""

    def __init__(
        self, connection: ClusterConnection, name: str, number: int, options: StreamOptions
    ) -> None:
        self.connection = connection
        self.number = number
        self._name = name
        self._options = options
        self.stream = names.partition_stream(connection.namespace, name, number)
        self.subject = names.partition_subject(connection.namespace, name, number)

    async def make(self) -> None:
        """Make the stream of JetStream, unless it is there."""
        o = self._options
        kept = o.retention_bytes
        if kept is None:
            kept = o.ring_bytes if o.durability == "memory" else -1
        await create_stream(
            self.connection,
            {
                "name": self.stream,
                "subjects": [self.subject],
                "retention": "limits",
                "storage": "file",
                "num_replicas": self.connection.replicas,
                "discard": "old",
                "max_bytes": kept,
                "max_age": int((o.retention_seconds or 0) * _NS),
                "duplicate_window": int(
                    min(_WINDOW, max(0.1, o.retention_seconds or _WINDOW)) * _NS
                ),
                "allow_direct": True,
                "allow_atomic": True,
            },
        )

    # ---- appending ----

    def check_size(self, rows: Sequence[Row]) -> None:
        """Raise MessageTooLarge for a record that can never be appended."""
        for row in rows:
            size = len(row.value) + len(row.key or b"")
            size += len(pack_properties(row.headers)) if row.headers else 0
            most = self._options.max_record_bytes
            if size > most or size + len(str(row.wire())) + _ROOM > self.connection.max_payload:
                raise MessageTooLarge(
                    f"a record of {size} bytes can never fit into stream {self._name!r}: "
                    f"max_record_bytes={most}, and a message of the cluster takes "
                    f"{self.connection.max_payload} (max_payload)"
                )

    async def append(
        self, rows: Sequence[Row], ids: Sequence[str] | None = None
    ) -> tuple[int, bool]:
        """Append the records together; returns the first's offset, and whether they were known."""
        self.check_size(rows)
        known = ids or [secrets.token_hex(12) for _ in rows]
        first, duplicates = None, 0
        for start in range(0, len(rows), MOST_TOGETHER):
            end = start + MOST_TOGETHER
            some, some_ids = rows[start:end], known[start:end]
            at = await self._append_together(some, some_ids) if len(some) > 1 else None
            if at is None:
                for row, identity in zip(some, some_ids, strict=True):
                    answer = await self.publish(row, identity)
                    duplicates += bool(answer.get("duplicate"))
                    at = int(answer["seq"]) - 1 if at is None else at
            first = at if first is None else first
        return first or 0, bool(rows) and ids is not None and duplicates == len(rows)

    async def publish(
        self,
        row: Row,
        message_id: str,
        *,
        expected_last: int | None = None,
        headers: dict[str, str] | None = None,
        within: float | None = None,
    ) -> dict[str, Any]:
        """Publish one record, until it is acknowledged: PubAck. Raises ApiError, StreamGone.

        ``expected_last`` is the sequence of JetStream that the newest record must have.
        """
        wire = row.wire() | {"Nats-Msg-Id": message_id, "Nats-Expected-Stream": self.stream}
        if expected_last is not None:
            wire["Nats-Expected-Last-Sequence"] = str(expected_last)
        return await self.connection.publish(
            self.subject,
            row.value,
            wire | (headers or {}),
            within=within,
            what=f"stream {self._name!r}",
            check_there=self.bounds,  # raises StreamGone
        )

    async def _append_together(self, rows: Sequence[Row], ids: Sequence[str]) -> int | None:
        """Append them in one step: the first's offset; None if some of them are known."""
        done = await publish_together(
            self.connection,
            [
                (self.subject, row.value, row.wire() | {"Nats-Msg-Id": identity})
                for row, identity in zip(rows, ids, strict=True)
            ],
            time.monotonic() + self.connection.target.request_timeout,
            what=f"stream {self._name!r}",
            pause=_PAUSE,
            check_there=self.bounds,
            lost=f"stream {self._name!r}: {len(rows)} records for partition {self.number} were "
            f"not confirmed in time: they are there together, or not at all",
        )
        return None if done.answer is None else int(done.answer["seq"]) - len(rows)

    # ---- looking ----

    async def bounds(self) -> Bounds:
        """Its offsets, as its leader has them. Raises StreamGone."""
        try:
            state = (await self.connection.api(f"STREAM.INFO.{self.stream}"))["state"]
        except ApiError as error:
            if error.number == NO_STREAM:
                raise StreamGone from error
            raise
        held, first, last = int(state["messages"]), int(state["first_seq"]), int(state["last_seq"])
        return Bounds(
            first - 1 if held else last,
            last,
            nanoseconds(state["first_ts"]) / _NS if held else None,
            nanoseconds(state["last_ts"]) / _NS if held else None,
            int(state["bytes"]),
        )

    async def last(self) -> tuple[int, dict[str, str] | None]:
        """The sequence of JetStream and the headers of the newest message; 0 and None: empty."""
        found = await self._get({"last_by_subj": self.subject})
        if not found or "Nats-Sequence" not in (found[0].headers or {}):
            return 0, None
        headers = dict(found[0].headers or {})
        return int(headers["Nats-Sequence"]), headers

    async def at(self, timestamp_ns: int) -> int:
        """The offset of the first record that was stored then or later."""
        seconds, rest = divmod(timestamp_ns, _NS)
        bounds = await self.bounds()
        if bounds.latest_at is None or timestamp_ns > bounds.latest_at * _NS:
            return bounds.latest
        if seconds < 1:
            return bounds.earliest
        stamp = dt.datetime.fromtimestamp(seconds, dt.UTC)
        text = f"{stamp:%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
        found = await self._get({"start_time": text, "batch": 1, "next_by_subj": self.subject})
        for one in found:
            if "Nats-Sequence" in (one.headers or {}):
                return int((one.headers or {})["Nats-Sequence"]) - 1
        return bounds.latest

    async def read(self, offset: int, limit: int, max_bytes: int) -> _stream.Records:
        """The records from there on that are there.

        Raises OffsetOutOfRange, StreamGone.
        """
        patience = time.monotonic() + _BEHIND
        while True:
            asked = {"seq": offset + 1, "batch": min(limit, 10_000), "max_bytes": max_bytes}
            found = await self._get(asked | {"next_by_subj": self.subject})
            entries, next_offset = self._make_entries(found, offset)
            if entries is None or not entries:
                bounds = await self.bounds()
                if not bounds.earliest <= offset <= bounds.latest:
                    raise OffsetOutOfRange.of(
                        self._name, self.number, offset, bounds.earliest, bounds.latest
                    )
                if offset < bounds.latest and time.monotonic() < patience:
                    await asyncio.sleep(_PAUSE / 10)  # the replica that answered is behind
                    continue
                entries = b""
            return _stream.records_of(entries, self.number, offset, limit, next_offset=next_offset)

    def _make_entries(self, found: list[Msg], offset: int) -> tuple[bytes | None, int]:
        """The messages as a block of records; None if those at the beginning are gone."""
        parts: list[bytes] = []
        for message in found:
            headers = message.headers or {}
            if "Nats-Sequence" not in headers:
                continue
            at = int(headers["Nats-Sequence"]) - 1
            if not parts and at != offset:
                return None, offset
            parts.append(_make_entry(at, message))
        if not parts:
            return b"", offset
        last = next(m for m in reversed(found) if "Nats-Sequence" in (m.headers or {}))
        return b"".join(parts), int((last.headers or {})["Nats-Sequence"])

    async def _get(self, asked: dict[str, Any]) -> list[Msg]:
        """The answer of a direct get, of one message or many."""
        subject = f"$JS.API.DIRECT.GET.{self.stream}"
        if "batch" not in asked:
            return [await self.connection.request(subject, json.dumps(asked).encode())]
        until = time.monotonic() + self.connection.target.request_timeout
        while True:
            client = await self.connection.client()
            inbox = client.new_inbox()
            subscription = await client.subscribe(inbox)
            found: list[Msg] = []
            try:
                await client.publish(subject, json.dumps(asked).encode(), reply=inbox)
                while True:
                    message = await subscription.next_msg(timeout=2.0)
                    status = (message.headers or {}).get("Status")
                    if status == "503":
                        await self.bounds()
                        break
                    if status is not None:
                        return found
                    found.append(message)
                    if (message.headers or {}).get("Nats-Num-Pending") is None:
                        return found
            except (nats.errors.Error, OSError):
                if found:
                    return found
            finally:
                with contextlib.suppress(nats.errors.Error, OSError):
                    await subscription.unsubscribe()
            if time.monotonic() > until:
                raise ConnectionLost(
                    f"stream {self._name!r}: partition {self.number} gave no answer in time"
                )
            await asyncio.sleep(_PAUSE)


def row_of(record: Any, timestamp_ns: int = 0) -> Row:
    """The row of a record; one without a time gets this one."""
    return Row(
        bytes(record.value),
        record.key,
        dict(record.headers),
        record.codec,
        record.timestamp_ns or timestamp_ns,
    )


def rows_of(block: Any, timestamp_ns: int) -> list[Row]:
    """The records of a block of entries; those without a time get this one."""
    return [row_of(record, timestamp_ns) for record in _stream.records_of(block, 0, 0)]


def compressed_block(packed: bytes, compression: str, count: int, raw_bytes: int) -> bytes:
    """Records that are compressed together as a block: one entry."""
    check_one_of("compression", compression, ("lz4", "zstd"))
    size = _HEAD.size + (len(packed) + 7) // 8 * 8
    kind = 1 if compression == "lz4" else 2
    words = (size - 8) // 8
    head = _HEAD.pack(words, 0, _ENTRY, 0, 0, kind, count, 0, 0, 0, 0, len(packed), raw_bytes)
    return (head + packed).ljust(size, b"\0")


def _make_entry(offset: int, message: Msg) -> bytes:
    """A message as an entry of a block."""
    properties = unpacked(message.headers)
    key, given = properties.get("key"), properties.get("headers")
    codec, stamp = properties.get("codec", "bytes"), properties.get("ts")
    number = codecs.CODECS.index(codec) if codec in codecs.CODECS else 0
    headers = pack_properties(given) if given else b""
    if not isinstance(stamp, int) or not -(1 << 63) <= stamp < 1 << 63:
        stamp = nanoseconds((message.headers or {}).get("Nats-Time-Stamp", ""))
    size = _HEAD.size + (len(message.data) + len(key or b"") + len(headers) + 7) // 8 * 8
    head = _HEAD.pack(
        (size - 8) // 8,
        0,
        _ENTRY,
        0 if key is None else _KEYED,
        number,
        0,
        1,
        offset,
        stamp,
        len(key or b""),
        len(headers),
        len(message.data),
        0,
    )
    return b"".join((head, message.data, key or b"", headers)).ljust(size, b"\0")
