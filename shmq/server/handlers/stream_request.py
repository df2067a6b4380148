"""What a client asks of a stream, read from the bytes that it sent: docs/protocol.md."""

from __future__ import annotations

import dataclasses
import struct
from typing import Final

from shmq.errors import InvalidOption
from shmq.expression.parse import MOST_REMOTE
from shmq.expression.record_fields import RecordWhere
from shmq.protocol.opcodes import Flag, Status
from shmq.server.handlers.request_errors import Refusal

__all__ = ["Append", "At", "Fetch", "HoldRequest", "Repartition"]

_APPEND: Final = struct.Struct("!QBIBII")
_PRODUCER: Final = struct.Struct("!QQ")
_IDENTITY: Final = struct.Struct("!Q")
_FETCH: Final = struct.Struct("!QIIII")
_HOLD: Final = struct.Struct("!QII")
_PLACE: Final = struct.Struct("!IQ")
_AT: Final = struct.Struct("!QIQ")
_REPARTITION: Final = struct.Struct("!QI")

_KNOWN: Final = int(Flag.DURABLE | Flag.PRODUCER | Flag.GAPS)

#: By number.
_COMPRESSIONS: Final = (None, "lz4", "zstd")

_MOST_PLACES: Final = 1 << 16

#: No offset, and no time in ns, is beyond.
_LAST: Final = (1 << 63) - 1
_LATEST: Final = 8_000_000_000 * 10**9


@dataclasses.dataclass(frozen=True, slots=True)
class Append:
    """An APPEND."""

    identity: int
    durable: bool
    partition: int
    compression: str | None
    count: int
    producer: int | None
    sequence: int | None
    gaps: bool
    raw_bytes: int
    block: bytes

    @classmethod
    def of(cls, rest: bytes) -> Append:
        """What is behind the name. Raises Refusal."""
        if len(rest) < _APPEND.size:
            raise _bad("an APPEND has at least 22 bytes behind the name")
        identity, flags, partition, compression, count, raw = _APPEND.unpack_from(rest)
        at = _APPEND.size
        producer = sequence = None
        if flags & Flag.PRODUCER:
            if len(rest) < at + _PRODUCER.size:
                raise _bad("an APPEND with the flag 0x04 has a producer and a sequence")
            producer, sequence = _PRODUCER.unpack_from(rest, at)
            at += _PRODUCER.size
        if not count:
            raise _bad("an APPEND has one record at least")
        if flags & ~_KNOWN:
            raise Refusal(Status.UNSUPPORTED, f"an APPEND has no such flag: {flags:#04x}")
        if compression >= len(_COMPRESSIONS):
            raise Refusal(Status.UNSUPPORTED, f"there is no compression {compression}")
        durable = bool(flags & Flag.DURABLE)
        how = _COMPRESSIONS[compression]
        gaps = bool(flags & Flag.GAPS)
        return cls(
            identity, durable, partition, how, count, producer, sequence, gaps, raw, rest[at:]
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Fetch:
    """A FETCH; ``wait`` in seconds, None: without limit; places are partition and offset."""

    identity: int
    most: int
    size: int
    wait: float | None
    places: list[tuple[int, int]]
    where: str | None

    @classmethod
    def of(cls, rest: bytes) -> Fetch:
        """What is behind the name. Raises Refusal."""
        if len(rest) < _FETCH.size:
            raise _bad("a FETCH has at least 24 bytes behind the name")
        identity, most, size, wait, count = _FETCH.unpack_from(rest)
        if not (most and size and count):
            raise _bad("a FETCH is for one record, one byte and one partition at least")
        places, behind = _places(rest[_FETCH.size :], count)
        return cls(identity, most, size, _seconds(wait), places, _where(behind))


@dataclasses.dataclass(frozen=True, slots=True)
class HoldRequest:
    """A HOLD; without ``places`` it ends. ``fetch``: what is read then."""

    identity: int
    number: int
    places: list[tuple[int, int]]
    fetch: Fetch | None

    @classmethod
    def of(cls, rest: bytes) -> HoldRequest:
        """What is behind the name. Raises Refusal."""
        if len(rest) < _HOLD.size:
            raise _bad("a HOLD has at least 16 bytes behind the name")
        identity, number, count = _HOLD.unpack_from(rest)
        places, behind = _places(rest[_HOLD.size :], count)
        if behind and not places:
            raise _bad("a HOLD that ends fetches nothing")
        fetch = Fetch.of(rest[: _IDENTITY.size] + behind) if behind else None
        return cls(identity, number, places, fetch)


@dataclasses.dataclass(frozen=True, slots=True)
class Repartition:
    """A REPARTITION."""

    identity: int
    partitions: int

    @classmethod
    def of(cls, rest: bytes) -> Repartition:
        """What is behind the name. Raises Refusal."""
        if len(rest) != _REPARTITION.size:
            raise _bad("a REPARTITION has 12 bytes behind the name")
        return cls(*_REPARTITION.unpack(rest))


@dataclasses.dataclass(frozen=True, slots=True)
class At:
    """An OFFSET_AT; ``timestamp`` in ns since 1970."""

    identity: int
    partition: int
    timestamp: int

    @classmethod
    def of(cls, rest: bytes) -> At:
        """What is behind the name. Raises Refusal."""
        if len(rest) != _AT.size:
            raise _bad("an OFFSET_AT has 20 bytes behind the name")
        identity, partition, timestamp = _AT.unpack(rest)
        return cls(identity, partition, min(timestamp, _LATEST))


def _places(raw: bytes, count: int) -> tuple[list[tuple[int, int]], bytes]:
    """So many partitions with their offsets, and what is behind them. Raises Refusal."""
    end = count * _PLACE.size
    if len(raw) < end:
        raise _bad(f"{count} places have 12 bytes each, and there are fewer")
    if count > _MOST_PLACES:
        raise _bad(f"{count} places are more than the {_MOST_PLACES} that may be asked for")
    found = _PLACE.iter_unpack(memoryview(raw)[:end])
    return [(partition, min(offset, _LAST)) for partition, offset in found], raw[end:]


def _where(raw: bytes) -> str | None:
    if not raw:
        return None
    try:
        text = raw.decode()
        RecordWhere(text, MOST_REMOTE)
    except (UnicodeDecodeError, InvalidOption) as error:
        raise _bad(str(error)) from error
    return text


def _seconds(ms: int) -> float | None:
    return None if ms == 0xFFFFFFFF else ms / 1000


def _bad(why: str) -> Refusal:
    return Refusal(Status.BAD_REQUEST, why)
