"""One table's SQLite database: its connection, its locks, and its errors as those of shmq.

What SQLite asks of its users (https://sqlite.org/howtocorrupt.html), and how it is done here:

- **No connection lives through a fork**: SQLite would take the parent's locks for the child's.
  Before a fork every connection of the process is closed; each handle reopens its own.
- **No descriptor of a database is opened and closed beside a connection**: that would release the
  record locks that SQLite has. Files are looked at by name.
- **Checkpoints and commits of several processes do not meet**: before 3.51.3 SQLite loses pages if
  a checkpoint begins while another connection restarts the log
  (https://sqlite.org/wal.html#walresetbug). So a writer has the table's own lock, an flock(2) on a
  file of its own, which also says who holds it. Readers do not take it.
- **No two databases have the same path**, not even one after the other: the name has an identity.
  A handle of a deleted database can do nothing to the next one's log.

The kernel releases all of these locks at a process's death. What it had not committed is ignored
by the next reader.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import sqlite3
import stat
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

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
    no_descriptor,
)
from shmq.fork_safe import new_lock
from shmq.host.namespace.shm_files import is_own, refuse_outside
from shmq.lazy_imports import hold_at_fork
from shmq.native import _clock as time
from shmq.native._core import reserve_standard
from shmq.native.descriptors import open_file
from shmq.native.directories import is_shared
from shmq.native.lock_holder import locker_of, take_file_lock

#: What a file's header says: "shmT", and the version of the schema.
APPLICATION_ID: Final = 0x73686D54
VERSION: Final = 1

#: The endings of the files beside a database: SQLite's, and the lock of its writers.
LOCK: Final = ".lock"
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


@contextlib.contextmanager
def _without_forks(durability: TableDurability, name: str) -> Iterator[None]:
    """Use SQLite in the block, alone among the threads that use tables of this kind.

    No thread forks in the meantime: its child would inherit SQLite's own mutexes as they are held,
    and wait for them forever. Raises LockTimeout.
    """
    lock = _locks[durability]
    if not lock.acquire(timeout=_PATIENCE):
        raise LockTimeout(
            f"another thread of this process has used a table for more than {_PATIENCE:g} s, so "
            f"table {name!r} cannot be used: try again",
            os.getpid(),
        )
    try:
        yield
    finally:
        lock.release()


def connected(path: Path, mode: str = "rw") -> sqlite3.Connection:
    """A connection to an existing file, which makes no transactions of its own.

    Needs the process's lock, for as long as the connection is open.
    """
    reserve_standard()
    return sqlite3.connect(
        f"{path.as_uri()}?mode={mode}",
        uri=True,
        timeout=_PATIENCE,
        isolation_level=None,
        check_same_thread=False,
    )


def initialize(path: Path, name: str, durability: TableDurability, max_bytes: int | None) -> None:
    """Make an empty file of a directory of this user's own the table ``name``.

    Raises sqlite3.Error and LockTimeout.
    """
    with _without_forks(durability, name), contextlib.closing(connected(path)) as connection:
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
    for ending in ("", *AUXILIARY):
        Path(f"{path}{ending}").unlink(missing_ok=True)


class Database:
    """A table's database, which is opened when it is used. Threads may share it."""

    def __init__(self, name: str, path: Path, durability: TableDurability) -> None:
        self.name = name
        self.path = path
        self._file = str(path)  # once, not for each call
        self.durability = durability
        self.closed = False
        #: How many times it was opened: numbers of one connection mean nothing to another.
        self.opened = 0
        #: The most bytes of the database, as of the last time it was opened.
        self.max_bytes: int | None = None
        self._connection: sqlite3.Connection | None = None
        self._writers = new_lock()
        self._lock_file = -1
        #: The thread that uses the connection now; 0: none.
        self._user = 0
        _open.add(self)

    # ---- the sections ----

    @contextlib.contextmanager
    def using(self) -> Iterator[sqlite3.Connection]:
        """The connection, for this thread alone, and SQLite's errors as those of shmq."""
        with _without_forks(self.durability, self.name):
            self._reject_reentry()
            self._user = threading.get_ident()
            try:
                yield self._ready()
            except sqlite3.Error as error:
                raise self._make_refusal(error) from error
            finally:
                self._leave()

    def _reject_reentry(self) -> None:
        if self._user == threading.get_ident():
            raise ShmqError(
                f"table {self.name!r} is in use by this very thread: a signal handler or a "
                f"destructor must not use it"
            )

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, for reads that all see the table as it is at one moment."""
        with self.using() as connection:
            connection.execute("BEGIN")
            yield connection
            connection.execute("COMMIT")

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The connection, within a transaction that is committed at the end of the block.

        An error in the block undoes it all. Raises LockTimeout, NoSpace and TableDeleted.
        """
        if not self._writers.acquire(timeout=_PATIENCE):
            raise LockTimeout(
                f"another thread of this process has written to table {self.name!r} for more than "
                f"{_PATIENCE:g} s: try again",
                os.getpid(),
            )
        try:
            self._reject_reentry()
            with self._locked(), self.using() as connection:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
        finally:
            self._writers.release()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the table's writers. Raises LockTimeout."""
        try:
            self._take_lock()
            yield
        finally:
            if self._lock_file >= 0:
                fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    def _take_lock(self) -> None:
        if self._lock_file < 0:
            self.check_there()
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            try:
                self._lock_file = open_file(f"{self.path}{LOCK}", flags)
            except OSError as error:
                raise self._make_no_file(error) from error
        take_file_lock(self._try_lock, f"table {self.name!r}", lambda: locker_of(self._lock_file))

    def _try_lock(self) -> bool:
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    # ---- the connection ----

    def check_there(self) -> None:
        """Raises TableDeleted if the table was deleted, and ShmqError if the handle is closed."""
        if self.closed:
            raise ShmqError(f"this handle of table {self.name!r} is closed: attach to it again")
        try:
            os.stat(self._file)
        except (FileNotFoundError, NotADirectoryError):
            raise TableDeleted(f"table {self.name!r} was deleted") from None

    def _ready(self) -> sqlite3.Connection:
        self.check_there()
        if self._connection is None:
            check_private(self.path)
            self._connection = self._connect()
            self.opened += 1
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        """A connection, prepared.

        SQLite creates the files beside a database before it sets their modes. Where the file system
        has no ACLs, they are closed to the other users of a group for an instant.
        """
        end = time.monotonic() + (_MODES_WITHIN if is_shared(os.fspath(self.path.parent)) else 0.0)
        while True:
            connection = connected(self.path)
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

    def _leave(self) -> None:
        """End the use, and undo what an error or a signal has left open."""
        self._user = 0
        connection = self._connection
        if connection is not None and connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                connection.rollback()

    def close(self) -> None:
        """Close the connection, once no thread uses it. May be called again."""
        self.closed = True
        with self._writers:
            with _locks[self.durability]:
                self.disconnect()
            self._close_lock_file()

    def _close_lock_file(self) -> None:
        file, self._lock_file = self._lock_file, -1
        if file >= 0:
            os.close(file)

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
        self._close_lock_file()  # a lock on it stays: the parent has the same open file

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, TypeError):  # the interpreter may be ending
            lock = _locks[self.durability]
            if lock.acquire(blocking=False):  # a destructor may run within any other lock
                self.disconnect()
                lock.release()
            self._close_lock_file()

    # ---- errors ----

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
                f"table {self.name!r} was locked for more than {_PATIENCE:g} s by another process "
                f"that opens, closes or repairs it: try again"
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
