"""The file of a committing process: ``txn.shmq@NAMESPACE@PROCESS`` in /dev/shm.

The file exists, locked with flock, from before the first step of a commit until after the last. One
byte of it says whether the transaction is committed. Before that byte is set, the file holds
everything that is to be done, so that a process that finds the file of a dead process can do it.

A process that is about to take something from another process (a dead one's leases, a silent one's
partitions) also holds that process's file in the meantime, and creates it if there is none. So a
committing process keeps what it has until all of its transaction has been applied.

The file of a transaction that involves a journal has a second name,
``txn.shmq@NAMESPACE@PROCESS@NUMBER``, from before the commit on. It is for the persistence writer,
which writes the transaction to disk before any of its parts, and removes the name once all of it
has been applied.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from shmq.errors import DamagedSegment
from shmq.host.namespace.folder import file_prefix, list_folder
from shmq.host.namespace.namespace import Namespace
from shmq.host.namespace.shm_files import as_no_file, as_no_space, refuse_foreign
from shmq.model.codec.codecs import pack_properties, unpack_properties
from shmq.native import _core
from shmq.native.descriptors import open_file
from shmq.native.lock_holder import locker_of, take_file_lock

#: magic and version, bytes of the record, their CRC-32; then the state, one byte.
_HEAD: Final = struct.Struct("<QQI")
_MAGIC: Final = 0x4E585453_00000001  # "STXN", version 1
_STATE_AT: Final = 24
_RECORD_AT: Final = 64
_COMMITTED: Final = b"\1"
_HAPPENED: Final = b"\2"

#: A copy with this bit in its origin's sequence number belongs to a transaction, and its origin is
#: a process, not a queue: no queue has that many messages.
TRANSACTION: Final = 1 << 63

_open: set[int] = set()


def _make_prefix(namespace: Namespace) -> str:
    return f"{file_prefix(namespace.name, 'txn.')}@"


def ledger_path(namespace: Namespace, process: int) -> Path:
    """The path of the process's file while it commits."""
    return namespace.folder / f"{_make_prefix(namespace)}{process}"


def owners(namespace: Namespace) -> list[int]:
    """The processes that have a file."""
    prefix = _make_prefix(namespace)
    numbers = (
        entry[len(prefix) :] for entry in list_folder(namespace.name) if entry.startswith(prefix)
    )
    return [int(number) for number in numbers if number.isascii() and number.isdigit()]


def noted(namespace: Namespace) -> dict[tuple[int, int], Path]:
    """The files for the persistence writer, by process and number."""
    prefix = _make_prefix(namespace)
    found = {}
    for entry in list_folder(namespace.name):
        if entry.startswith(prefix):
            process, _, number = entry[len(prefix) :].partition("@")
            if process.isdecimal() and number.isdecimal():
                found[int(process), int(number)] = namespace.folder / entry
    return found


def read_transactions(path: Path) -> tuple[dict[str, Any] | None, bool]:
    """The transaction if it is committed, and whether all of it has been applied.

    Raises FileNotFoundError, SegmentError.
    """
    fd = open_file(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        refuse_foreign(fd, path)
        state = os.pread(fd, 1, _STATE_AT)
        if state not in {_COMMITTED, _HAPPENED}:
            return None, False
        return TransactionLog(fd, path).read(), state == _HAPPENED
    finally:
        os.close(fd)


class TransactionLog:
    """A process's file, held by this thread."""

    def __init__(self, fd: int, path: Path) -> None:
        self._fd = fd
        self._path = path

    @property
    def is_committed(self) -> bool:
        """Whether it has a committed transaction that is not known to have been applied."""
        return os.pread(self._fd, 1, _STATE_AT) == _COMMITTED

    def read(self) -> dict[str, Any]:
        """The committed transaction. Raises DamagedSegment."""
        head = os.pread(self._fd, _HEAD.size, 0)
        magic, size, checksum = _HEAD.unpack(head) if len(head) == _HEAD.size else (0, 0, 0)
        there = os.fstat(self._fd).st_size - _RECORD_AT
        if magic == _MAGIC and size <= there:
            record = os.pread(self._fd, size, _RECORD_AT)
            if zlib.crc32(record) == checksum:
                return unpack_properties(record)
        raise DamagedSegment(
            f"{self._path} is damaged: what its process has committed is unknown; remove it"
        )

    def write(self, transaction: dict[str, Any]) -> None:
        """Write what is to be done. Raises NoSpace; memory is reserved before it is touched."""
        record = pack_properties(transaction)
        try:
            os.posix_fallocate(self._fd, 0, _RECORD_AT + len(record))
            _core.mark()
            _write(self._fd, record, _RECORD_AT)
            _core.mark()
            head = _HEAD.pack(_MAGIC, len(record), zlib.crc32(record))
            os.pwrite(self._fd, head, 0)
            _core.mark()
        except OSError as error:
            raise as_no_space(error, len(record)) from error

    def commit(self) -> None:
        """The commit point: from here on, all of it will be applied."""
        os.pwrite(self._fd, _COMMITTED, _STATE_AT)
        _core.mark()

    def finish(self) -> None:
        """Mark the transaction as applied."""
        os.pwrite(self._fd, _HAPPENED, _STATE_AT)
        _core.mark()

    @contextlib.contextmanager
    def noted(self, number: int) -> Iterator[None]:
        """Make the file visible to the writer, if the block commits it."""
        second = self._path.with_name(f"{self._path.name}@{number}")
        try:
            os.link(self._path, second)
        except OSError as error:
            raise as_no_file(error, second) from error
        _core.mark()
        try:
            yield
        finally:
            if not self.is_committed:
                second.unlink(missing_ok=True)

    def forget(self, number: int) -> None:
        """Remove the name for the writer, because no writer exists."""
        self._path.with_name(f"{self._path.name}@{number}").unlink(missing_ok=True)


def _write(fd: int, what: bytes, where: int) -> None:
    view = memoryview(what)
    while view:
        written = os.pwrite(fd, view, where)
        view, where = view[written:], where + written


@contextlib.contextmanager
def hold(
    namespace: Namespace, process: int, *, make: bool, until: float | None = None
) -> Iterator[TransactionLog | None]:
    """Hold the file of a process. It is removed at the end, unless work is left in it.

    None: another thread or process holds it; or it does not exist, and ``make`` is false. With
    ``until``, a time.monotonic() value, the call waits for it. Raises NoSpace, SegmentError,
    LockTimeout.
    """
    path = ledger_path(namespace, process)
    fd = _take(path, make, until)
    if fd < 0:
        yield None
        return
    _open.add(fd)
    transaction_log = TransactionLog(fd, path)
    try:
        yield transaction_log
    finally:
        if not transaction_log.is_committed:
            path.unlink(missing_ok=True)
            _core.mark()
        _open.discard(fd)
        fcntl.flock(fd, fcntl.LOCK_UN)  # a child that was just forked has the same open file
        os.close(fd)


def _take(path: Path, make: bool, until: float | None) -> int:
    """The locked file that now has the name; -1: none."""
    how = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if make else 0)
    while True:
        try:
            fd = open_file(path, how)
        except FileNotFoundError:
            return -1
        except OSError as error:
            raise as_no_file(error, path) from error
        _core.mark()
        try:
            refuse_foreign(fd, path)
            if until is None and not _try_lock(fd):
                os.close(fd)
                return -1
            if until is not None:
                _lock_until(fd, path, until)
            if _is_current(fd, path):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # its holder has removed it


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock_until(fd: int, path: Path, until: float) -> None:
    take_file_lock(lambda: _try_lock(fd), f"the file {path}", lambda: locker_of(fd), until)


def _is_current(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(fd))
    except FileNotFoundError:
        return False


def _close_in_child() -> None:
    """Close the descriptor in a child: it would keep the lock of a dead parent."""
    for fd in _open:
        os.close(fd)
    _open.clear()


os.register_at_fork(after_in_child=_close_in_child)
