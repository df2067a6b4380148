"""Requests about a stream, behind its name, and their answers."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Self

from shmq.api.stream import PartitionOffsets, StreamSummary
from shmq.api.stream_options import StreamOptions
from shmq.model.expression.record_fields import RecordWhere
from shmq.native import _core
from shmq.protocol.messages.payload import (
    NO_OFFSET,
    PLACE,
    Listing,
    Reply,
    Request,
    milliseconds,
    pack_map,
    pack_places,
    seconds,
    unpack_answer,
    unpack_expression,
    unpack_fields,
    unpack_head,
    unpack_map,
)
from shmq.protocol.opcodes import HEADS, Flag, Status, Type
from shmq.protocol.status import Refusal, senseless, whole

_PRODUCER: Final = struct.Struct("!QQ")
_APPENDED: Final = struct.Struct("!QIQ")
_PART: Final = struct.Struct("!IQQI")
_RANGE: Final = struct.Struct("!II")

_FLAGS: Final = Flag.DURABLE | Flag.PRODUCER | Flag.GAPS
#: The compressions by their numbers.
_COMPRESSIONS: Final = (None, "lz4", "zstd")
_MOST: Final = 0xFFFFFFFF
_MOST_PLACES: Final = 1 << 16
#: The highest offset and producer, and the latest time in ns.
_LAST: Final = (1 << 63) - 1
_LATEST: Final = 8_000_000_000 * 10**9

Places = list[tuple[int, int]]

#: The answer to a STREAM_LIST.
STREAMS: Final = Listing(StreamSummary, kind="stream")


@dataclasses.dataclass(frozen=True, slots=True)
class StreamCreate:
    """A STREAM_CREATE."""

    options: dict[str, Any]

    def pack(self) -> bytes:
        """The payload behind the name."""
        return pack_map(self.options)

    @classmethod
    def unpack(cls, rest: bytes) -> Self:
        """Unpack the payload behind the name. Raises Refusal."""
        return cls(unpack_map(rest) if rest else {})


def unpack_stream_options(answer: _core.Answer) -> StreamOptions:
    """The options in the answer to a STREAM_ALTER. Raises ServerError."""
    return unpack_fields(StreamOptions, unpack_answer(answer))


@dataclasses.dataclass(frozen=True, slots=True)
class StreamLook(Request):
    """What a STREAM_INFO may have: the producer whose last sequences are asked for."""

    producer: int | None = None

    def check(self) -> None:
        if self.producer is not None and not 0 <= self.producer <= _LAST:
            raise Refusal.bad(f"producer={self.producer}: it must be 0 or more, and less than 2⁶³")


@dataclasses.dataclass(frozen=True, slots=True)
class StreamInfo(Reply):
    """The answer to a STREAM_INFO.

    ``journal_error``: why the journal's disk fails, or None. ``produced``: the last sequence of
    the asked producer in each partition; None if none was asked for.
    """

    name: str = ""
    identity: int = 0
    options: StreamOptions = dataclasses.field(default_factory=StreamOptions)
    partitions: int = 0
    offsets: list[PartitionOffsets] = dataclasses.field(default_factory=list)
    journal_error: str | None = None
    produced: list[int | None] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """An APPEND of ``count`` records, whose entries are ``block``, to one partition.

    ``raw_bytes``: the size of a compressed block before compression. With a ``producer`` the
    records have numbers from ``sequence`` on; with ``gaps`` numbers may be skipped.
    """

    identity: int
    partition: int
    count: int
    block: bytes
    durable: bool = False
    compression: str | None = None
    raw_bytes: int = 0
    producer: int | None = None
    sequence: int | None = None
    gaps: bool = False

    def pack(self) -> bytes:
        """The payload behind the name."""
        flags = Flag.DURABLE if self.durable else 0
        tail = b""
        if self.producer is not None:
            flags |= Flag.PRODUCER | (Flag.GAPS if self.gaps else 0)
            tail = _PRODUCER.pack(self.producer, self.sequence or 0)
        how = _COMPRESSIONS.index(self.compression)
        head = HEADS[Type.APPEND].pack(
            self.identity, flags, self.partition, how, self.count, self.raw_bytes
        )
        return b"".join((head, tail, self.block))

    @classmethod
    def unpack(cls, rest: bytes) -> Self:
        """Unpack the payload behind the name. Raises Refusal."""
        identity, flags, partition, compression, count, raw = unpack_head(Type.APPEND, rest)
        at = HEADS[Type.APPEND].size
        producer = sequence = None
        if flags & Flag.PRODUCER:
            if len(rest) < at + _PRODUCER.size:
                raise Refusal.bad("an APPEND with the flag 0x04 has a producer and a sequence")
            producer, sequence = _PRODUCER.unpack_from(rest, at)
            at += _PRODUCER.size
        if flags & ~_FLAGS:
            raise Refusal(Status.UNSUPPORTED, f"an APPEND has no such flag: {flags:#04x}")
        if compression >= len(_COMPRESSIONS):
            raise Refusal(Status.UNSUPPORTED, f"unknown compression {compression}")
        return cls(
            identity=identity,
            partition=partition,
            count=count,
            block=rest[at:],
            durable=bool(flags & Flag.DURABLE),
            compression=_COMPRESSIONS[compression],
            raw_bytes=raw,
            producer=producer,
            sequence=sequence,
            gaps=bool(flags & Flag.GAPS),
        )


class Appended(NamedTuple):
    """The answer to an APPEND; ``first`` is -1 for duplicates of records that are gone."""

    first: int
    records: int
    timestamp_ns: int
    duplicate: bool

    def pack(self) -> bytes:
        """The payload of the answer."""
        return _APPENDED.pack(self.first & NO_OFFSET, self.records, self.timestamp_ns)

    @classmethod
    def unpack(cls, answer: _core.Answer) -> Self:
        """Unpack the answer. Raises ServerError."""
        first, count, timestamp = _APPENDED.unpack_from(whole(answer, _APPENDED.size))
        duplicate = answer.status == Status.DUPLICATE
        return cls(-1 if first == NO_OFFSET else first, count, timestamp, duplicate)


@dataclasses.dataclass(frozen=True, slots=True)
class Fetch:
    """A FETCH; ``wait`` in seconds, None: without limit; places are partitions and offsets."""

    identity: int
    places: Places
    most: int
    size: int
    wait: float | None
    where: str | None = None

    def pack(self) -> bytes:
        """The payload behind the name."""
        most, size = min(self.most, _MOST), min(self.size, _MOST)
        head = HEADS[Type.FETCH].pack(
            self.identity, most, size, milliseconds(self.wait), len(self.places)
        )
        tail = b"" if self.where is None else self.where.encode()
        return b"".join((head, pack_places(self.places), tail))

    @classmethod
    def unpack(cls, rest: bytes) -> Self:
        """Unpack the payload behind the name. Raises Refusal."""
        identity, most, size, wait, count = unpack_head(Type.FETCH, rest)
        places, behind = _read_places(rest[HEADS[Type.FETCH].size :], count)
        where = unpack_expression(behind, RecordWhere)
        return cls(identity, places, most, size, seconds(wait), where)


class FetchedPart(NamedTuple):
    """What a FETCH found in one partition; ``entries`` are bytes."""

    partition: int
    next_offset: int
    latest: int
    entries: bytes | memoryview

    def pack(self) -> bytes:
        """This partition's part of the answer's payload."""
        return _PART.pack(*self[:3], len(self.entries)) + self.entries

    @classmethod
    def unpack_all(cls, answer: _core.Answer) -> Iterator[Self]:
        """Unpack the answer, by partition. Raises ServerError if it is malformed."""
        data = memoryview(answer.payload or b"")
        at = 0
        while at < len(data):
            if len(data) - at < _PART.size:
                raise senseless(f"{len(data) - at} bytes are left over")
            partition, following, latest, size = _PART.unpack_from(data, at)
            at += _PART.size
            if size > len(data) - at:
                raise senseless(f"{size} bytes of entries are not there")
            yield cls(partition, following, latest, data[at : at + size])
            at += size


@dataclasses.dataclass(frozen=True, slots=True)
class Hold:
    """A HOLD; without ``places`` it ends the hold. ``fetch``: a FETCH to carry out with it."""

    identity: int
    number: int
    places: Places
    fetch: Fetch | None = None

    def pack(self) -> bytes:
        """The payload behind the name."""
        head = HEADS[Type.HOLD].pack(self.identity, self.number, len(self.places))
        tail = b"" if self.fetch is None else self.fetch.pack()[8:]  # without the identity
        return b"".join((head, pack_places(self.places), tail))

    @classmethod
    def unpack(cls, rest: bytes) -> Self:
        """Unpack the payload behind the name. Raises Refusal."""
        identity, number, count = unpack_head(Type.HOLD, rest)
        places, behind = _read_places(rest[HEADS[Type.HOLD].size :], count)
        if behind and not places:
            raise Refusal.bad("a HOLD that ends fetches nothing")
        fetch = Fetch.unpack(rest[:8] + behind) if behind else None
        return cls(identity, number, places, fetch)


def pack_partitions(opened: range) -> bytes:
    """The answer to a REPARTITION: the partitions that are active from then on."""
    return _RANGE.pack(opened.start, opened.stop)


def unpack_partitions(answer: _core.Answer) -> range:
    """The active partitions in the answer to a REPARTITION. Raises ServerError."""
    return range(*_RANGE.unpack_from(whole(answer, _RANGE.size)))


def _read_places(raw: bytes, count: int) -> tuple[Places, bytes]:
    """The first ``count`` partitions with offsets, and the rest. Raises Refusal."""
    end = count * PLACE.size
    if len(raw) < end:
        raise Refusal.bad(f"{count} places have 12 bytes each, and there are fewer")
    if count > _MOST_PLACES:
        raise Refusal.bad(f"{count} places are more than the {_MOST_PLACES} that may be asked for")
    found = PLACE.iter_unpack(memoryview(raw)[:end])
    return [(partition, min(offset, _LAST)) for partition, offset in found], raw[end:]
