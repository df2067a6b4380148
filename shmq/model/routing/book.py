"""The file of a namespace's exchanges, in /dev/shm, and this process's table made from it.

``exchanges.shmq@NAMESPACE`` exists as long as there is an exchange, and then until
the data directory has none either: the copy on disk counts only if this file is missing. It is
a header and the operations that make the table, in order:

    0   4   ``SHMX``
    4   4   the version, 1
    8   8   the end of the operations; stored last, after the bytes before it
   16   8   1: the file has been or is about to be replaced or removed
   64       for each operation: 4 bytes of length, 4 of CRC-32C, and a msgpack list

Integers are little-endian. A process that changes it holds the registry lock, writes behind the
end, and moves the end: if it dies before that, the bytes are ignored, and the next writer
overwrites them. A file of many operations that undid each other is replaced: the new file is
written, the old one is marked, and the new one renamed over it. A reader that finds the mark
opens the name again. Both words are mapped, so a reader needs two loads to know that its table
is current, and it reads only new operations.
"""

from __future__ import annotations

import contextlib
import dataclasses
import mmap
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgpack

from shmq import api
from shmq.disk.storage.paths import EXCHANGES
from shmq.errors import DamagedSegment, IncompatibleSegment, ShmqError
from shmq.fork_safe import new_lock
from shmq.host.namespace.namespace import Namespace
from shmq.host.namespace.shm_files import as_no_file, as_no_space, refuse_foreign
from shmq.model.routing.counters import Counters
from shmq.model.routing.table import Operation, Route, Table, operation_of
from shmq.native import _core
from shmq.native._core import reserve_standard
from shmq.native.descriptors import open_file

_MAGIC: Final = b"SHMX"
_VERSION: Final = 1
_HEAD: Final = struct.Struct("<4sIQQ")
_BEGIN: Final = 64
_RECORD: Final = struct.Struct("<II")
#: The positions of the mapped words, in words of 64 bits.
_END, _REPLACED = 1, 2

#: The longest operation, in bytes: 64 headers with values that a frame can carry.
_LONGEST: Final = 1 << 20

#: From so many operations on, a file whose operations mostly undid each other is rewritten.
_LEAST_TO_SHORTEN: Final = 1024

#: Returns whether the table needs the change; raises if the change is not allowed.
Check = Callable[[Table], bool]

_books: dict[str, Book] = {}


class Book:
    """The table of one namespace. One object a process: see `of`."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._path = namespace.exchanges_path
        self._counts_path = self._path.with_name(f"{self._path.name}@counts")
        self._lock = new_lock()
        self._table = Table()
        self._file: _File | None = None
        #: Opened again after each change of the table; None: nothing is counted.
        self._counters: Counters | None = None
        #: How many times this process has found it changed.
        self.changes = 0

    @classmethod
    def of(cls, namespace: Namespace) -> Book:
        """The book of the namespace; of its present memory, if the earlier one was removed."""
        book = _books.get(namespace.name) or _books.setdefault(namespace.name, cls(namespace))
        with book._lock:
            book._forget_removed()
        return book

    # ---- reading ----

    def route(self, name: str, key: str, headers: Mapping[str, Any]) -> Route:
        """See :meth:`Table.route`. Raises SegmentError, too."""
        with self._lock:
            return self._read_current().route(name, key, headers)

    @contextlib.contextmanager
    def table(self) -> Iterator[Table]:
        """The current table, for reading. Raises SegmentError."""
        with self._lock:
            yield self._read_current()

    def count(self, name: str, published: int, unrouted: int) -> None:
        """Count messages that were published to an exchange, if it is counted."""
        counters = self._counters
        if counters is None:  # another thread may have released the file
            with contextlib.suppress(ShmqError, OSError), self.table():
                counters = self._counters
        if counters is not None:
            counters.add(name, published, unrouted)

    def stats(self, name: str) -> api.ExchangeStats:
        """Return the counts of the exchange. Raises NoSuchExchange, SegmentError."""
        with self.table() as table:
            table.summary(name)
            return api.ExchangeStats() if self._counters is None else self._counters.read(name)

    def summaries(self) -> list[api.ExchangeSummary]:
        """Return all exchanges with their counts, sorted by name. Raises SegmentError."""
        with self.table() as table:
            found, counters = table.summaries(), self._counters
            if counters is None:
                return found
            return [
                dataclasses.replace(one, **dataclasses.asdict(counters.read(one.name)))
                for one in found
            ]

    def look(self) -> int:
        """Update the table, and return `changes`. Raises SegmentError."""
        with self._lock:
            self._read_current()
            return self.changes

    def operations(self) -> list[Operation] | None:
        """The operations that make the current table; None: no file. Raises SegmentError."""
        with self._lock:
            table = self._read_current()
            return None if self._file is None else list(table.operations())

    def _read_current(self) -> Table:
        file = self._file
        if file is None or file.replaced or file.end != file.read_to:
            self._catch_up()
        return self._table

    def _catch_up(self) -> None:
        """Read new operations; all of them if another file has the name."""
        file = self._file
        if file is None or (file.replaced and not file.has_name(self._path)):
            self._forget_file()
            self._file = file = _File.open(self._path)
        if file is None:
            return
        try:
            before = file.read_to
            file.read(self._table)
        except BaseException:
            self._forget_file()
            raise
        if file.read_to != before:
            self.changes += 1
            self._counters = Counters.open(self._counts_path)

    def _forget_removed(self) -> None:
        """Forget a file that was removed from /dev/shm by hand, as by a logout: nobody marks it."""
        if self._file is not None and not self._file.has_name(self._path):
            self._forget_file()

    def release(self) -> None:
        """Close the file; the next read opens it again."""
        with self._lock:
            self._forget_file()

    def _forget_file(self) -> None:
        file, self._file, self._table, self._counters = self._file, None, Table(), None
        if file is not None:
            file.close()
            self.changes += 1

    # ---- changing ----

    def change(self, operation: Operation, check: Check) -> bool:
        """Make the change if ``check(table)`` is true; return whether it was.

        Raises what ``check`` raises, NoSpace and SegmentError; then nothing has changed.
        """
        with self._namespace.locked(), self._lock:
            self._forget_removed()
            table = self._read_current()
            if not check(table):
                return False
            if operation[0] == "make":
                Counters.assign(self._counts_path, operation[1], table.has)
            if self._file is None or self._file.replaced:
                self._replace([*table.operations(), operation])
            else:
                self._file.append(operation)
            self._catch_up()
            self._shorten()
            return True

    def restore(self, operations: Iterable[Operation]) -> None:
        """Create the file with these, if there is none. Needs the registry lock. Raises NoSpace."""
        with self._lock:
            Counters.remove(self._counts_path)
            made = list(operations)
            for what, name, *_ in made:
                if what == "make":
                    Counters.assign(self._counts_path, name, lambda _: True)
            self._replace(made)
            self._catch_up()

    def forget(self, kind: str, name: str) -> None:
        """Remove the bindings to a target that was or will be deleted."""
        with self._namespace.locked():
            if self._path.exists():
                self.change(["forget", kind, name], lambda table: table.leads_to(kind, name))

    def tidy(self) -> None:
        """Remove files without exchanges, which a process that died has left."""
        with contextlib.suppress(ShmqError, OSError):
            if self._path.exists() or self._counts_path.exists():
                with self._namespace.locked(), self._lock:
                    self._read_current()
                    self._shorten()

    def _shorten(self) -> None:
        """Remove a file without exchanges; rewrite one whose operations mostly undid each other."""
        file, live = self._file, self._table.size
        if file is None:
            Counters.remove(self._counts_path)
            return
        if not live:
            if not self._namespace.drop_stored(EXCHANGES):
                return
            Counters.remove(self._counts_path)
            _core.mark()
            file.replaced = 1
            _core.mark()
            self._path.unlink(missing_ok=True)
            self._forget_file()
        elif file.operations > _LEAST_TO_SHORTEN + 2 * live:
            self._replace(self._table.operations())
            self._catch_up()

    def _replace(self, operations: Iterable[Operation]) -> None:
        """Replace the file with one that has these operations."""
        aside = self._path.with_name(f"{self._path.name}@new")
        _write_aside(aside, b"".join(map(_record, operations)))
        _core.mark()
        if self._file is not None:
            self._file.replaced = 1
        _core.mark()
        aside.replace(self._path)
        _core.mark()

    def after_fork(self) -> None:
        """Reset the child: another thread may have been changing the table at the fork."""
        self._forget_file()


class _File:
    """An open file, with its words mapped, and how far it was read."""

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd = fd
        reserve_standard()
        self._map = mmap.mmap(fd, _BEGIN)
        self._words = memoryview(self._map).cast("Q")
        #: The position up to which it was read, and the number of operations up to there.
        self.read_to = _BEGIN
        self.operations = 0

    @classmethod
    def open(cls, path: Path) -> _File | None:
        """The file of that name, if there is one. Raises SegmentError."""
        try:
            fd = open_file(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise as_no_file(error, path) from error
        try:
            refuse_foreign(fd, path)
            _check_head(path, os.pread(fd, _BEGIN, 0))
            return cls(path, fd)
        except BaseException:
            os.close(fd)
            raise

    @property
    def end(self) -> int:
        """The end of the operations."""
        return self._words[_END]

    @property
    def replaced(self) -> int:
        """Whether another file has its name, or is about to."""
        return self._words[_REPLACED]

    @replaced.setter
    def replaced(self, value: int) -> None:
        self._words[_REPLACED] = value

    def has_name(self, path: Path) -> bool:
        """Whether it still has its name: a process may have marked it and died."""
        try:
            return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(self._fd))
        except FileNotFoundError:
            return False

    def read(self, table: Table) -> None:
        """Apply the new operations. Raises DamagedSegment."""
        end = self.end
        if not self.read_to <= end <= os.fstat(self._fd).st_size:
            raise _make_damaged_error(self._path, 8, f"it says that it ends at byte {end}")
        data = os.pread(self._fd, end - self.read_to, self.read_to)
        at = 0
        while at < len(data):
            operation, after = _read_operation(self._path, data, at, self.read_to, table)
            table.apply(operation)
            self.operations += 1
            at = after
        self.read_to = end

    def append(self, operation: Operation) -> None:
        """Write one more operation. Needs the registry lock. Raises NoSpace."""
        record = _record(operation)
        end = self.end
        try:
            _write_at(self._fd, record, end)
        except OSError as error:
            raise as_no_space(error, len(record)) from error
        _core.mark()
        self._words[_END] = end + len(record)
        _core.mark()

    def close(self) -> None:
        """Close it. May be called again."""
        self._words.release()
        self._map.close()
        fd, self._fd = self._fd, -1  # before it is closed: another thread may fork now
        if fd >= 0:
            os.close(fd)


def _check_head(path: Path, raw: bytes) -> None:
    if len(raw) < _BEGIN or raw[:4] != _MAGIC:
        raise _make_damaged_error(path, 0, "it is not a table of exchanges")
    version = _HEAD.unpack_from(raw)[1]
    if version != _VERSION:
        raise IncompatibleSegment(
            f"{path} is of version {version}, and this shmq reads version {_VERSION}: use the "
            f"shmq that wrote it, or remove it and recreate the exchanges"
        )


def _record(operation: Operation) -> bytes:
    packed: bytes = msgpack.packb(operation)
    return _RECORD.pack(len(packed), _core.crc32c(packed)) + packed


def _read_operation(
    path: Path, data: bytes, at: int, base: int, table: Table
) -> tuple[Operation, int]:
    """The operation at ``at``, checked, and the position of the next one."""
    where = base + at
    if len(data) - at < _RECORD.size:
        raise _make_damaged_error(path, where, "an operation is cut off")
    size, crc = _RECORD.unpack_from(data, at)
    packed = data[at + _RECORD.size : at + _RECORD.size + size]
    if size > _LONGEST or len(packed) < size or _core.crc32c(packed) != crc:
        raise _make_damaged_error(path, where, "an operation is not what was written")
    try:
        found = msgpack.unpackb(packed, strict_map_key=False)
        return operation_of(found, table), at + _RECORD.size + size
    except (ValueError, TypeError, LookupError, AttributeError, ShmqError) as error:
        raise _make_damaged_error(path, where, f"an operation makes no sense: {error}") from error


def _make_damaged_error(path: Path, where: int, what: str) -> DamagedSegment:
    return DamagedSegment(
        f"{path} is damaged at byte {where}: {what}; remove it, and make the exchanges and their "
        f"bindings again"
    )


def _write_aside(path: Path, records: bytes) -> None:
    """Write a new file, which is renamed later. Raises NoSpace."""
    path.unlink(missing_ok=True)  # left by a process that died
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        fd = open_file(path, flags)
    except OSError as error:
        raise as_no_file(error, path) from error
    head = _HEAD.pack(_MAGIC, _VERSION, _BEGIN + len(records), 0).ljust(_BEGIN, b"\0")
    try:
        _write_at(fd, head + records, 0)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise as_no_space(error, len(head) + len(records)) from error
    finally:
        os.close(fd)


def _write_at(fd: int, data: bytes, where: int) -> None:
    left = memoryview(data)
    while left:
        written = os.pwrite(fd, left, where)
        left, where = left[written:], where + written


def _reset_after_fork() -> None:
    for book in _books.values():
        book.after_fork()


os.register_at_fork(after_in_child=_reset_after_fork)
