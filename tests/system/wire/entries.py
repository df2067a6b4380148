"""The bytes of streams' requests and entries, written down a second time."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from tests.system.wire import frames

_HEAD = struct.Struct("<IIBBBBIQqIIII")
GONE = (1 << 64) - 1


class Entry(NamedTuple):
    offset: int
    timestamp: int
    value: bytes
    key: bytes | None
    headers: dict[Any, Any]
    codec: int
    takes: int
    seen: int


class Part(NamedTuple):
    """What a FETCH has of one partition."""

    partition: int
    following: int
    latest: int
    entries: list[Entry]


def _table() -> list[int]:
    found = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        found.append(crc)
    return found


_TABLE = _table()


def crc32c(data: bytes, begun: int = 0) -> int:
    crc = begun ^ 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def entry(
    value: bytes = b"",
    key: bytes | None = None,
    headers: bytes = b"",
    *,
    codec: int = 0,
    timestamp: int = 0,
    **wrong: int,
) -> bytes:
    """An entry as an APPEND has it; ``wrong`` are fields that are not as they should be."""
    body = value + (key or b"") + headers
    body += bytes(-len(body) % 8)
    fields = {
        "words": (_HEAD.size - 8 + len(body)) // 8,
        "crc": 0,
        "type": 10,
        "flags": 0 if key is None else 2,
        "codec": codec,
        "compression": 0,
        "count": 1,
        "offset": 0,
        "timestamp": timestamp,
        "key_bytes": len(key or b""),
        "headers_bytes": len(headers),
        "value_bytes": len(value),
        "raw": 0,
    } | wrong
    return _HEAD.pack(*fields.values()) + body


def append(
    stream: str,
    *entries: bytes,
    partition: int = 0,
    identity: int = 0,
    flags: int = 0,
    compression: int = 0,
    count: int | None = None,
    raw: int = 0,
    producer: tuple[int, int] | None = None,
) -> bytes:
    if producer is not None:
        flags |= 4
    many = len(entries) if count is None else count
    head = struct.pack(">QBIBII", identity, flags, partition, compression, many, raw)
    tail = b"" if producer is None else struct.pack(">QQ", *producer)
    return frames.name(stream) + head + tail + b"".join(entries)


def fetch(
    stream: str,
    *places: tuple[int, int],
    most: int = 1000,
    size: int = 1 << 20,
    wait: int = 0,
    identity: int = 0,
    count: int | None = None,
) -> bytes:
    many = len(places) if count is None else count
    head = struct.pack(">QIIII", identity, most, size, wait, many)
    return frames.name(stream) + head + b"".join(struct.pack(">IQ", *each) for each in places)


def hold(
    stream: str,
    number: int,
    *places: tuple[int, int],
    fetching: bytes | None = None,
    identity: int = 0,
    count: int | None = None,
) -> bytes:
    """``fetching``: a whole FETCH of the same stream."""
    many = len(places) if count is None else count
    head = struct.pack(">QII", identity, number, many)
    tail = b"" if fetching is None else fetching[len(frames.name(stream)) + 8 :]
    return (
        frames.name(stream) + head + b"".join(struct.pack(">IQ", *each) for each in places) + tail
    )


def at(stream: str, partition: int, ns: int, identity: int = 0) -> bytes:
    return frames.name(stream) + struct.pack(">QIQ", identity, partition, ns)


def appended(payload: bytes) -> tuple[int, int, int]:
    """First offset, count and timestamp."""
    first, count, ns = struct.unpack(">QIQ", payload)
    return first, count, ns


def parts(payload: bytes, identity: int | None = None) -> list[Part]:
    """What a FETCH has brought; with the identity the checksums are compared."""
    found, at = [], 0
    while at < len(payload):
        partition, following, latest, size = struct.unpack_from(">IQQI", payload, at)
        raw = payload[at + 24 : at + 24 + size]
        assert len(raw) == size
        found.append(Part(partition, following, latest, _entries(raw, identity)))
        at += 24 + size
    return found


def _entries(raw: bytes, identity: int | None) -> list[Entry]:
    found, at = [], 0
    while at < len(raw):
        words, crc, kind, flags, codec, compression, count, offset, ns, key, headers, value, _ = (
            _HEAD.unpack_from(raw, at)
        )
        assert (kind, compression) == (10, 0)
        whole = raw[at : at + 8 + words * 8]
        if identity is not None:
            assert crc == crc32c(whole[:4] + whole[8:], identity & 0xFFFFFFFF)
        body = whole[_HEAD.size + (16 if flags & 1 else 0) :]
        mine = body[value : value + key] if flags & 2 else None
        more = body[value + key : value + key + headers]
        rest, seen = body[value + key + headers :], ns
        if flags & 4:
            (seen,) = struct.unpack("<q", rest[-8:])
            rest = rest[:-8]
        assert not any(rest)
        assert len(rest) < 8
        found.append(
            Entry(
                offset,
                ns,
                body[:value],
                mine,
                frames.unpack(more) if more else {},
                codec,
                count,
                seen,
            )
        )
        at += len(whole)
    return found
