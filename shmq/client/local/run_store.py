"""Which messages the runs of a durable queue have that are leased in a name: a table on disk.

The tags in the slots say it, too (shmq/core/queue/holder.h), but shared memory may be lost. A queue
that is then recovered from its files has the same messages, but no tags. The table keeps the two
newest epochs of each name: the newest one may have to be leased again, and the one before may have
been settled without a record in its journal.
"""

from __future__ import annotations

import zlib
from typing import Final

from shmq.client.local.table import LocalTable, TableCollection
from shmq.errors import NoSuchTable
from shmq.host.namespace.namespace import Namespace

_TABLE: Final = "shmq.runs"

#: How long an entry is kept that no other one replaces, in seconds: 30 days.
_KEPT: Final = 30 * 86400.0


class RunStore:
    """The runs of one queue, by name and epoch. Close it."""

    def __init__(self, namespace: Namespace, identity: int) -> None:
        self._tables = TableCollection(namespace)
        self._identity = identity
        self._table: LocalTable | None = None

    def save(self, name: str, epoch: int, sequences: bytes) -> None:
        """Keep a run: it is on disk when this returns. Raises ShmqError."""
        if self._table is None:
            wanted = {"durability": "disk", "max_bytes": None}
            self._table = self._tables.make(_TABLE, wanted, wanted, False)
        entry = {"epoch": epoch, "count": len(sequences) // 8, "taken": _pack(sequences)}
        self._table.set(self._make_key(name, epoch), entry, ttl=_KEPT)

    def load(self, name: str) -> dict[int, bytes]:
        """The sequence numbers of the kept runs, by epoch, the older one first."""
        table = self._open_table()
        if table is None:
            return {}
        found = table.get_many([self._make_key(name, epoch) for epoch in range(2)])
        entries = sorted(found.values(), key=lambda entry: int(entry["epoch"]))
        return {
            entry["epoch"]: _unpack_numbers(entry["taken"], entry["count"]) for entry in entries
        }

    def remove(self, name: str) -> None:
        """Forget the runs of the name."""
        table = self._open_table()
        if table is not None:
            table.delete(*(self._make_key(name, epoch) for epoch in range(2)))

    def close(self) -> None:
        """Close the table."""
        if self._table is not None:
            self._table.close()

    def _open_table(self) -> LocalTable | None:
        """The table, if it was ever made."""
        if self._table is None:
            try:
                self._table = self._tables.open(_TABLE)
            except NoSuchTable:
                return None
        return self._table

    def _make_key(self, name: str, epoch: int) -> str:
        return f"{self._identity:016x}.{epoch % 2}.{name}"


def _pack(sequences: bytes) -> bytes:
    """The numbers, byte 0 of all first: most bytes are those of the number before."""
    return zlib.compress(b"".join(sequences[byte::8] for byte in range(8)), 1)


def _unpack_numbers(packed: bytes, count: int) -> bytes:
    planes = zlib.decompressobj().decompress(packed, 8 * count + 1)
    if len(planes) != 8 * count:
        raise ValueError(f"the table {_TABLE!r} has {len(planes)} bytes for {count} numbers")
    sequences = bytearray(8 * count)
    for byte in range(8):
        sequences[byte::8] = planes[byte * count : (byte + 1) * count]
    return bytes(sequences)
