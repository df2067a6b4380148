"""The namespace: its queues, and the liveness of its processes.

Everything is in /dev/shm, owned by the user and closed to others:

``shmq@NAMESPACE``
    the namespace's file: the next process number, from byte 8 on the data directory if
    there is one, at byte 4112 its first process number and the time namespace of its
    processes, at byte 4128 a mark of the newest transaction for the writer, and the byte
    ranges that its processes lock. Byte 0 is the registry lock, held while queues are
    created and removed. Byte N is locked by the process of number N for as long as it
    lives: the kernel releases an fcntl record lock at death, a fork does not inherit it,
    and it is right across PID namespaces, which a PID is not. Numbers are never reused,
    also not by a later file of the name, and are more than 2**60 + 5: a byte below 2**60 is
    locked by the process that has claimed a queue, byte 2**60 by the writer of the durable
    queues, the next one by a process that starts or replaces that writer, and those after
    it by the guardians, the processes that watch for the deaths of others.
``shmq@NAMESPACE@QUEUE``
    a queue's segment, of the kind that multiprocessing.shared_memory creates.
``sem.shmq@NAMESPACE@ID.not_empty``, ``….not_full``
    its semaphores.
``names.shmq@NAMESPACE``
    the names of its queues, streams and groups, see `shmq.host.namespace.name_book`.
``schemas.shmq@NAMESPACE``
    the schemas of its queues and streams, see `shmq.model.schema.book`.
``stream.shmq@NAMESPACE@STREAM``, ``log.shmq@NAMESPACE@STREAM@PARTITION``
    a stream's segments: see `shmq.host.namespace.streams`.
``exchanges.shmq@NAMESPACE``
    the exchanges and their bindings, see `shmq.model.routing.book`.
``tables.shmq@NAMESPACE``
    the directory of the tables, see `shmq.model.table.files`.

The lock order is registry first, queue second, never reversed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shmq.api.names import SHM, check_name, listed
from shmq.api.options import QueueOptions
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.erase import erase_queue
from shmq.disk.storage.inventory import is_written, writer_of
from shmq.errors import (
    ForeignSegment,
    LockTimeout,
    NoSpace,
    NoSuchQueue,
    SegmentError,
    ShmqError,
    no_descriptor,
)
from shmq.fork_safe import new_lock
from shmq.host.namespace.name_book import NameBook
from shmq.host.namespace.semaphores import make_semaphores, remove_semaphores
from shmq.native import _clock as time
from shmq.native import _core
from shmq.native.descriptors import open_file
from shmq.native.lock_holder import take_file_lock

if TYPE_CHECKING:
    from shmq.native import _stream

_REGISTRY_BYTE: Final = 0
#: Process numbers start at the time in ns, which has passed this long ago.
_CLAIMS: Final = (1 << 60) - 1
_WRITER_BYTE: Final = 1 << 60
_STARTER_BYTE: Final = _WRITER_BYTE + 1
_GUARDIAN_BYTES: Final = range(_STARTER_BYTE + 1, _STARTER_BYTE + 5)
#: How often `starting` tries to lock its byte, in seconds.
_LOOK: Final = 0.02
#: The data directory in the namespace's file: the length of the path, its CRC-32, the path.
_DATA_DIR: Final = struct.Struct("<II")
_DATA_DIR_AT: Final = 8
#: Behind the longest possible path: the first process number, and the inode number of the
#: time namespace, which shifts the clock of every deadline; 0: not known.
_PLACE: Final = struct.Struct("<QQ")
_PLACE_AT: Final = 4112
#: Random bytes, other ones for each transaction that the writer has to look for.
_ANNOUNCED: Final = 8
_ANNOUNCED_AT: Final = 4128
FLOCK: Final = struct.Struct("@hhqqi4x")  # struct flock, 64-bit Linux: fcntl(2)

_known: dict[str, Namespace] = {}


class AlreadyWritten(ShmqError):
    """Another process writes the namespace's durable queues."""

    def __init__(self, told: str, pid: int, directory: Path | None) -> None:
        super().__init__(told)
        #: The PID of that process; 0 for one of another PID namespace.
        self.pid = pid
        #: The directory it writes to; None: that cannot be read.
        self.directory = directory


class Namespace:
    """The queues and the processes of one namespace. One object a process: see `of`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._path = SHM / f"shmq@{name}"
        #: The file of the namespace's schemas, which exists if there are any.
        self.schemas_path = SHM / f"schemas.shmq@{name}"
        #: The file of the namespace's exchanges, which exists if there are any.
        self.exchanges_path = SHM / f"exchanges.shmq@{name}"
        #: The directory of the tables in memory, which exists if there are any.
        self.tables_path = SHM / f"tables.shmq@{name}"
        self._names = NameBook(name, refuse_foreign)
        self._fd = -1
        #: Descriptors of files that were removed by hand: their locks say that this process lives.
        self._kept: list[int] = []
        self._number = 0
        #: This process, for the locks of queues and streams.
        self.process = _core.Process(self.process_number)
        self._lock = new_lock()
        #: How many nested sections hold the lock.
        self._held = 0
        #: How many of them hold the registry lock.
        self._depth = 0
        #: Whether they have made the namespace's file, which nothing needs yet.
        self._made_file = False
        self._deferred: deque[Callable[[], None]] = deque()
        self._claims: set[int] = set()
        #: Whether this process writes the durable queues.
        self._is_writer = False
        #: The byte that this process has locked as a guardian; 0: none.
        self._guardian_byte = 0

    @classmethod
    def of(cls, name: str) -> Namespace:
        """The namespace ``name``. Raises :class:`~shmq.InvalidName`.

        There is one object for each in a process, because closing any descriptor of a
        file releases all the record locks that the process has on it.
        """
        check_name(name, "namespace")
        # Atomic, without a lock: a destructor may call this while its thread does anything.
        return _known.get(name) or _known.setdefault(name, cls(name))

    # ---- mutual exclusion of this process's threads ----

    @contextlib.contextmanager
    def _section(self) -> Iterator[None]:
        """Hold the lock. May be nested."""
        try:
            with self._lock:
                self._held += 1
                try:
                    yield
                finally:
                    self._held -= 1
        finally:
            self._run_deferred()

    def run_when_unlocked(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` now, or after the section that some thread, maybe this one, is in.

        It is for destructors: the garbage collector runs them anywhere, also within a section of
        their own thread. The callback must not raise.
        """
        self._deferred.append(callback)
        self._run_deferred()

    def _run_deferred(self) -> None:
        """Run the deferred calls. A thread in a section does this again after the section."""
        while self._deferred and self._lock.acquire(blocking=False):
            try:
                if self._held:
                    return
                with contextlib.suppress(IndexError):
                    self._deferred.popleft()()
            finally:
                self._lock.release()

    # ---- processes ----

    def process_number(self, used: _core.Segment | _stream.Control | None = None) -> int:
        """This process's number; the first call registers the process.

        It is asked for to use a queue or stream, ``used``: once that was deleted, a process without
        a number gets 0. The namespace's file may be gone; registering would make it again.
        """
        if self._number and self._is_current():
            return self._number
        with self.locked():
            if not self._number and (used is None or not used.deleted):
                self._register()
        return self._number

    def _register(self) -> None:
        """Give this process a number. Needs the registry lock."""
        first, _ = self._place()
        number = int.from_bytes(os.pread(self._fd, 8, 0), "little") or first
        self._write(number + 1)
        self._set_lock(fcntl.F_SETLK, fcntl.F_WRLCK, number)
        self._number = number
        self.process.enter(number, first, self._fd)

    def is_alive(self, number: int) -> bool:
        """Whether the process of that number lives; True where that cannot be told."""
        if number == self._number or self._fd < 0:
            return True
        if not 0 < number < 1 << 63:
            return False  # no process has such a number
        return self._set_lock(fcntl.F_GETLK, fcntl.F_WRLCK, number) != fcntl.F_UNLCK

    def pid_of(self, number: int) -> int | None:
        """The PID of the process of that number; None if it is dead.

        It is 0 for a process that has none in this PID namespace.
        """
        if number == self._number:
            return os.getpid()
        if not self.is_alive(number):
            return None
        return self._locker_of(number) if self._fd >= 0 else 0

    def claim(self, queue_id: int) -> bool:
        """Claim that queue if it is free; return whether this process has the claim.

        At most one process has it at any moment, and keeps it for as long as it lives.
        """
        self.process_number()  # opens the file
        if not self._lock_byte(1 + queue_id % _CLAIMS):
            return False
        self._claims.add(queue_id)
        return True

    def is_claimed(self, queue_id: int) -> bool:
        """Whether a live process, this one included, has the claim to that queue."""
        if queue_id in self._claims:
            return True
        self.process_number()
        byte = 1 + queue_id % _CLAIMS
        return self._set_lock(fcntl.F_GETLK, fcntl.F_WRLCK, byte) != fcntl.F_UNLCK

    def has_claim(self, queue_id: int) -> bool:
        """Whether this process has the claim to that queue."""
        return queue_id in self._claims

    def claimer_of(self, queue_id: int) -> int | None:
        """The PID of another process that has the claim to that queue; None: none has.

        It is 0 for a process that has none in this PID namespace.
        """
        self.process_number()
        return self._locker_of(1 + queue_id % _CLAIMS)

    def unclaim(self, queue_id: int) -> None:
        """Release the claim, if this process has it."""
        with self._section():
            if queue_id in self._claims:
                self._claims.discard(queue_id)
                if self._fd >= 0:
                    byte = 1 + queue_id % _CLAIMS
                    self._set_lock(fcntl.F_SETLK, fcntl.F_UNLCK, byte)

    def _write(self, number: int) -> None:
        self._write_at(number.to_bytes(8, "little"), 0)

    def _write_at(self, what: bytes, where: int) -> None:
        try:
            os.pwrite(self._fd, what, where)
        except OSError as error:
            raise as_no_space(error, 4096) from error

    def _set_lock(self, command: int, kind: int, start: int, length: int = 1) -> int:
        """fcntl(2) on bytes of the namespace's file; returns the l_type that came back."""
        request = FLOCK.pack(kind, os.SEEK_SET, start, length, 0)
        answer = FLOCK.unpack(fcntl.fcntl(self._fd, command, request))
        return int(answer[0])

    # ---- the data directory ----

    @property
    def memory(self) -> int:
        """The number of this memory. A reboot, or removing its file, changes it.

        Needs the registry lock.
        """
        return self._place()[0]

    def is_lost(self, memory: int) -> bool:
        """Whether that memory's file was removed, maybe replaced, while this process used it."""
        with self._section():
            return self._fd < 0 or not self._is_current() or self._place()[0] != memory

    @property
    def data_dir(self) -> Path | None:
        """The directory of its durable queues and tables; None if none was needed yet.

        The writer sets it with `become_writer`, a table with `adopt_data_dir`; it stays until
        the last queue and process are gone.
        """
        most = _DATA_DIR.size + os.pathconf("/", "PC_PATH_MAX")
        with self._section():
            self._leave_if_removed()
            with self._file_if_any() as there:
                raw = os.pread(self._fd, most, _DATA_DIR_AT) if there else b""
        if len(raw) < _DATA_DIR.size:
            return None
        size, checksum = _DATA_DIR.unpack_from(raw)
        path = raw[_DATA_DIR.size : _DATA_DIR.size + size]
        return Path(os.fsdecode(path)) if path and zlib.crc32(path) == checksum else None

    def become_writer(self, directory: Path) -> int:
        """Become the writer of the durable queues, until `release_writer` or death.

        Returns the number of the `memory`.

        Other processes see from now on that their files are in ``directory``, which need not
        exist yet. Raises AlreadyWritten, with its PID, if another process writes them, there or
        elsewhere: a journal has one writer.
        """
        with self.locked():
            self.refuse_second_writer(directory)
            self._set_lock(fcntl.F_SETLK, fcntl.F_WRLCK, _WRITER_BYTE)
            self.note_data_dir(directory)
            self._is_writer = True
            return self.memory

    def note_data_dir(self, directory: Path) -> None:
        """Record the directory in the namespace's file. Needs the registry lock."""
        path = os.fsencode(directory.absolute())
        record = _DATA_DIR.pack(len(path), zlib.crc32(path)) + path
        self._write_at(record, _DATA_DIR_AT)
        self._made_file = False

    def adopt_data_dir(self, directory: Path) -> Path:
        """The data directory; from now on ``directory``, if none was set.

        So all processes find the tables there that one of them makes. Raises what `locked` raises.
        """
        with self.locked():
            there = self.data_dir
            if there is None:
                self.note_data_dir(directory)
            return there or directory

    def announce_transaction(self) -> None:
        """Tell the writer that a transaction may commit whose file it has not seen. Raises NoSpace.

        Call it when the file has its name for the writer, and before the commit point.
        """
        self.process_number()  # opens the file
        self._write_at(os.urandom(_ANNOUNCED), _ANNOUNCED_AT)

    @property
    def announced(self) -> bytes | None:
        """Bytes that differ after each `announce_transaction`; None: not known."""
        try:
            return os.pread(self._fd, _ANNOUNCED, _ANNOUNCED_AT)
        except OSError:  # the file is not open
            return None

    @property
    def writer_pid(self) -> int | None:
        """The PID of the writer of the durable queues; None if there is none.

        It is 0 for a process of another PID namespace. Does not create the namespace's file.
        """
        with self._section():
            self._leave_if_removed()
            if self._is_writer:
                return os.getpid()
            with self._file_if_any() as there:
                return self._locker_of(_WRITER_BYTE) if there else None

    def is_shared(self) -> bool:
        """Whether other processes of the namespace are alive."""
        self.process_number()
        with self._section():
            return self._locker_of(_GUARDIAN_BYTES.stop, 0) is not None

    # ---- guardians ----

    def become_guardian(self) -> bytes | None:
        """Take a place among the guardians; the path of the file to watch. None: none is needed.

        That is so if all places are taken, or everything in the namespace was deleted. Each process
        has at most one place, until `retire_guardian` or its death.
        """
        with self._section():
            if not self._is_current() and self.is_empty():
                return None  # registering would make the file again, and nobody would remove it
            self.process_number()
            if not self._guardian_byte:
                self._guardian_byte = next(filter(self._lock_byte, _GUARDIAN_BYTES), 0)
            return os.fsencode(self._path) if self._guardian_byte else None

    @property
    def is_guardian(self) -> bool:
        """Whether this process has a place; it loses it with the namespace's file."""
        return self._guardian_byte != 0

    def retire_guardian(self) -> None:
        """Give up the place, if this process has one."""
        with self._section():
            if self._guardian_byte and self._fd >= 0:
                self._set_lock(fcntl.F_SETLK, fcntl.F_UNLCK, self._guardian_byte)
            self._guardian_byte = 0

    @contextlib.contextmanager
    def starting(self, timeout: float) -> Iterator[None]:
        """Be the only process that starts or replaces a writer, for the block.

        Does not exclude other threads of this process. Raises :class:`~shmq.LockTimeout`.
        """
        self.process_number()
        end = time.monotonic() + timeout
        while not self._lock_byte(_STARTER_BYTE):
            if time.monotonic() >= end:
                pid = self._locker_of(_STARTER_BYTE) or 0
                raise LockTimeout(
                    f"process {pid} has been starting the writer of namespace {self.name!r} for "
                    f"more than {timeout:g} s: try again, or end it",
                    pid,
                )
            time.sleep(_LOOK)
        try:
            yield
        finally:
            with self._section():
                if self._fd >= 0:
                    self._set_lock(fcntl.F_SETLK, fcntl.F_UNLCK, _STARTER_BYTE)

    def refuse_second_writer(self, directory: Path) -> None:
        """Raises AlreadyWritten if another process writes the durable queues, anywhere."""
        self.process_number()  # opens the file, which stays open while this process lives
        with self.locked():
            other = self.data_dir
            pid = self._locker_of(_WRITER_BYTE)
            if pid is None:
                # A record lock does not exclude the same process; the directory's lock does.
                if other is None or is_same_directory(other, directory) or not is_written(other):
                    return
                pid = writer_of(other)
        raise AlreadyWritten(
            f"{f'process {pid}' if pid > 0 else 'another process'} writes the durable queues of "
            f"namespace {self.name!r} already, in {other}: end it first; two cannot write one "
            f"journal",
            pid,
            other,
        )

    def _locker_of(self, start: int, length: int = 1) -> int | None:
        """The PID of another process that has a lock on these bytes, or 0; None: none has."""
        request = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
        kind, _, _, _, pid = FLOCK.unpack(fcntl.fcntl(self._fd, fcntl.F_GETLK, request))
        return None if kind == fcntl.F_UNLCK else max(0, pid)

    def _lock_byte(self, byte: int) -> bool:
        """Lock the byte; return false if another process has it."""
        try:
            self._set_lock(fcntl.F_SETLK, fcntl.F_WRLCK, byte)
        except OSError as error:
            if error.errno in {errno.EACCES, errno.EAGAIN}:
                return False
            raise
        return True

    def release_writer(self) -> None:
        """Let another process become the writer of the durable queues."""
        with self._section():
            self._is_writer = False
            if self._fd >= 0:
                self._set_lock(fcntl.F_SETLK, fcntl.F_UNLCK, _WRITER_BYTE)

    def drop_stored(self, file: str) -> bool:
        """Remove that file of definitions from the disk; return whether it is gone.

        If there is a writer, only the writer removes it. Needs the registry lock, so that no
        writer starts meanwhile.
        """
        directory = self.data_dir
        if directory is None or not (directory / file).exists():
            return True
        if is_written(directory):
            return False
        try:
            disk = Disk(directory)
            disk.unlink(file)
            disk.sync_directory()
        except OSError:
            return False
        return True

    # ---- the registry lock ----

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the registry lock. May be nested.

        The namespace's file is made, and removed again if nothing in it is needed afterwards: what
        the block is about may have been deleted, and the file with it.

        Raises NoSpace, ForeignSegment and, after 100 ms if the holder makes no progress,
        :class:`~shmq.LockTimeout`.
        """
        with self._section():
            if not self._depth:
                self._take_registry()
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if not self._depth:
                    self._release_registry()

    def _take_registry(self) -> None:
        """Lock byte 0 of the file that now has the namespace's name."""
        again = False
        while True:
            if self._fd < 0:
                self._open_or_make()
            take_file_lock(
                lambda: self._lock_byte(_REGISTRY_BYTE),
                f"the registry of namespace {self.name!r}",
                lambda: self._locker_of(_REGISTRY_BYTE) or 0,
            )
            if self._is_current():
                break
            again = self._number != 0
            self._leave()  # the file was removed with the last queue
        try:
            self._take_place()
            if again:
                self._register()
        except BaseException:
            self._release_registry()
            raise

    def _release_registry(self) -> None:
        """Unlock byte 0; remove a file that was made in vain."""
        made, self._made_file = self._made_file, False
        if made and not self._number:
            with contextlib.suppress(OSError):
                self._remove_if_unused()
            if not self._is_current():
                self._close()
                return
        self._set_lock(fcntl.F_SETLK, fcntl.F_UNLCK, _REGISTRY_BYTE)

    def _remove_if_unused(self) -> None:
        """Remove the file if the namespace is empty and has no other process.

        Needs the registry lock.
        """
        others = self._set_lock(fcntl.F_GETLK, fcntl.F_WRLCK, 1, 0)
        if self.forget_names() and others == fcntl.F_UNLCK:
            for path in self._noted_transactions():
                path.unlink(missing_ok=True)
            self._path.unlink(missing_ok=True)

    def _take_place(self) -> None:
        """Check that this process may use the namespace; the registry lock is held.

        The first process sets the time namespace for all. Once none of them lives, the next
        one does; but while there are queues the time namespace of their deadlines stays. Raises
        ForeignSegment, NoSpace.
        """
        here = _time_namespace()
        first, there = self._place()
        if first and there == here:
            return
        if first:
            alive = self._set_lock(fcntl.F_GETLK, fcntl.F_WRLCK, 1, 0) != fcntl.F_UNLCK
            if alive or not self.is_empty():
                raise ForeignSegment(self._elsewhere(there, here, alive=alive))
        # A new file starts where no older one has been: at the time, in ns.
        self._write_at(_PLACE.pack(first or time.time_ns(), here), _PLACE_AT)

    def _place(self) -> tuple[int, int]:
        """The first process number of the file, and the time namespace; 0: not set."""
        raw = os.pread(self._fd, _PLACE.size, _PLACE_AT)
        first, there = _PLACE.unpack(raw.ljust(_PLACE.size, b"\0"))
        return first, there

    def _elsewhere(self, there: int, here: int, *, alive: bool) -> str:
        what = "is used by processes of" if alive else "has the deadlines of"
        last = "" if alive else f", or remove {SHM}/*shmq@{self.name}* (its messages are lost)"
        return (
            f"namespace {self.name!r} {what} time namespace {there or 'unknown'}, this process is "
            f"in {here or 'unknown'}: they cannot share queues; start both in one time namespace, "
            f"connect over TCP, or use another namespace{last}"
        )

    def _is_current(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._fd))
        except OSError:
            return False

    def _open_or_make(self) -> None:
        try:
            self._fd, self._made_file = self._open(0), False
        except FileNotFoundError:
            self._fd, self._made_file = self._open(os.O_CREAT), True

    def _open(self, how: int) -> int:
        flags = os.O_RDWR | how | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            fd = open_file(self._path, flags, 0o600)
        except FileNotFoundError:
            raise  # unchanged: an error that is its own cause would keep its frames alive
        except OSError as error:
            raise as_no_file(error, self._path) from error
        try:
            refuse_foreign(fd, self._path)
        except SegmentError:
            os.close(fd)
            raise
        return fd

    @contextlib.contextmanager
    def _file_if_any(self) -> Iterator[bool]:
        """Open the namespace's file for the block; gives False if there is none.

        Does not create it, and does not register this process. Needs the section.
        """
        opened = self._fd < 0
        if opened:
            try:
                self._fd = self._open(0)
            except FileNotFoundError:
                yield False
                return
        try:
            yield True
        finally:
            if opened:
                self._close()

    def retire(self) -> None:
        """Remove the namespace's file if the namespace is empty, and no process uses it.

        A file of another user is left alone, and so is one that cannot be locked, or cannot be
        opened for want of a descriptor.
        """
        with self._section(), contextlib.suppress(ForeignSegment, LockTimeout, OSError):
            if not self._is_writer and self._path.exists() and self.is_empty():
                with self.locked():
                    self._remove_if_unused()
            if self._fd >= 0 and not self._depth and not self._is_current():
                self._close()

    def forget_names(self) -> bool:
        """Remove the book of names if the namespace is empty; return whether it is.

        Needs the registry lock.
        """
        if not self.is_empty():
            return False
        self._names.remove()
        return True

    def _noted_transactions(self) -> list[Path]:
        """Second names of transactions' files that no writer has handled."""
        prefix = f"txn.shmq@{self.name}@"
        entries = (entry for entry in listed() if entry.startswith(prefix))
        return [SHM / entry for entry in entries if "@" in entry[len(prefix) :]]

    def deserted(self) -> bool:
        """Whether the namespace's file has no queue, stream, exchange or process.

        A file that was written within the last second does not count: its creator may be about to
        lock it. Raises ForeignSegment.
        """
        with self._section():
            if not self.is_empty():
                return False
            with self._file_if_any() as there:
                old = there and time.time() - os.fstat(self._fd).st_mtime > 1.0
                return old and self._set_lock(fcntl.F_GETLK, fcntl.F_WRLCK, 0, 0) == fcntl.F_UNLCK

    def is_empty(self) -> bool:
        """Whether there is neither a queue nor a stream nor an exchange nor a table in memory."""
        return not (self.has_names() or self.exchanges_path.exists() or self.tables_path.exists())

    def _leave_if_removed(self) -> None:
        """Leave a file that was removed, with the last queue or by hand. Needs the section."""
        if self._fd >= 0 and not self._depth and not self._is_current():
            self._leave()

    def _leave(self) -> None:
        """Leave a file that somebody else has removed.

        It stays open if this process has a number there. Then it was removed by hand: other
        processes may still use it, and must see that this process lives.
        """
        if self._number:
            # Those that have yet to find out that it was removed wait for this lock, too.
            self._set_lock(fcntl.F_SETLK, fcntl.F_UNLCK, _REGISTRY_BYTE)
            self._kept.append(self._fd)
            self._forget_file()
        else:
            self._close()

    def _close(self) -> None:
        fd = self._fd
        self._forget_file()
        os.close(fd)

    def _forget_file(self) -> None:
        self.process.leave()
        self._fd = -1
        self._number = 0
        self._claims.clear()
        self._is_writer = False
        self._guardian_byte = 0

    def after_fork(self) -> None:
        """Reset the child of a fork, which has the descriptor, but neither locks nor a number."""
        self.process.leave()
        self._number = 0
        self._held = self._depth = 0
        self._made_file = False
        self._deferred.clear()
        self._claims.clear()
        self._names.release()
        self._is_writer = False
        self._guardian_byte = 0
        if self._fd >= 0:
            self._open_anew()

    def _open_anew(self) -> None:
        """Put an open file of its own behind the descriptor that the child of a fork inherited.

        As long as the child shares its parent's, the kernel does not report the parent's death as
        the end of that open file.
        """
        with contextlib.suppress(OSError):  # then the death is noticed later, by who looks for it
            fd = open_file(f"/proc/self/fd/{self._fd}", os.O_RDWR | os.O_CLOEXEC)
            os.dup2(fd, self._fd, inheritable=False)
            os.close(fd)

    # ---- names ----

    def note(self, path: Path, there: bool) -> None:
        """Log that the file is about to be created, or was removed. Needs the registry lock.

        A queue, stream or group that is not logged is missing from lists of names until the
        directory is listed. Raises NoSpace, ForeignSegment.
        """
        try:
            self._names.note(path.name, there)
        except OSError as error:
            refusal = as_no_space(error, 4096)
            if refusal is error:
                refusal = as_foreign(error, self._names.path)
            raise refusal from error

    def names_of(self, kind: str, begin: str = "") -> list[str]:
        """The names of one kind of `name_book.KINDS` with that beginning, sorted.

        Some may be half created, half removed, or just removed by hand.
        """
        with self._section():
            return self._names.names(kind, self._is_busy, begin)

    def has_names(self) -> bool:
        """Whether there is a queue or a stream."""
        with self._section():
            return self._names.has_any(("shmq", "stream.shmq"), self._is_busy)

    def _is_busy(self) -> bool:
        """Whether another process holds the registry lock. Needs the section."""
        if self._depth:
            return False
        with self._file_if_any() as there:
            if not there:
                return False
            return self._set_lock(fcntl.F_GETLK, fcntl.F_WRLCK, _REGISTRY_BYTE) != fcntl.F_UNLCK

    # ---- queues ----

    def path_of(self, queue: str) -> Path:
        """The path of the queue's segment."""
        return SHM / f"shmq@{self.name}@{queue}"

    def stream_path(self, stream: str) -> Path:
        """The path of the stream's control segment."""
        return SHM / f"stream.shmq@{self.name}@{stream}"

    def has(self, kind: str, name: str) -> bool:
        """Whether there is a ``queue`` or a ``stream`` of that name, in whatever state."""
        return (self.stream_path(name) if kind == "stream" else self.path_of(name)).exists()

    def queue_names(self, begin: str = "") -> list[str]:
        """The names of the queues with that beginning, sorted; see `names_of`."""
        return self.names_of("shmq", begin)

    def noted_queues(self, begin: str) -> list[str]:
        """The names of queues with that beginning, sorted; some may have lost their files."""
        with self._section():
            return self._names.noted("shmq", begin)

    def stream_names(self) -> list[str]:
        """The names of the streams, sorted; see `names_of`."""
        return self.names_of("stream.shmq")

    def open_segment(self, queue: str) -> _core.Segment:
        """The queue's segment, mapped. Raises NoSuchQueue, SegmentError.

        Removes what a process that died while creating or deleting the queue has left.
        """
        segment = self.look_at(queue)
        if segment is not None and not segment.deleted:
            return segment
        with self.locked():
            segment = self.look_at(queue)
            if segment is not None and not segment.deleted:
                return segment
            if segment is not None:
                self.erase(queue, segment)
            self._clear(queue)
        raise _no_such_queue(queue, self.name)

    def queue_id_of(self, queue: str) -> int:
        """The id of the queue, finished or not; 0 if there is none. Raises SegmentError."""
        path = self.path_of(queue)
        try:
            fd = open_file(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise as_foreign(error, path) from error
        try:
            refuse_foreign(fd, path)
            return _core.unfinished_id(fd)
        finally:
            os.close(fd)

    def find(self, hash_key: int) -> str | None:
        """The name of the queue with that hash key, which survives recovery."""
        for name in self.queue_names():
            with contextlib.suppress(SegmentError, NoSuchQueue):
                if self.open_segment(name).hash_key == hash_key:
                    return name
        return None

    def make_segment(
        self,
        queue: str,
        options: QueueOptions,
        *,
        hash_key: int | None = None,
        publish: bool = True,
    ) -> _core.Segment:
        """Create the segment and the semaphores of a new queue. Needs the registry lock.

        Without ``publish`` no process can attach until :meth:`Segment.publish`. A queue that is
        recovered keeps its ``hash_key``.

        The segment is marked as published by its last store, which distinguishes it from one
        whose creator died. It has its id from the start, so its semaphores can be found.
        """
        self.process_number()  # without it nothing that is made could be removed: see mark_deleted
        self._clear(queue)
        queue_id = new_identity()
        path = self.path_of(queue)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        self.note(path, there=True)
        try:
            fd = open_file(path, flags, 0o600)
        except OSError as error:
            self.note(path, path.exists())
            raise as_no_file(error, path) from error
        _core.mark()
        try:
            os.pwrite(fd, queue_id.to_bytes(8, "little"), 8)
            _core.mark()
            make_semaphores(self.name, queue_id)
            _core.mark()
            return _core.Segment.create(
                os.dup(fd), queue, self.process, queue_id, options.as_dict(), hash_key, publish
            )
        except BaseException as error:
            refusal = as_no_space(error, 4096) if isinstance(error, OSError) else error
            self._clear(queue)
            if refusal is error:
                raise
            raise refusal from error
        finally:
            os.close(fd)

    def remove_segment(self, queue: str) -> None:
        """Remove the segment and the semaphores, whatever their state."""
        with self.locked():
            self._clear(queue)

    def erase(self, queue: str, segment: _core.Segment | None) -> None:
        """Remove the files of a deleted queue, durably; segment None: it cannot be read.

        Needs the registry lock. The note of the removal stays if there is a writer. Raises
        ShmqError on failure; then the caller must not remove the segment.
        """
        if segment is not None and segment.options["durability"] == "memory":
            return
        directory = self.data_dir
        if directory is None:
            return
        try:
            erase_queue(
                Disk(directory),
                queue,
                None if segment is None else segment.hash_key,
                last=not is_written(directory),
            )
        except OSError as error:
            raise ShmqError(
                f"queue {queue!r} is deleted, but not its files in {directory}: "
                f"{error.strerror or error}; delete it again once they can be removed"
            ) from error

    def look_at(self, queue: str) -> _core.Segment | None:
        """The mapped segment, or None if it is not finished. Removes nothing.

        Raises NoSuchQueue, SegmentError.
        """
        path = self.path_of(queue)
        try:
            fd = open_file(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise _no_such_queue(queue, self.name) from None
        except OSError as error:
            raise as_foreign(error, path) from error
        try:
            refuse_foreign(fd, path)
        except SegmentError:
            os.close(fd)
            raise
        return _core.Segment.attach(fd, queue, self.process)

    def _clear(self, queue: str) -> None:
        """Remove the files of a queue; the segment last, so that this can be resumed."""
        path = self.path_of(queue)
        queue_id = self.queue_id_of(queue)
        if queue_id:
            remove_semaphores(self.name, queue_id)
            _core.mark()
        path.unlink(missing_ok=True)
        _core.mark()
        self.note(path, there=False)


def _time_namespace() -> int:
    """The inode number of this process's time namespace; 0 where /proc is not mounted."""
    try:
        return os.stat("/proc/self/ns/time").st_ino
    except OSError:
        return 0


def _no_such_queue(queue: str, namespace: str) -> NoSuchQueue:
    return NoSuchQueue(
        f"there is no queue {queue!r} in namespace {namespace!r}: create it first, "
        f"or see `shmq list`"
    )


def is_same_directory(one: Path, other: Path) -> bool:
    """Whether both are one path, or one existing directory."""
    try:
        return one == other or one.samefile(other)
    except OSError:
        return False


def new_identity() -> int:
    """A unique number: 62 random bits and a 1."""
    return int.from_bytes(os.urandom(8)) >> 1 | 1


def refuse_foreign(fd: int, path: Path) -> None:
    """Raises ForeignSegment unless the file is this user's, and closed to others."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise ForeignSegment(f"{path} is not a regular file: remove it")
    if status.st_uid != os.geteuid():
        raise ForeignSegment(
            f"{path} belongs to user {status.st_uid}, not to {os.geteuid()}: "
            f"use a namespace of your own"
        )
    if status.st_mode & 0o077:
        raise ForeignSegment(
            f"{path} has mode {stat.S_IMODE(status.st_mode):04o}, so others may touch it: "
            f"set it to 0600 if it is yours"
        )


def as_foreign(error: OSError, path: Path) -> Exception:
    """The error as ForeignSegment, if the file is another user's; else as `no_descriptor`."""
    if error.errno in {errno.EACCES, errno.EPERM, errno.ELOOP, errno.EISDIR, errno.ENXIO}:
        return ForeignSegment(
            f"{path} belongs to another user: {error.strerror}; use another namespace"
        )
    return no_descriptor(error)


def as_no_file(error: OSError, path: Path) -> Exception:
    """The error of a failed creation; NoSpace means inodes: an empty file takes no bytes."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return NoSpace(
            f"no file can be created in {SHM}: {error.strerror}, all inodes are used; "
            f"delete queues, or mount it with more inodes"
        )
    return as_foreign(error, path)


def as_no_space(error: OSError, wanted: int) -> Exception:
    """The error as NoSpace, if it is for want of space; else as `no_descriptor`."""
    if isinstance(error, NoSpace) or error.errno not in {errno.ENOSPC, errno.EDQUOT}:
        return no_descriptor(error)
    space = os.statvfs(SHM)
    full = "/dev/shm is full" if error.errno == errno.ENOSPC else "your quota of /dev/shm is full"
    return NoSpace(
        f"{full}: {wanted} bytes wanted, {space.f_bavail * space.f_frsize} available; "
        f"purge or delete queues, or give it more room (in a container: --shm-size)"
    )


def _after_fork() -> None:
    for namespace in _known.values():
        namespace.after_fork()


os.register_at_fork(after_in_child=_after_fork)
