"""Requests about streams, except groups: create, append, read."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

from shmq.api.options import without_sharing
from shmq.api.stream_options import StreamOptions
from shmq.client.local.broker import LocalBroker
from shmq.client.local.retention_hold import REMOTE, RetentionHold
from shmq.client.local.stream import LocalStream
from shmq.errors import InvalidOption, NoSpace, NoSuchStream, ShmqError, Unsupported
from shmq.model.codec.compression import expand
from shmq.native import _stream
from shmq.native._core import Session
from shmq.protocol.messages.numbers import OffsetAt, Repartition
from shmq.protocol.messages.payload import check_empty, pack_map
from shmq.protocol.messages.stream import (
    STREAMS,
    Append,
    Appended,
    Fetch,
    Hold,
    StreamCreate,
    StreamInfo,
    StreamLook,
    pack_partitions,
)
from shmq.protocol.opcodes import RIGHTS, Status, Type
from shmq.protocol.status import Refusal, refusal_of
from shmq.server.handlers.delayed_answers import DurableAppends, FetchHandler
from shmq.server.handlers.group import Members
from shmq.server.handlers.refusals import QuotaRequest, Quotas, scarce, well_formed
from shmq.server.handlers.side_threads import SideThreads

#: The most holds of one connection.
_MOST: Final = 16

#: A stream's identity, and the client's number of the hold.
_Key = tuple[int, int]


class RetentionHolds:
    """The holds of all connections."""

    def __init__(self) -> None:
        self._held: dict[Session, dict[_Key, RetentionHold]] = {}

    @contextlib.contextmanager
    def keeping(
        self, session: Session, stream: LocalStream, number: int, position: Mapping[int, int]
    ) -> Iterator[None]:
        """Take the hold, or move it; the block is the rest of the request.

        Raises InvalidOption, NoSpace, and OffsetOutOfRange. With the last one the hold is taken
        nevertheless, from the earliest remaining offset on. Any other error, also one of the
        block, leaves the hold as it was before.
        """
        mine = self._held.setdefault(session, {})
        key = stream.identity, number
        if key not in mine:
            if len(mine) >= _MOST:
                raise NoSpace(
                    f"this connection has {_MOST} subscriptions that hold streams back, and may "
                    f"have no more: close some, or use another connection"
                )
            mine[key] = RetentionHold(stream, REMOTE)
        try:
            with mine[key].whole():
                mine[key].take(position)
                yield
        finally:
            if mine[key].is_empty:
                del mine[key]

    def end(self, session: Session, stream: LocalStream, number: int) -> None:
        """Release the hold, if there is one."""
        held = self._held.get(session, {}).pop((stream.identity, number), None)
        if held is not None:
            held.close()

    def has(self, stream: LocalStream) -> bool:
        """Whether any connection holds the stream."""
        return any(held.stream is stream for mine in self._held.values() for held in mine.values())

    def left(self, session: Session) -> None:
        """Release the holds of a connection that is gone."""
        for held in self._held.pop(session, {}).values():
            held.close()

    def close(self) -> None:
        """Release all holds."""
        for session in list(self._held):
            self.left(session)


_OFFSET: Final = struct.Struct("!Q")

#: How many streams stay attached.
_MOST_KEPT: Final = 256


class Rights(Protocol):
    """Returns a session's rights to a stream, or to a group of it, whether it exists or not."""

    def __call__(self, session: Session, name: str, group: str | None = None) -> int:
        """The engine's bits, and KNOWN."""


class Streams:
    """Carries out requests about streams, and keeps the attached ones.

    Each method that answers checks in the protocol's order: form, flags, stream, right, range.
    """

    def __init__(
        self, broker: LocalBroker, rights: Rights, quotas: Quotas, side_threads: SideThreads
    ) -> None:
        self._broker = broker
        self._rights = rights
        self._quotas = quotas
        self._open: dict[str, LocalStream] = {}
        self._fetching = FetchHandler()
        self._holding = RetentionHolds()
        self._confirming = DurableAppends()
        self._members = Members(self, broker.queue, quotas, side_threads)
        self.answers: dict[int, Callable[[Session, str, bytes], bytes | None]] = {
            Type.STREAM_CREATE: self._create,
            Type.STREAM_DELETE: self._delete,
            Type.STREAM_ALTER: self._alter,
            Type.STREAM_LIST: self._list,
            Type.STREAM_INFO: self._describe,
            Type.APPEND: self._append,
            Type.FETCH: self._fetch,
            Type.HOLD: self._hold,
            Type.OFFSET_AT: self._find_offset,
            Type.REPARTITION: self._change_partitions,
            **self._members.answers,
        }

    def left(self, session: Session) -> None:
        """End the waits, holds and members of a connection that is gone."""
        self._fetching.leave(session)
        self._holding.left(session)
        self._members.left(session)

    def drain(self) -> None:
        """Begin nothing new, and answer the waiting FETCHes."""
        self._fetching.drain()

    def close(self) -> None:
        """Leave all streams."""
        self._fetching.close()
        self._holding.close()
        self._confirming.close()
        self._members.close()
        for stream in self._open.values():
            stream.close()
        self._open.clear()

    def rights(self, session: Session, name: str, group: str | None = None) -> int:
        """The session's rights to the stream of that name, or to a group of it."""
        return self._rights(session, name, group)

    # ---- attaching ----

    def attached(
        self, session: Session, name: str, right: int, identity: int = 0, group: str | None = None
    ) -> LocalStream:
        """The stream, if the session has one of those rights to it, or to that group of it.

        ``right``: 0 if any right to the stream is enough. Raises Refusal, NoSuchStream.
        """
        if not self._rights(session, name):
            raise NoSuchStream.of(name, "here")
        stream = self._open_stream(name)
        if identity and stream.identity != identity:
            raise NoSuchStream.of(name, "here")
        if right and not self._rights(session, name, group) & right:
            what = f"stream {name!r}" if group is None else f"group {group!r} of stream {name!r}"
            raise Refusal(Status.FORBIDDEN, f"the token lacks the right for this request to {what}")
        return stream

    def _open_stream(self, name: str) -> LocalStream:
        stream = self._open.pop(name, None)
        if stream is not None and stream.control.deleted:
            stream.close()
            stream = None
        if stream is None:
            with scarce(f"stream {name!r}"):
                stream = self._broker.stream(name)
        self._open[name] = stream  # ordered by last use
        if len(self._open) > _MOST_KEPT:
            oldest = next(iter(self._open))
            if not self._is_awaited(self._open[oldest]):
                self._open.pop(oldest).close()
        return stream

    def _is_awaited(self, stream: LocalStream) -> bool:
        waits = self._fetching.has(stream) or self._confirming.has(stream)
        return waits or self._holding.has(stream) or self._members.has(stream)

    # ---- one request each ----

    def _create(self, session: Session, name: str, rest: bytes) -> bytes:
        given = StreamCreate.unpack(rest).options
        held = self._rights(session, name)
        if not held:
            raise NoSuchStream.of(name, "here")
        if not held & RIGHTS[Type.STREAM_CREATE]:
            raise Refusal(Status.FORBIDDEN, f"the token has no right to administer {name!r}")
        with well_formed():
            wanted = StreamOptions.given(without_sharing(given))

            def wished() -> QuotaRequest | None:
                if self._broker.has_stream(name):
                    return None
                size = wanted.partitions * _stream.partition_bytes(wanted.as_dict())
                return QuotaRequest("streams", [name], size)

            with self._quotas.room_for(session, wished):
                self._broker.create_stream(name, **given).close()
        return b""

    def _alter(self, session: Session, name: str, rest: bytes) -> bytes:
        given = StreamCreate.unpack(rest).options
        held = self._rights(session, name)
        if not held:
            raise NoSuchStream.of(name, "here")
        with self._broker.stream(name) as stream:  # one of this thread
            if not held & RIGHTS[Type.STREAM_ALTER]:
                raise Refusal(Status.FORBIDDEN, f"the token has no right to administer {name!r}")
            with well_formed():
                # A key need not be a keyword.
                wanted = stream.options.altered(name, given, stream.control.most_ring_bytes)
                both = (wanted.as_dict(), stream.options.as_dict())
                more, now = map(_stream.partition_bytes, both)

                def wished() -> QuotaRequest | None:
                    size = stream.partitions * (more - now)
                    return QuotaRequest("streams", [], size) if size > 0 else None

                with self._quotas.room_for(session, wished):
                    return pack_map(self._broker.alter_stream(name, **given))

    def _delete(self, session: Session, name: str, rest: bytes) -> bytes:
        check_empty(rest)
        held = self._rights(session, name)
        if not held:
            raise NoSuchStream.of(name, "here")
        if not held & RIGHTS[Type.STREAM_DELETE]:
            self._open_stream(name)  # raises NoSuchStream if there is none
            raise Refusal(Status.FORBIDDEN, f"the token has no right to administer {name!r}")
        self._broker.delete_stream(name)
        return b""

    def _list(self, session: Session, _: str, rest: bytes) -> bytes:
        check_empty(rest)
        found = (each for each in self._broker.list_streams() if self._rights(session, each.name))
        return STREAMS.pack(found)

    def _describe(self, session: Session, name: str, rest: bytes) -> bytes:
        asked = StreamLook.unpack(rest) if rest else StreamLook()
        stream = self.attached(session, name, 0)
        return StreamInfo(
            name,
            stream.identity,
            stream.options,
            stream.partitions,
            stream.offsets(),
            _find_disk_error(stream),
            None if asked.producer is None else stream.produced(asked.producer),
        ).pack()

    def _append(self, session: Session, name: str, rest: bytes) -> bytes | None:
        asked = Append.unpack(rest)
        try:
            return self._append_records(session, name, asked)
        except (Refusal, ShmqError) as error:
            if not asked.durable or not session.promised:
                raise
            session.keep(session.durable_reply(), *refusal_of(error))  # after the waiting ones
            return None

    def _append_records(self, session: Session, name: str, asked: Append) -> bytes | None:
        stream = self.attached(session, name, RIGHTS[Type.APPEND], asked.identity)
        if asked.durable and stream.options.durability != "journal":
            raise Refusal(Status.UNSUPPORTED, f"stream {name!r} keeps no journal")
        with well_formed():
            if asked.compression is not None:
                _check_compressed(asked)
            done: Any = stream.append_block(
                asked.block,
                partition=asked.partition,
                count=asked.count,
                compression=asked.compression,
                raw_bytes=asked.raw_bytes or None,
                wait=False,
                confirm="memory",
                producer=asked.producer,
                sequence=asked.sequence,
                gaps=asked.gaps,
            )
        payload = Appended(done.first, done.count, done.timestamp_ns, done.duplicate).pack()
        status = Status.DUPLICATE if done.duplicate else Status.OK
        if asked.durable or stream.options.confirm == "disk":
            end = done.first + done.count if done.first >= 0 else 0
            self._confirming.durable_reply(session, stream, (asked.partition, end), status, payload)
            return None
        if done.duplicate:
            raise Refusal(status, "", payload)
        return payload

    def _fetch(self, session: Session, name: str, rest: bytes) -> bytes | None:
        asked = Fetch.unpack(rest)
        stream = self.attached(session, name, RIGHTS[Type.FETCH], asked.identity)
        with well_formed():
            return self._fetching.begin(session, stream, asked)

    def _hold(self, session: Session, name: str, rest: bytes) -> bytes | None:
        asked = Hold.unpack(rest)
        stream = self.attached(session, name, RIGHTS[Type.HOLD], asked.identity)
        if not asked.places:
            self._holding.end(session, stream, asked.number)
            return b""
        places = dict(asked.places)
        with well_formed(), self._holding.keeping(session, stream, asked.number, places):
            return self._fetching.begin(session, stream, asked.fetch) if asked.fetch else b""

    def _find_offset(self, session: Session, name: str, rest: bytes) -> bytes:
        asked = OffsetAt.unpack(rest)
        stream = self.attached(session, name, RIGHTS[Type.OFFSET_AT], asked.identity)
        with well_formed():
            return _OFFSET.pack(stream.find(asked.partition, asked.ns))

    def _change_partitions(self, session: Session, name: str, rest: bytes) -> bytes:
        asked = Repartition.unpack(rest)
        stream = self.attached(session, name, RIGHTS[Type.REPARTITION], asked.identity)
        size = asked.partitions * _stream.partition_bytes(stream.options.as_dict())
        quota_request = QuotaRequest("streams", [], size)
        with well_formed(), self._quotas.room_for(session, lambda: quota_request):
            opened = stream.repartition(asked.partitions)
        return pack_partitions(opened)


def _find_disk_error(stream: LocalStream) -> str | None:
    """Why the disk of the stream's journal fails; None: it does not."""
    found = next((error for log in stream.logs if (error := log.disk_error)), 0)
    return os.strerror(found) if found else None


def _check_compressed(asked: Append) -> None:
    """Expand a compressed block to check it, since the stream stores it without looking.

    Raises ShmqError.
    """
    assert asked.compression is not None
    try:
        plain = expand(asked.compression, asked.block, asked.raw_bytes)
        count = _stream.count_records(plain)
    except Unsupported:
        raise
    except ShmqError as error:
        raise InvalidOption(f"the records are not compressed as they should be: {error}") from error
    if count != asked.count:
        raise InvalidOption(f"{count} records are compressed, not {asked.count}")
