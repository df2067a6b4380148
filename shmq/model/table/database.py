"""One table's SQLite database: its connection, its locks, and its errors as those of shmq.

What SQLite asks of its users (https://sqlite.org/howtocorrupt.html), and how it is done here:

- **No connection lives through a fork**: SQLite would take the parent's locks for the child's.
  Before a fork every connection of the process is closed; each handle reopens its own.
- **No descriptor of a database is opened and closed beside a connection**: that would release the
  record locks that SQLite has. Files are looked at by name.
- **Checkpoints and commits of several processes do not meet**: before 3.51.3 SQLite loses pages if
  a checkpoint begins while another connection restarts the log
  (https://sqlite.org/wal.html#walresetbug). So a writer has the table's own lock, an flock(2) on a
  file of its own, which also says who holds it. Readers do not take it; what they have read is
  valid until the next writer counts a change there, see `TableLock`.
- **No two databases have the same path**, not even one after the other: the name has an identity.
  A handle of a deleted database can do nothing to the next one's log.

The kernel releases all of these locks at a process's death. What it had not committed is ignored
by the next reader.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import sqlite3
import stat
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

from shmq.api.table import TableDurability
from shmq.errors import (
    DamagedFile,
    DamagedSegment,
    FileError,
    ForeignSegment,
    IncompatibleFile,
    IncompatibleSegment,
    LockTimeout,
    NoSpace,
    SegmentError,
    ShmqError,
    TableDeleted,
    closed_handle,
    no_descriptor,
)
from shmq.fork_safe import new_lock
from shmq.host.namespace.shm_files import is_own, refuse_outside
from shmq.lazy_imports import hold_at_fork
from shmq.model.table.lock_file import LOCK, mark_deleted, open_lock_file
from shmq.model.table.recent_rows import Found, RecentRows
from shmq.native import _clock as time
from shmq.native._core import reserve_standard
from shmq.native._table import TableLock
from shmq.native.descriptors import open_file
from shmq.native.directories import is_shared
from shmq.native.lock_holder import lock_timeout, locker_of, take_file_lock

_T = TypeVar("_T")

#: What a file's header says: "shmT", and the version of the schema.
APPLICATION_ID: Final = 0x73686D54
VERSION: Final = 1

#: The endings of the files beside a database: SQLite's, and the lock of its writers.
AUXILIARY: Final = ("-wal", "-shm", "-journal", LOCK)

#: How long SQLite waits for its own locks, and a thread for the process's lock, in seconds.
_PATIENCE: Final = 5.0
#: How long another user's process may take to set the modes of files, and how often one looks.
_MODES_WITHIN: Final = 1.0
_MODES_AGAIN: Final = 0.002
#: A log of so many pages is copied into the database.
_LOG_PAGES: Final = {"memory": 256, "disk": 1000}
#: A log of so many bytes is cut off to that length once it was copied into the database.
_LOG_BYTES: Final = 4 << 20
#: With less space than this, in bytes, an I/O error is for lack of space.
_LITTLE: Final = 1 << 20

_SCHEMA: Final = (
    "CREATE TABLE option (name TEXT PRIMARY KEY, value INTEGER)",
    (
        "CREATE TABLE entry (number INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE,"
        " codec INTEGER NOT NULL, value BLOB NOT NULL, deadline INTEGER)"
    ),
    "CREATE INDEX entry_deadline ON entry (deadline) WHERE deadline IS NOT NULL",
)

_BUSY: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_IO: Final = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}
_DAMAGED: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT}
_ERRORS: Final = {
    "memory": (ForeignSegment, SegmentError, IncompatibleSegment),
    "disk": (FileError, FileError, IncompatibleFile),
}

_KINDS: Final[tuple[TableDurability, ...]] = ("memory", "disk")

#: A thread uses SQLite with the lock of its kind of table: a slow disk delays no table in memory.
#: Holding both, a fork meets no thread within SQLite, which releases the GIL and holds mutexes.
_locks: dict[str, threading.RLock] = {}
_open: weakref.WeakSet[Database] = weakref.WeakSet()


def _acquire(
    durability: TableDurability, name: str, patience: float = _PATIENCE
) -> threading.RLock:
    """Keep other threads out of tables of this kind, until the lock that is returned is released.

    No thread forks in the meantime: its child would inherit SQLite's own mutexes as they are held,
    and wait for them forever. Raises LockTimeout.
    """
    lock = _locks[durability]
    if not lock.acquire(False) and not lock.acquire(timeout=patience):  # the former is quicker
        raise LockTimeout(
            f"another thread of this process has used a table for more than {patience:g} s, so "
            f"table {name!r} cannot be used: try again",
            os.getpid(),
        )
    return lock


def connected(path: Path, mode: str = "rw", patience: float = _PATIENCE) -> sqlite3.Connection:
    """A connection to an existing file, which makes no transactions of its own.

    Needs the process's lock, for as long as the connection is open.
    """
    reserve_standard()
    return sqlite3.connect(
        f"{path.as_uri()}?mode={mode}",
        uri=True,
        timeout=patience,
        isolation_level=None,
        check_same_thread=False,
    )


def initialize(path: Path, name: str, durability: TableDurability, max_bytes: int | None) -> None:
    """Make an empty file of a directory of this user's own the table ``name``.

    Raises sqlite3.Error and LockTimeout.
    """
    lock = _acquire(durability, name)
    with contextlib.ExitStack() as stack:
        stack.callback(lock.release)
        connection = stack.enter_context(contextlib.closing(connected(path)))
        for pragma in (
            "auto_vacuum = INCREMENTAL",
            f"application_id = {APPLICATION_ID}",
            f"user_version = {VERSION}",
        ):
            connection.execute(f"PRAGMA {pragma}")
        connection.execute("BEGIN")
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.execute("INSERT INTO option VALUES ('max_bytes', ?)", (max_bytes,))
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = WAL").fetchall()


def check_private(path: Path, gid: int | None = None, *, directory: bool = False) -> None:
    """Raises ForeignSegment unless it is this user's, and closed to others.

    It may be of group ``gid``; a file, of the group whose users share its directory, which was
    checked. It is not opened: see above. What is in a directory that others cannot enter stays
    unchanged. Raises FileNotFoundError.
    """
    status = os.lstat(path)
    is_kind = stat.S_ISDIR if directory else stat.S_ISREG
    if not is_kind(status.st_mode):
        what = "directory" if directory else "regular file"
        raise ForeignSegment(f"{path} is not a {what}: remove it")
    if is_own(status):
        return
    if not directory and is_shared(os.fspath(path.parent)):
        gid = path.parent.stat().st_gid
    if gid is not None:
        refuse_outside(status, path, gid)
    elif status.st_uid != os.geteuid():
        raise ForeignSegment(
            f"{path} belongs to user {status.st_uid}, not to {os.geteuid()}: use a namespace or a "
            f"data directory of your own"
        )
    else:
        raise ForeignSegment(
            f"{path} has mode {stat.S_IMODE(status.st_mode):04o}, so others may touch it: set it "
            f"to {0o700 if directory else 0o600:04o} if it is yours"
        )


def remove_files(path: Path) -> None:
    """Remove a database, and then the files beside it."""
    with contextlib.suppress(OSError):
        mark_deleted(str(path))  # first: a process that dies in the meantime leaves a slower table
    for ending in ("", *AUXILIARY):
        Path(f"{path}{ending}").unlink(missing_ok=True)


class Change:
    """A change of a table, by the process that has its lock."""

    __slots__ = ("before", "connection", "expiry", "is_known", "lock", "rows")

    def __init__(self, connection: sqlite3.Connection, lock: TableLock) -> None:
        self.connection = connection
        self.lock = lock
        #: What `TableLock.count_changes` was.
        self.before = lock.start_change()
        #: `TableLock.expiry`, once the change is done.
        self.expiry = lock.expiry
        #: The rows that it may have changed, if those are all.
        self.rows: dict[str, Found] = {}
        self.is_known = False

    def expect(self, deadline: int) -> None:
        """Note the deadline of an entry, before the entry is stored."""
        if deadline < self.expiry:
            self.expiry = deadline
            self.lock.expiry = min(deadline, self.lock.expiry)


class _Use:
    """The use of a connection by one thread, as a context manager: see `Database.using`."""

    __slots__ = ("_database", "_is_there", "_lock")

    def __init__(self, database: Database, *, is_there: bool = False) -> None:
        self._database = database
        #: Whether the table is known not to be deleted.
        self._is_there = is_there

    def __enter__(self) -> sqlite3.Connection:
        database = self._database
        self._lock = _acquire(database.durability, database.name, database.patience)
        try:
            database.reject_reentry()
            try:
                return database.enter(is_there=self._is_there)
            except BaseException as error:
                database.leave(error)
                raise
        except BaseException:
            self._lock.release()
            raise

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self._database.leave(error)
        finally:
            self._lock.release()


class Database:
    """A table's database, which is opened when it is used. Threads may share it."""

    def __init__(
        self, name: str, path: Path, durability: TableDurability, patience: float = _PATIENCE
    ) -> None:
        """``patience``: how long a call waits for each lock, in seconds.

        With 0, one that finds a lock held raises LockTimeout at once, and has changed nothing.
        """
        self.name = name
        #: See above.
        self.patience = patience
        self.path = path
        self._file = str(path)  # once, not for each call
        self.durability: TableDurability = durability
        self.closed = False
        #: How many times it was opened: numbers of one connection mean nothing to another.
        self.opened = 0
        #: The most bytes of the database, as of the last time it was opened.
        self.max_bytes: int | None = None
        #: Rows that need not be read again, at `count_changes`.
        self.recent = RecentRows()
        self._connection: sqlite3.Connection | None = None
        self._writers = new_lock()
        self._lock_file: TableLock | None = None
        #: The thread that uses the connection now; 0: none.
        self._user = 0
        #: Whether the thread that has the lock of `_writers` is within a change.
        self._is_writing = False
        _open.add(self)

    # ---- the sections ----

    def using(self) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        """The connection, for this thread alone, and SQLite's errors as those of shmq."""
        return _Use(self)

    def reject_reentry(self) -> None:
        """Raises ShmqError if this very thread uses the connection."""
        if self._user == threading.get_ident():
            raise self._make_reentry_error()

    def enter(self, *, is_there: bool) -> sqlite3.Connection:
        """Start the use of the connection. Needs the process's lock."""
        self._user = threading.get_ident()
        lock = self._lock_file
        if not is_there and (lock is None or lock.is_doubtful()):
            self.check_there()
        return self._ready()

    def leave(self, error: BaseException | None) -> None:
        """End the use; undo what an error or a signal has left open. Raises SQLite's, as shmq's."""
        self._user = 0
        self._undo()
        if isinstance(error, sqlite3.Error):
            raise self._make_refusal(error) from error

    def _undo(self) -> None:
        connection = self._connection
        if connection is not None and connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                connection.rollback()

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, for reads that all see the table as it is at one moment."""
        with self.using() as connection:
            connection.execute("BEGIN")
            yield connection
            connection.execute("COMMIT")

    def change(self, deed: Callable[[Change], _T]) -> _T:
        """Call ``deed``, which changes the table, alone among all processes; return its result.

        Each statement is a transaction of its own, unless the deed begins one, which is committed
        at its end; an error undoes it. Raises LockTimeout, NoSpace and TableDeleted.
        """
        if not self._writers.acquire(False) and not self._writers.acquire(timeout=self.patience):
            raise LockTimeout(
                f"another thread of this process has written to table {self.name!r} for more than "
                f"{self.patience:g} s: try again",
                os.getpid(),
            )
        try:
            if self._is_writing:
                raise self._make_reentry_error()
            self._is_writing = True
            lock = None
            try:
                lock = self._take_lock()
                with _Use(self, is_there=True) as connection:
                    return self._carry_out(deed, connection, lock)
            finally:
                self._is_writing = False
                lock = lock or self._lock_file
                if lock is not None:
                    lock.unlock()
        finally:
            self._writers.release()

    def _carry_out(
        self, deed: Callable[[Change], _T], connection: sqlite3.Connection, lock: TableLock
    ) -> _T:
        change = Change(connection, lock)
        try:
            result = deed(change)
            if connection.in_transaction:
                connection.execute("COMMIT")
        except BaseException:
            self._undo()  # before others rely on what they read
            lock.end_change()
            raise
        lock.expiry = max(
            lock.expiry, change.expiry
        )  # not before: what was removed would be back after a death
        after = lock.end_change()
        if change.is_known:
            self.recent.advance(change.before, after, change.rows)
        return result

    def _take_lock(self) -> TableLock:
        """Lock out the table's other writers. Raises LockTimeout, TableDeleted, NoSpace."""
        while True:
            lock = self._lock_file or self._open_lock_file()
            if not lock.try_lock():
                self._wait_for(lock)
            if not lock.is_doubtful():
                return lock
            self.check_there()
            if not lock.is_removed():
                return lock
            self._lock_file = None  # others lock the file that has its name now

    def _wait_for(self, lock: TableLock) -> None:
        what = f"table {self.name!r}"
        if not self.patience:
            raise lock_timeout(what, 0, 0.0)
        take_file_lock(lock.try_lock, what, lambda: locker_of(lock.fd))

    def _open_lock_file(self) -> TableLock:
        self.check_there()
        try:
            lock = open_lock_file(self._file)
        except OSError as error:
            raise self._make_no_file(error) from error
        self.check_there()  # again: a process that deletes it marks only a file that is there
        self._lock_file = lock
        return lock

    def watch_changes(self) -> int:
        """`count_changes`, for what is read next; the lock file is opened if it is not."""
        lock = self._lock_file
        if lock is not None and lock.is_removed():
            lock = self._lock_file = None
        if lock is None:
            with contextlib.suppress(OSError):  # of a full disk: what is read is not kept
                lock = open_lock_file(self._file)
            self.check_there()  # see `_open_lock_file`
            self._lock_file = lock
        return self.count_changes()

    def count_changes(self) -> int:
        """A number that stays the same until the next write by any process; 0: unknown."""
        lock = self._lock_file
        return 0 if lock is None else lock.count_changes()

    # ---- the connection ----

    def check_there(self) -> None:
        """Raises TableDeleted if the table was deleted, and ShmqError if the handle is closed."""
        if self.closed:
            raise closed_handle("table", self.name)
        with self._noticing_deletion():
            os.stat(self._file)

    @contextlib.contextmanager
    def _noticing_deletion(self) -> Iterator[None]:
        """Raises TableDeleted if the block finds no file of the table."""
        try:
            yield
        except (FileNotFoundError, NotADirectoryError):
            raise TableDeleted(f"table {self.name!r} was deleted") from None

    def _ready(self) -> sqlite3.Connection:
        if self._connection is None:
            with self._noticing_deletion():
                check_private(self.path)
                self._connection = self._connect()
            self.opened += 1
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        """A connection, prepared.

        SQLite creates the files beside a database before it sets their modes. Where the file system
        has no ACLs, they are closed to the other users of a group for an instant.
        """
        waits = self.patience and is_shared(os.fspath(self.path.parent))
        end = time.monotonic() + (_MODES_WITHIN if waits else 0.0)
        while True:
            connection = connected(self.path, patience=self.patience)
            try:
                self._prepare(connection)
            except sqlite3.OperationalError as error:
                connection.close()
                if error.sqlite_errorcode & 0xFF not in _IO or time.monotonic() >= end:
                    raise
                time.sleep(_MODES_AGAIN)
            except BaseException:
                connection.close()
                raise
            else:
                return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Check what the file is, and set what is kept by the connection alone."""
        incompatible = _ERRORS[self.durability][2]
        if _read_pragma(connection, "application_id") != APPLICATION_ID:
            raise self._make_damaged_error("it is not a table of shmq")
        if (version := _read_pragma(connection, "user_version")) != VERSION:
            raise incompatible(
                f"{self.path} is of version {version}, and this shmq reads version {VERSION}: use "
                f"the shmq that wrote it, or delete table {self.name!r}"
            )
        if _read_pragma(connection, "journal_mode") != "wal":
            raise self._make_damaged_error("its journal mode is not WAL")
        for pragma in (
            f"synchronous = {'FULL' if self.durability == 'disk' else 'OFF'}",
            f"wal_autocheckpoint = {_LOG_PAGES[self.durability]}",
            f"journal_size_limit = {_LOG_BYTES}",
            "mmap_size = 0",  # so that a file that was cut off is an error, not SIGBUS
            "temp_store = MEMORY",
            "trusted_schema = OFF",
            "cell_size_check = ON",
        ):
            connection.execute(f"PRAGMA {pragma}").fetchall()
        found = connection.execute("SELECT value FROM option WHERE name = 'max_bytes'").fetchall()
        self.max_bytes = found[0][0] if found and isinstance(found[0][0], int) else None
        if self.max_bytes is not None:
            pages = max(1, self.max_bytes // int(_read_pragma(connection, "page_size")))
            connection.execute(f"PRAGMA max_page_count = {pages}").fetchall()

    def close(self) -> None:
        """Close the connection, once no thread uses it. May be called again."""
        self.closed = True
        with self._writers, _locks[self.durability]:
            self.disconnect()
            self._lock_file = None

    def disconnect(self) -> None:
        """Close the connection until it is needed again. Needs the process's lock."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        with contextlib.suppress(sqlite3.Error):
            connection.close()
        if not self.path.exists():  # then nobody else removes what SQLite may have made since
            remove_files(self.path)

    def forked(self) -> None:
        """Renew what the child of a fork must not share with its parent."""
        self._user = 0
        self._is_writing = False
        lock, self._lock_file = self._lock_file, None
        if lock is not None:
            lock.abandon()  # a lock on it stays: the parent has the same open file

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, TypeError):  # the interpreter may be ending
            lock = _locks[self.durability]
            if lock.acquire(blocking=False):  # a destructor may run within any other lock
                self.disconnect()
                lock.release()

    # ---- errors ----

    def _make_reentry_error(self) -> ShmqError:
        return ShmqError(
            f"table {self.name!r} is in use by this very thread: a signal handler or a destructor "
            f"must not use it"
        )

    def _make_refusal(self, error: sqlite3.Error) -> Exception:
        """SQLite's error as one of shmq."""
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        cause = self._make_unusable_error(
            f"{error} ({getattr(error, 'sqlite_errorname', 'no code')})"
        )
        if not self.path.exists():
            cause = TableDeleted(f"table {self.name!r} was deleted")
        elif code in _BUSY:
            cause = LockTimeout(
                f"table {self.name!r} was locked for more than {self.patience:g} s by another "
                f"process that opens, closes or repairs it: try again"
            )
        elif code in _DAMAGED:
            cause = self._make_damaged_error(str(error))
        elif code == sqlite3.SQLITE_FULL or (code in _IO and self._get_free_bytes() < _LITTLE):
            cause = self._make_no_space()
        elif code == sqlite3.SQLITE_CANTOPEN and _is_out_of_descriptors():
            return no_descriptor(OSError(errno.EMFILE, "", str(self.path)))
        return cause

    def _make_no_file(self, error: OSError) -> Exception:
        if not self.path.exists():
            return TableDeleted(f"table {self.name!r} was deleted")
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            return self._make_no_space()
        return no_descriptor(error)

    def _make_no_space(self) -> NoSpace:
        left = self._get_free_bytes()
        if self.max_bytes is not None and left >= _LITTLE:
            return NoSpace(
                f"table {self.name!r} is full: it may take max_bytes={self.max_bytes}; delete "
                f"keys, give them a ttl, or make a table with more"
            )
        return NoSpace(
            f"there is not enough space for table {self.name!r}: {left} bytes are available in "
            f"{self.path.parent}; delete what is not needed, or give it more room"
        )

    def _get_free_bytes(self) -> int:
        """The bytes that are available where the file is."""
        space = os.statvfs(self.path.parent)
        return space.f_bavail * space.f_frsize

    def _make_damaged_error(self, what: str) -> ShmqError:
        remedy = f"delete table {self.name!r} (shmq table delete {self.name})"
        if self.durability == "disk":
            return DamagedFile(
                str(self.path), 0, f"{what}; {remedy}, and restore it from a backup (shmq restore)"
            )
        return DamagedSegment(f"{self.path} is damaged: {what}; {remedy}, its values are lost")

    def _make_unusable_error(self, what: str) -> ShmqError:
        kind = _ERRORS[self.durability][1]
        return kind(f"{self.path} of table {self.name!r} cannot be used: {what}")

    def damaged_row(self) -> ShmqError:
        """The error for a row with values that no table has."""
        return self._make_damaged_error("a row has values of a wrong type")


def _is_out_of_descriptors() -> bool:
    try:
        os.close(open_file(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return True
    return False


def _read_pragma(connection: sqlite3.Connection, name: str) -> Any:
    found = connection.execute(f"PRAGMA {name}").fetchall()
    return found[0][0] if found else None


# ---- forks ----


def _renew() -> None:
    for durability in _KINDS:
        _locks[durability] = threading.RLock()


def _hold_lock(durability: TableDurability, timeout: float) -> bool:
    """Keep all threads out of tables of this kind, and close their connections, unless timed out.

    Returns whether the lock was acquired.
    """
    if not _locks[durability].acquire(timeout=timeout):
        return False
    for database in list(_open):
        if database.durability == durability:
            database.disconnect()
    return True


def _release_lock(durability: TableDurability) -> None:
    _locks[durability].release()


def _renew_in_child() -> None:
    _renew()
    for database in list(_open):
        database.forked()


_renew()
for _durability in _KINDS:
    hold_at_fork(
        functools.partial(_hold_lock, _durability), functools.partial(_release_lock, _durability)
    )
os.register_at_fork(after_in_child=_renew_in_child)
