"""Handmade records of a stream, in the format of a partition's ring."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from shmq.disk.persistence.stream_journal import Commit
from shmq.disk.storage.file_header import StreamIdentity
from shmq.disk.storage.stream_segment import Block
from shmq.native import _core, _file

IDENTITY = StreamIdentity("s", 7, 0x1122334455667788, {"partitions": 1})
#: The time from one record's append to the next, in ns.
TICK = 1000
_HEAD = struct.Struct("<BBBBIQqIIII")


def entry(
    offset: int,
    value: bytes,
    *,
    count: int = 1,
    time: int | None = None,
    compression: int = 0,
    raw: int = 0,
) -> bytes:
    """An entry with ``count`` offsets."""
    head = _HEAD.pack(
        10, 0, 0, compression, count, offset, offset * TICK if time is None else time, 0, 0,
        len(value), raw,
    )  # fmt: skip
    payload = (head + value).ljust(-(-(len(head) + len(value)) // 8) * 8, b"\0")
    words = struct.pack("<I", len(payload) // 8)
    crc = _core.crc32c(payload, _core.crc32c(words, IDENTITY.salt))
    return words + struct.pack("<I", crc) + payload


def value_of(offset: int, size: int = 100) -> bytes:
    """The value of the record at that offset."""
    return (b"%d." % offset * size)[:size]


def commit(first: int, count: int, size: int = 100, *, cut: int | None = None) -> Commit:
    """``count`` records from ``first`` on; with ``cut`` in two pieces, the first of that many."""
    made = [entry(offset, value_of(offset, size)) for offset in range(first, first + count)]
    parts = [made] if cut is None else [made[:cut], made[cut:]]
    pieces = [memoryview(b"".join(part)) for part in parts]
    return Commit(pieces, first, first + count)


def read(block: Block, salts: tuple[int, int]) -> Iterator[tuple[int, bytes]]:
    """The offsets and values in a block, with checksums verified."""
    at = 0
    while True:
        how, at, _, _, _ = _file.walk(block.data, at, salts, stop_offset=0)
        if how != "stop":
            assert how == "end"
            return
        yield _offset_and_value(block.data, at)
        at += _size(block.data, at)


def read_values(data: memoryview) -> Iterator[tuple[int, bytes]]:
    """The offsets and values in a block, without verifying checksums."""
    at = 0
    while at < len(data):
        if data[at + 8] == 10:
            yield _offset_and_value(data, at)
        at += _size(data, at)


def _offset_and_value(data: memoryview, at: int) -> tuple[int, bytes]:
    offset, size = struct.unpack_from("<Q16xI", data, at + 16)
    return offset, bytes(data[at + 48 : at + 48 + size])


def _size(data: memoryview, at: int) -> int:
    return 8 + 8 * int(struct.unpack_from("<I", data, at)[0])
