"""The records of a transaction as stream entries, and the partitions that they belong to."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

from shmq.native import _stream

__all__ = ["Entry", "by_partition", "entries_of", "later_partitions"]

#: The fields used of an entry's header: see stream/entry.h.
_ENTRY: Final = struct.Struct("<I28xIII4x")

#: The entry's bytes, the record's size, its key.
Entry = tuple[bytes, int, bytes | None]


def entries_of(block: bytes) -> Iterator[Entry]:
    """The entries of a block of records."""
    at = 0
    while at < len(block):
        words, key, headers, value = _ENTRY.unpack_from(block, at)
        end = at + 8 + 8 * words
        begin = at + _ENTRY.size + value
        is_keyed = block[at + 9] & _stream.ENTRY_KEYED
        found = block[begin : begin + key] if is_keyed else None
        yield block[at:end], key + headers + value, found
        at = end


def later_partitions(stream: Any, partition: int) -> list[range]:
    """The partitions that replaced this one, a range for each repartition."""
    begins = sorted({found.behind for found in stream.offsets() if found.behind > partition})
    return [
        range(begin, end)
        for begin, end in zip(begins, [*begins[1:], stream.partitions], strict=True)
    ]


def by_partition(
    entries: Iterable[tuple[int, Entry]], possible: range
) -> dict[int, list[tuple[int, Entry]]]:
    """The numbered entries by the partition of their keys; without a key, the first partition."""
    found: dict[int, list[tuple[int, Entry]]] = {}
    for number, entry in entries:
        key = entry[2]
        at = possible[0 if key is None else zlib.crc32(key) % len(possible)]
        found.setdefault(at, []).append((number, entry))
    return found
