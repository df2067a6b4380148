"""The operations on the entries of a table's database; each is one transaction.

Deadlines are in ns: on CLOCK_MONOTONIC in memory, which is the same for all processes until the
machine's end and never jumps, and on the wall clock on disk, which outlives that.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from shmq.errors import NoSpace
from shmq.model.codec.codecs import CODECS
from shmq.model.table.database import Database
from shmq.model.table.entry import Bounds, Stored, check_sum, encoded, integer_of
from shmq.native import _clock as time

_T = TypeVar("_T")

#: How many expired entries a write removes, and how many free pages it gives back.
_SWEPT: Final = 16
_FREED: Final = 64
#: A table keeps so many free pages for the next writes.
_SPARE: Final = 256

_LIVE: Final = "(deadline IS NULL OR deadline > :now)"
_FIND: Final = f"SELECT codec, value, deadline FROM entry WHERE key = :key AND {_LIVE}"
_SET: Final = (
    "INSERT INTO entry (key, codec, value, deadline) VALUES (:key, :codec, :value, :deadline)"
    " ON CONFLICT (key) DO UPDATE SET codec = excluded.codec, value = excluded.value,"
    " deadline = excluded.deadline"
)
_EXPIRE: Final = f"UPDATE entry SET deadline = :deadline WHERE key = :key AND {_LIVE}"
_DELETE: Final = f"DELETE FROM entry WHERE key = :key AND {_LIVE}"
_SWEEP: Final = (
    "DELETE FROM entry WHERE number IN"
    f" (SELECT number FROM entry WHERE deadline <= :now LIMIT {_SWEPT})"
)
_FIRST: Final = (
    "DELETE FROM entry WHERE number IN"
    " (SELECT number FROM entry WHERE deadline > :now ORDER BY deadline LIMIT :most)"
)
_LASTING: Final = (
    "DELETE FROM entry WHERE number IN"
    " (SELECT number FROM entry WHERE deadline IS NULL ORDER BY number LIMIT :most)"
)
_KEYS: Final = (
    f"SELECT key FROM entry WHERE key > :after AND key >= :first AND key < :end AND {_LIVE}"
    " ORDER BY key LIMIT :limit"
)
_COUNT: Final = f"SELECT count(*) FROM entry WHERE {_LIVE}"

#: Behind every key in UTF-8, which has no byte 0xFF.
_BEHIND: Final = b"\xff"


class Entries:
    """The entries of one database. Raises what `Database` raises."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._clock: Callable[[], int] = (
            time.monotonic_ns if database.durability == "memory" else time.time_ns
        )

    # ---- reading ----

    def find(self, keys: Iterable[str], most: int | None = None) -> dict[str, Stored]:
        """Those keys that are there, at one moment; it ends behind ``most`` bytes of values."""
        found: dict[str, Stored] = {}
        size = 0
        with self._database.reading() as connection:
            now = self._clock()
            for key in keys:
                row = self._find_row(connection, key, now)
                if row is not None:
                    found[key] = row[0]
                    size += len(row[0].raw)
                    if most is not None and size >= most:
                        break
        return found

    def look(self, key: str) -> Stored | None:
        """One key's value."""
        with self._database.using() as connection:
            row = self._find_row(connection, key, self._clock())
            return None if row is None else row[0]

    def find_news(self, keys: Iterable[str], state: object) -> tuple[dict[str, Stored], object]:
        """Those keys that are there, and the state of the table; none if it still is ``state``."""
        now = self._stamp()  # before the lookup: what is written since is found by the next one
        return ({} if now == state else self.find(keys)), now

    def _stamp(self) -> tuple[int, int, int]:
        """Numbers that differ after every write, by this handle or another."""
        with self._database.using() as connection:
            (version,) = connection.execute("PRAGMA data_version").fetchall()[0]
            return self._database.opened, version, connection.total_changes

    def keys(self, prefix: str, limit: int, after: str) -> list[str]:
        """The keys, sorted: see `Table.keys`."""
        first = prefix.encode()
        asked = {"after": after.encode(), "first": first, "end": first + _BEHIND, "limit": limit}
        with self._database.using() as connection:
            rows = connection.execute(_KEYS, {**asked, "now": self._clock()}).fetchall()
        try:
            return [key.decode() for (key,) in rows]
        except (AttributeError, UnicodeDecodeError) as error:
            raise self._database.damaged_row() from error

    def count(self) -> int:
        """How many keys are there."""
        with self._database.using() as connection:
            return int(connection.execute(_COUNT, {"now": self._clock()}).fetchall()[0][0])

    def _find_row(
        self, connection: sqlite3.Connection, key: str, now: int
    ) -> tuple[Stored, int | None] | None:
        rows = connection.execute(_FIND, {"key": key.encode(), "now": now}).fetchall()
        if not rows:
            return None
        codec, value, deadline = rows[0]
        if not isinstance(codec, int) or not 0 <= codec < len(CODECS):
            raise self._database.damaged_row()
        if not isinstance(value, bytes) or not isinstance(deadline, int | None):
            raise self._database.damaged_row()
        return Stored(codec, value), deadline

    # ---- writing ----

    def store(self, entries: Mapping[str, Stored], ttl: float | None) -> None:
        """Set them all."""

        def deed(connection: sqlite3.Connection, now: int) -> None:
            for key, stored in entries.items():
                _set(connection, key, stored, _compute_deadline(ttl, now))

        self._write(deed)

    def add(self, key: str, stored: Stored, ttl: float | None) -> bool:
        """Set it if it is not there; return whether it was set."""

        def deed(connection: sqlite3.Connection, now: int) -> bool:
            if self._find_row(connection, key, now) is not None:
                return False
            _set(connection, key, stored, _compute_deadline(ttl, now))
            return True

        return self._write(deed)

    def delete(self, keys: Iterable[str]) -> int:
        """Delete them; return how many were there."""

        def deed(connection: sqlite3.Connection, now: int) -> int:
            given = ({"key": key.encode(), "now": now} for key in keys)
            found = sum(connection.execute(_DELETE, each).rowcount for each in given)
            _shrink(connection)
            return found

        return self._write(deed)

    def clear(self, most: int | None) -> int:
        """Delete all, or ``most``, those that expire first; return how many were there."""

        def deed(connection: sqlite3.Connection, now: int) -> int:
            if most is None:
                connection.execute("DELETE FROM entry WHERE deadline <= ?", (now,))
                found = connection.execute("DELETE FROM entry").rowcount
            else:
                found = 0
                for statement in (_FIRST, _LASTING):
                    found += connection.execute(
                        statement, {"now": now, "most": most - found}
                    ).rowcount
            _shrink(connection)
            return found

        return self._write(deed)

    def expire(self, key: str, ttl: float | None) -> bool:
        """Give it another ttl; return whether it is there."""

        def deed(connection: sqlite3.Connection, now: int) -> bool:
            given = {"key": key.encode(), "now": now, "deadline": _compute_deadline(ttl, now)}
            return connection.execute(_EXPIRE, given).rowcount > 0

        return self._write(deed)

    def increment(self, key: str, by: int, ttl: float | None, bounds: Bounds) -> int | None:
        """Implements `Table.increment`. Raises InvalidOption for values that are not integers."""

        def deed(connection: sqlite3.Connection, now: int) -> int | None:
            row = self._find_row(connection, key, now)
            before, deadline = (0, None) if row is None else (integer_of(key, row[0]), row[1])
            value = check_sum(key, before + by)
            if not bounds.allow(value + self._sum(connection, bounds.sum_with, now)):
                return None
            deadline = deadline if ttl is None else _compute_deadline(ttl, now)
            _set(connection, key, encoded(value), deadline)
            return value

        return self._write(deed)

    def _sum(self, connection: sqlite3.Connection, keys: Iterable[str], now: int) -> int:
        rows = ((key, self._find_row(connection, key, now)) for key in keys)
        return sum(integer_of(key, row[0]) for key, row in rows if row is not None)

    def _write(self, deed: Callable[[sqlite3.Connection, int], _T]) -> _T:
        """Carry it out in a transaction, which also removes some expired entries.

        If there is not enough room for it, all of the expired entries are removed first.
        """
        try:
            return self._write_once(deed)
        except NoSpace:
            if not self._remove_expired():
                raise
        return self._write_once(deed)

    def _write_once(self, deed: Callable[[sqlite3.Connection, int], _T]) -> _T:
        with self._database.writing() as connection:
            now = self._clock()  # within the lock, so that it never goes back
            if connection.execute(_SWEEP, {"now": now}).rowcount == _SWEPT:
                _shrink(connection)
            return deed(connection, now)

    def _remove_expired(self) -> int:
        """Remove what has expired by now, in small portions; returns how many entries."""
        now, removed = self._clock(), 0
        while True:
            with self._database.writing() as connection:
                portion = connection.execute(_SWEEP, {"now": now}).rowcount
            removed += portion
            if portion < _SWEPT:
                return removed


def _compute_deadline(ttl: float | None, now: int) -> int | None:
    return None if ttl is None else now + round(ttl * 1e9)


def _set(connection: sqlite3.Connection, key: str, stored: Stored, deadline: int | None) -> None:
    given = {"key": key.encode(), "codec": stored.codec, "value": stored.raw}
    connection.execute(_SET, {**given, "deadline": deadline})


def _shrink(connection: sqlite3.Connection) -> None:
    """Give some free pages back, if there are many."""
    (free,) = connection.execute("PRAGMA freelist_count").fetchall()[0]
    for _ in range(_FREED if free > _SPARE else 0):
        # Each step of the statement frees a page, and sqlite3 makes one step only.
        connection.execute("PRAGMA incremental_vacuum(1)").fetchall()
