"""Rows of a table that this process has used, while no process has changed the table."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, NamedTuple

from shmq.model.table.entry import Stored

#: The most bytes of the rows of a handle, and of one of them.
_BYTES: Final = 1 << 20
_LARGEST: Final = 16 << 10
#: What a row takes beside its value, in bytes: about the size of its objects.
_BESIDE: Final = 320


class Row(NamedTuple):
    """A row: its value, and its deadline in ns on the table's clock; None: it never expires."""

    stored: Stored
    deadline: int | None


class Unknown(enum.Enum):
    """The type of `UNKNOWN`."""

    ROW = enum.auto()


#: In the place of a row: it is to be read in the database. None: the key has no row.
UNKNOWN: Final = Unknown.ROW

Found = Row | Unknown | None


class RecentRows:
    """Rows as they were at a count of the table's changes, see `TableLock.count_changes`.

    They are found without a lock. What changes them needs the process's lock.
    """

    def __init__(self) -> None:
        self._at: tuple[int, dict[str, Row | None]] = 0, {}
        self._bytes = 0

    def find(self, changes: int, key: str) -> Found:
        """The row, if ``changes`` is the count at which it was read."""
        at, rows = self._at
        return rows.get(key, UNKNOWN) if changes and at == changes else UNKNOWN

    def add(self, changes: int, key: str, row: Row | None) -> None:
        """Add a row that was read after ``changes`` was counted."""
        if not changes:
            return
        if self._at[0] != changes:
            self._at, self._bytes = (changes, {}), 0
        self._set(self._at[1], key, row)

    def advance(self, before: int, after: int, changed: Mapping[str, Found]) -> None:
        """Keep the rows over a change of this process, which has changed these at most."""
        at, rows = self._at
        if at != before or not before:
            rows, self._bytes = {}, 0
        for key, row in changed.items():
            self._set(rows, key, row)
        self._at = after, rows

    def _set(self, rows: dict[str, Row | None], key: str, row: Found) -> None:
        former = rows.pop(key, UNKNOWN)  # the row is the last to make room for others
        if former is not UNKNOWN:
            self._bytes -= _BESIDE if former is None else _BESIDE + len(former[0].raw)
        if row is UNKNOWN:
            return
        size = _BESIDE if row is None else _BESIDE + len(row[0].raw)
        if size <= _LARGEST:
            rows[key] = row
            self._bytes += size
            if self._bytes > _BYTES:
                self._make_room(rows)

    def _make_room(self, rows: dict[str, Row | None]) -> None:
        while self._bytes > _BYTES:
            row = rows.pop(next(iter(rows)))
            self._bytes -= _BESIDE if row is None else _BESIDE + len(row.stored.raw)
