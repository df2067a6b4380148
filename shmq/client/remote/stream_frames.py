"""The bytes of requests about streams, and what their refusals mean: docs/protocol.md."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from shmq import errors
from shmq.client.remote.status_errors import refusal
from shmq.native import _core
from shmq.protocol.opcodes import FOREVER, Flag, Status

__all__ = ["Done", "FramePart", "append", "done", "error", "fetch", "hold", "offset_at", "parts"]

_APPEND: Final = struct.Struct("!QBIBII")
_PRODUCER: Final = struct.Struct("!QQ")
_DONE: Final = struct.Struct("!QIQ")
_IDENTITY: Final = struct.Struct("!Q")
_FETCH: Final = struct.Struct("!QIIII")
_HOLD: Final = struct.Struct("!QII")
_PLACE: Final = struct.Struct("!IQ")
_PART: Final = struct.Struct("!IQQI")
_AT: Final = struct.Struct("!QIQ")
_REPARTITION: Final = struct.Struct("!QI")
_RANGE: Final = struct.Struct("!QQQ")
_SEQUENCE: Final = struct.Struct("!QQ")

_COMPRESSIONS: Final = {None: 0, "lz4": 1, "zstd": 2}
_MOST: Final = 0xFFFFFFFF


class Done(NamedTuple):
    """What an APPEND has done."""

    first: int
    records: int
    timestamp_ns: int
    duplicate: bool


class FramePart(NamedTuple):
    """What a FETCH has found in one partition."""

    partition: int
    next_offset: int
    latest: int
    entries: memoryview


def append(
    identity: int,
    partition: int,
    block: bytes,
    count: int,
    *,
    durable: bool,
    compression: str | None,
    raw_bytes: int,
    producer: int | None,
    sequence: int | None,
    gaps: bool = False,
) -> bytes:
    """What an APPEND has behind the name."""
    flags = Flag.DURABLE if durable else 0
    tail = b""
    if producer is not None:
        flags |= Flag.PRODUCER | (Flag.GAPS if gaps else 0)
        tail = _PRODUCER.pack(producer, sequence or 0)
    how = _COMPRESSIONS[compression]
    head = _APPEND.pack(identity, flags, partition, how, count, raw_bytes)
    return b"".join((head, tail, block))


def done(answer: _core.Answer) -> Done:
    """What the answer to an APPEND says."""
    first, count, timestamp = _DONE.unpack_from(_whole(answer, _DONE.size))
    gone = first == (1 << 64) - 1
    return Done(-1 if gone else first, count, timestamp, answer.status == Status.DUPLICATE)


def fetch(
    identity: int,
    places: Mapping[int, int],
    most: int,
    size: int,
    wait: float | None,
    where: str | None = None,
) -> bytes:
    """What a FETCH has behind the name; ``wait`` in seconds, None: without limit."""
    ms = FOREVER if wait is None else min(FOREVER - 1, max(0, round(wait * 1000)))
    head = _FETCH.pack(identity, min(most, _MOST), min(size, _MOST), ms, len(places))
    tail = b"" if where is None else where.encode()
    return b"".join((head, *(_PLACE.pack(*place) for place in places.items()), tail))


def hold(
    identity: int, number: int, position: Mapping[int, int], fetched: bytes | None = None
) -> bytes:
    """What a HOLD has behind the name; ``fetched``: what a FETCH would have there."""
    head = _HOLD.pack(identity, number, len(position))
    tail = b"" if fetched is None else fetched[_IDENTITY.size :]
    return b"".join((head, *(_PLACE.pack(*place) for place in position.items()), tail))


def parts(answer: _core.Answer) -> Iterator[FramePart]:
    """What a FETCH has found, by partition. Raises ServerError for what makes no sense."""
    data = memoryview(answer.payload or b"")
    at = 0
    while at < len(data):
        if len(data) - at < _PART.size:
            raise _senseless(f"{len(data) - at} bytes are left over")
        partition, following, latest, size = _PART.unpack_from(data, at)
        at += _PART.size
        if size > len(data) - at:
            raise _senseless(f"{size} bytes of entries are not there")
        yield FramePart(partition, following, latest, data[at : at + size])
        at += size


def offset_at(identity: int, partition: int, timestamp_ns: int) -> bytes:
    """What an OFFSET_AT has behind the name."""
    return _AT.pack(identity, partition, timestamp_ns)


def repartition(identity: int, partitions: int) -> bytes:
    """What a REPARTITION has behind the name."""
    return _REPARTITION.pack(identity, partitions)


def opened(answer: _core.Answer) -> range:
    """The partitions that take records, as the answer to it says."""
    return range(answer.number >> 32, answer.number & 0xFFFFFFFF)


def error(answer: _core.Answer, name: str) -> errors.ShmqError:
    """What a refusal means for who has a handle of the stream."""
    what = f"stream {name!r}"
    if answer.status == Status.NO_QUEUE:
        return errors.StreamDeleted(f"{what} was deleted")
    if answer.status == Status.OUT_OF_RANGE:
        asked, earliest, latest = _RANGE.unpack_from(_whole(answer, _RANGE.size))
        told = (
            f"{what} has no offset {asked} there yet: the next one is {latest}"
            if asked > latest
            else f"offset {asked} of {what} is gone: the oldest there is {earliest}; go on there, "
            f"read sooner, or give the stream more ring_bytes"
        )
        return errors.OffsetOutOfRange(told, asked, earliest, latest)
    if answer.status == Status.OUT_OF_SEQUENCE:
        expected, given = _SEQUENCE.unpack_from(_whole(answer, _SEQUENCE.size))
        told = f"{what} expects the sequence {expected} of this producer, not {given}"
        told += (
            ": append what is missing first"
            if given > expected
            else f": it has the records up to {expected - 1}, and not all of these; none was "
            f"appended; go on with {expected}"
        )
        return errors.OutOfSequence(told, expected, given)
    return refusal(answer, what)


def _whole(answer: _core.Answer, size: int) -> bytes:
    payload = answer.payload or b""
    if len(payload) < size:
        raise _senseless(f"it has {len(payload)} bytes, not {size}")
    return payload


def _senseless(why: str) -> errors.ServerError:
    return errors.ServerError(f"the server's answer makes no sense: {why}")
