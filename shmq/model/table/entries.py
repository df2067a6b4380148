"""The operations on the entries of a table's database; each is one transaction.

Deadlines are in ns: on CLOCK_MONOTONIC in memory, which is the same for all processes until the
machine's end and never jumps, and on the wall clock on disk, which outlives that.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeGuard, TypeVar

from shmq.errors import NoSpace
from shmq.model.codec.codecs import CODECS
from shmq.model.table.database import Change, Database
from shmq.model.table.entry import (
    USUAL_TERMS,
    Stored,
    Terms,
    check_sum,
    encoded_integer,
    integer_of,
)
from shmq.model.table.recent_rows import UNKNOWN, Row
from shmq.native import _clock as time

_T = TypeVar("_T")

#: How many expired entries a write removes, and how many free pages it gives back.
_SWEPT: Final = 16
_FREED: Final = 64
#: A table keeps so many free pages for the next writes.
_SPARE: Final = 256
#: If fewer entries had expired, writes look for more after so many ns.
_SWEPT_AGAIN: Final = 10_000_000
#: Later than every deadline.
_NEVER: Final = (1 << 63) - 1
#: A write of an unknown number of statements.
_MANY: Final = 2

_LIVE: Final = "(deadline IS NULL OR deadline > :now)"
_FIND: Final = "SELECT codec, value, deadline FROM entry WHERE key = ?"
_LENGTH: Final = "SELECT length(value) FROM entry WHERE key = ?"
_SET: Final = (
    "INSERT INTO entry (key, codec, value, deadline) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (key) DO UPDATE SET codec = excluded.codec, value = excluded.value,"
    " deadline = excluded.deadline"
)
_ADD: Final = f"{_SET} WHERE deadline <= ?"
_RENEW: Final = "UPDATE entry SET value = ? WHERE key = ?"
_NEXT: Final = "SELECT min(deadline) FROM entry WHERE deadline IS NOT NULL"
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

    def without_waiting(self) -> Entries:
        """The same, but a call that finds a lock held raises LockTimeout at once."""
        database = self._database
        return Entries(Database(database.name, database.path, database.durability, patience=0.0))

    # ---- reading ----

    def find(self, keys: Sequence[str], most: int | None = None) -> dict[str, Stored]:
        """Those keys that are there, at one moment; it ends behind ``most`` bytes of values."""
        if len(keys) == 1:
            stored = self.look(keys[0])
            return {} if stored is None else {keys[0]: stored}
        found: dict[str, Stored] = {}
        size = 0
        with self._database.reading() as connection:
            now = self._clock()
            for key in keys:
                row = self._read_row(connection, key)
                if _is_live(row, now):
                    found[key] = row.stored
                    size += len(row.stored.raw)
                    if most is not None and size >= most:
                        break
        return found

    def look(self, key: str) -> Stored | None:
        """One key's value."""
        database = self._database
        row = database.recent.find(database.count_changes(), key)
        if row is UNKNOWN:
            with database.using() as connection:
                changes = database.watch_changes()
                row = self._read_row(connection, key)
                database.recent.add(changes, key, row)
        if row is None:
            return None
        stored, deadline = row
        return stored if deadline is None or deadline > self._clock() else None

    def measure(self, keys: Iterable[str]) -> int:
        """The bytes of the values of these keys that are to be read for a `find`."""
        database = self._database
        changes = database.count_changes()
        keys = [key for key in keys if database.recent.find(changes, key) is UNKNOWN]
        if not keys:
            return 0
        with database.using() as connection:
            found = (connection.execute(_LENGTH, (key.encode(),)).fetchall() for key in keys)
            return sum(rows[0][0] for rows in found if rows)

    def find_news(self, keys: Sequence[str], state: object) -> tuple[dict[str, Stored], object]:
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

    def _read_row(self, connection: sqlite3.Connection, key: str) -> Row | None:
        """The row of the key, which may have expired."""
        rows = connection.execute(_FIND, (key.encode(),)).fetchall()
        if not rows:
            return None
        codec, value, deadline = rows[0]
        if not isinstance(codec, int) or not 0 <= codec < len(CODECS):
            raise self._database.damaged_row()
        if not isinstance(value, bytes) or not isinstance(deadline, int | None):
            raise self._database.damaged_row()
        return Row(Stored(codec, value), deadline)

    # ---- writing ----

    def store(self, entries: Mapping[str, Stored], ttl: float | None) -> None:
        """Set them all."""

        def deed(change: Change, now: int) -> None:
            deadline = _compute_deadline(ttl, now)
            for key, stored in entries.items():
                _set(change, key, Row(stored, deadline))

        self._write(deed, len(entries))

    def add(self, key: str, stored: Stored, ttl: float | None) -> bool:
        """Set it if it is not there; return whether it was set."""

        def deed(change: Change, now: int) -> bool:
            deadline = _compute_deadline(ttl, now)
            if deadline is not None:
                change.expect(deadline)
            change.rows[key] = UNKNOWN
            given = (key.encode(), stored.codec, stored.raw, deadline, now)
            return change.connection.execute(_ADD, given).rowcount > 0

        return self._write(deed)

    def delete(self, keys: Iterable[str]) -> int:
        """Delete them; return how many were there."""

        def deed(change: Change, now: int) -> int:
            found = 0
            for key in keys:
                given = {"key": key.encode(), "now": now}
                found += change.connection.execute(_DELETE, given).rowcount
                change.rows[key] = UNKNOWN
            _shrink(change.connection)
            return found

        return self._write(deed, _MANY)

    def clear(self, most: int | None) -> int:
        """Delete all, or ``most``, those that expire first; return how many were there."""

        def deed(change: Change, now: int) -> int:
            change.is_known = False
            connection = change.connection
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

        return self._write(deed, _MANY)

    def expire(self, key: str, ttl: float | None) -> bool:
        """Give it another ttl; return whether it is there."""

        def deed(change: Change, now: int) -> bool:
            deadline = _compute_deadline(ttl, now)
            if deadline is not None:
                change.expect(deadline)
            change.rows[key] = UNKNOWN
            given = {"key": key.encode(), "now": now, "deadline": deadline}
            return change.connection.execute(_EXPIRE, given).rowcount > 0

        return self._write(deed)

    def increment(self, key: str, by: int, ttl: float | None, terms: Terms) -> int | None:
        """Implements `Table.increment`. Raises InvalidOption for values that are not integers."""

        def deed(change: Change, now: int) -> int | None:
            row = self._find_row(change, key, now)
            if row is None and not terms.create:
                return None
            before, deadline = (0, None) if row is None else (integer_of(key, row[0]), row[1])
            value = check_sum(key, before + by)
            if terms is not USUAL_TERMS and not terms.allow(
                value + self._sum(change, terms.sum_with, now)
            ):
                return None
            stored = encoded_integer(value)
            if row is None or (ttl is not None and terms.renew):
                deadline = deadline if ttl is None else _compute_deadline(ttl, now)
                _set(change, key, Row(stored, deadline))
            else:
                change.connection.execute(_RENEW, (stored.raw, key.encode()))
                change.rows[key] = Row(stored, deadline)
            return value

        return self._write(deed)

    def _sum(self, change: Change, keys: Iterable[str], now: int) -> int:
        rows = ((key, self._find_row(change, key, now)) for key in keys)
        return sum(integer_of(key, row[0]) for key, row in rows if row is not None)

    def _find_row(self, change: Change, key: str, now: int) -> Row | None:
        """The row, unless it has expired."""
        row = self._database.recent.find(change.before, key)
        if row is UNKNOWN:
            row = self._read_row(change.connection, key)
        return row if _is_live(row, now) else None

    def _write(self, deed: Callable[[Change, int], _T], statements: int = 1) -> _T:
        """Carry it out, and remove some expired entries in the same transaction.

        ``statements``: how many of it change something, at most. If there is not enough room for
        it, all of the expired entries are removed first.
        """

        def write(change: Change) -> _T:
            now = self._clock()  # within the lock, so that it never goes back
            is_due = now >= change.expiry
            if is_due or statements > 1:
                change.connection.execute("BEGIN IMMEDIATE")
            change.is_known = not (is_due and self._sweep(change, now))
            return deed(change, now)

        try:
            return self._database.change(write)
        except NoSpace:
            if not self._database.patience or not self._remove_expired():
                raise
        return self._database.change(write)

    def _sweep(self, change: Change, now: int) -> bool:
        """Remove some of the expired entries; return whether there were any."""
        removed = change.connection.execute(_SWEEP, {"now": now}).rowcount
        if removed == _SWEPT:
            _shrink(change.connection)
        else:
            ((deadline,),) = change.connection.execute(_NEXT).fetchall()
            change.expiry = _NEVER if deadline is None else max(deadline, now + _SWEPT_AGAIN)
        return removed > 0

    def _remove_expired(self) -> int:
        """Remove what has expired by now, in small portions; returns how many entries."""
        now, removed = self._clock(), 0

        def remove(change: Change) -> int:
            return change.connection.execute(_SWEEP, {"now": now}).rowcount

        while (portion := self._database.change(remove)) == _SWEPT:
            removed += portion
        return removed + portion


def _compute_deadline(ttl: float | None, now: int) -> int | None:
    return None if ttl is None else now + round(ttl * 1e9)


def _is_live(row: Row | None, now: int) -> TypeGuard[Row]:
    return row is not None and (row.deadline is None or row.deadline > now)


def _set(change: Change, key: str, row: Row) -> None:
    stored, deadline = row
    if deadline is not None:
        change.expect(deadline)
    change.connection.execute(_SET, (key.encode(), stored.codec, stored.raw, deadline))
    change.rows[key] = row


def _shrink(connection: sqlite3.Connection) -> None:
    """Give some free pages back, if there are many."""
    (free,) = connection.execute("PRAGMA freelist_count").fetchall()[0]
    for _ in range(_FREED if free > _SPARE else 0):
        # Each step of the statement frees a page, and sqlite3 makes one step only.
        connection.execute("PRAGMA incremental_vacuum(1)").fetchall()
