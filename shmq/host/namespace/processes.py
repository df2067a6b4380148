"""The processes of a namespace: which live, and the file by which they know each other.

``shmq@NAMESPACE`` in /dev/shm has the next process number, at byte 4112 its first process number
and the time namespace of its processes, and the bytes that its processes lock; `roles` says what
else. Byte 0 is the registry lock, held while queues are created and removed. Byte N is locked by
the process of number N for as long as it lives: the kernel releases an fcntl record lock at death,
a fork does not inherit it, and it is right across PID namespaces, which a PID is not. Numbers are
never reused, also not by a later file of the name, and are more than 2**60 + 5.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shmq.errors import ForeignSegment, SegmentError
from shmq.fork_safe import new_lock
from shmq.host.namespace.folder import file_path, file_prefix, folder_of, list_folder, ready_folder
from shmq.host.namespace.shm_files import as_no_file, as_no_space, refuse_foreign
from shmq.native import _clock as time
from shmq.native import _core
from shmq.native.descriptors import open_file
from shmq.native.lock_holder import take_file_lock

if TYPE_CHECKING:
    from shmq.native import _stream

_REGISTRY_BYTE: Final = 0
#: Process numbers are above this: they start at the time in ns, which has passed this long ago.
_NUMBERS: Final = (1 << 60) + 6
#: After the longest possible path of the data directory: the first process number, and the inode
#: number of the time namespace, which shifts the clock of every deadline; 0: not known.
_PLACE: Final = struct.Struct("<QQ")
_PLACE_AT: Final = 4112
FLOCK: Final = struct.Struct("@hhqqi4x")  # struct flock, 64-bit Linux: fcntl(2)


class Processes:
    """The processes of one namespace, and its file. One object a process: see `Namespace.of`.

    Invariants: this process has a number exactly as long as it has locked that byte of the file
    that it has open. The file is created, replaced and removed only by a process with the registry
    lock, which holds the section, too. It is removed once the namespace is empty and no other
    process has locked a byte of it; one removed by hand stays open, so that this process still
    counts as alive there, and `own_number` registers in the new one as well.
    """

    def __init__(
        self, namespace: str, is_empty: Callable[[], bool], forget_names: Callable[[], bool]
    ) -> None:
        """``is_empty`` tells whether nothing in the namespace needs its file.

        ``forget_names`` does, too, and then removes the names; it needs the registry lock.
        """
        self.namespace = namespace
        self.path = file_path(namespace, "")
        self.is_empty = is_empty
        self._forget_names = forget_names
        self._fd = -1
        #: Descriptors of files that were removed by hand: their locks say that this process lives.
        self._kept: list[int] = []
        self._number = 0
        #: The bytes that this process has locked in the open file, other than its number.
        self.locked_bytes: set[int] = set()
        #: This process, for the locks of queues and streams.
        self.own = _core.Process(self.own_number)
        self._lock = new_lock()
        #: How many nested sections hold the lock.
        self._held = 0
        #: How many of them hold the registry lock.
        self._depth = 0
        #: Whether they have made the namespace's file, which nothing needs yet.
        self.made_file = False
        self._deferred: deque[Callable[[], None]] = deque()

    # ---- mutual exclusion of this process's threads ----

    @contextlib.contextmanager
    def section(self) -> Iterator[None]:
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

    # ---- numbers ----

    def own_number(self, used: _core.Segment | _stream.Control | None = None) -> int:
        """This process's number; the first call registers the process.

        It is asked for to use a queue or stream, ``used``: once that was deleted, a process without
        a number gets 0. The namespace's file may be gone; registering would make it again.
        """
        if self._number and self.is_current():
            return self._number
        with self.locked():
            if not self._number and (used is None or not used.deleted):
                self._register()
        return self._number

    def _register(self) -> None:
        """Give this process a number. Needs the registry lock."""
        first, _ = self._place()
        number = int.from_bytes(self.read(8, 0), "little") or first
        self.write((number + 1).to_bytes(8, "little"), 0)
        self._call_fcntl(fcntl.F_SETLK, fcntl.F_WRLCK, number)
        self._number = number
        self.own.enter(number, first, self._fd)

    def is_alive(self, number: int) -> bool:
        """Whether the process of that number lives; True where that is unknown."""
        if number == self._number or self._fd < 0:
            return True
        if not 0 < number < 1 << 63:
            return False  # no process has such a number
        return self.locker_of(number) is not None

    def pid_of(self, number: int) -> int | None:
        """The PID of the process of that number; None if it is dead.

        It is 0 for a process that has none in this PID namespace.
        """
        if number == self._number:
            return os.getpid()
        if not self.is_alive(number):
            return None
        return self.locker_of(number) if self._fd >= 0 else 0

    def is_shared(self) -> bool:
        """Whether other processes of the namespace are alive."""
        self.own_number()
        with self.section():
            return self.locker_of(_NUMBERS, 0) is not None

    # ---- the bytes of the namespace's file ----

    def read(self, size: int, at: int) -> bytes:
        """Bytes of the namespace's file, fewer at its end. Raises OSError if it is not open."""
        return os.pread(self._fd, size, at)

    def write(self, data: bytes, at: int) -> None:
        """Write to the namespace's file, which must be open. Raises NoSpace."""
        try:
            os.pwrite(self._fd, data, at)
        except OSError as error:
            raise as_no_space(error, 4096) from error

    def lock_byte(self, byte: int) -> bool:
        """Lock the byte; return false if another process has it."""
        try:
            self._call_fcntl(fcntl.F_SETLK, fcntl.F_WRLCK, byte)
        except OSError as error:
            if error.errno in {errno.EACCES, errno.EAGAIN}:
                return False
            raise
        self.locked_bytes.add(byte)
        return True

    def unlock_byte(self, byte: int) -> None:
        """Unlock the byte, if this process has locked it."""
        with self.section():
            if byte in self.locked_bytes:
                self.locked_bytes.discard(byte)
                self._call_fcntl(fcntl.F_SETLK, fcntl.F_UNLCK, byte)

    def locker_of(self, start: int, length: int = 1) -> int | None:
        """The PID of another process that has a lock on these bytes, or 0; None: none has."""
        kind, pid = self._call_fcntl(fcntl.F_GETLK, fcntl.F_WRLCK, start, length)
        return None if kind == fcntl.F_UNLCK else max(0, pid)

    def _call_fcntl(self, command: int, kind: int, start: int, length: int = 1) -> tuple[int, int]:
        """fcntl(2) on bytes of the namespace's file; returns l_type and l_pid."""
        request = FLOCK.pack(kind, os.SEEK_SET, start, length, 0)
        kind, _, _, _, pid = FLOCK.unpack(fcntl.fcntl(self._fd, command, request))
        return kind, pid

    # ---- the registry lock ----

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the registry lock. May be nested.

        The namespace's file is made, and removed again if nothing in it is needed afterwards: what
        the block is about may have been deleted, and the file with it.

        Raises NoSpace, ForeignSegment and, after 100 ms if the holder makes no progress,
        :class:`~shmq.LockTimeout`.
        """
        with self.section():
            if not self._depth:
                self._take_registry()
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if not self._depth:
                    self._release_registry()

    def check_unlocked(self) -> None:
        """Ensure that this thread may wait for a process that needs the registry lock."""
        with self.section():
            assert not self._depth, "this thread would wait with the registry lock"

    def _take_registry(self) -> None:
        """Lock byte 0 of the file that now has the namespace's name."""
        again = False
        while True:
            if self._fd < 0:
                self._open_or_make()
            take_file_lock(
                lambda: self.lock_byte(_REGISTRY_BYTE),
                f"the registry of namespace {self.namespace!r}",
                lambda: self.locker_of(_REGISTRY_BYTE) or 0,
            )
            if self.is_current():
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
        made, self.made_file = self.made_file, False
        if made and not self._number:
            with contextlib.suppress(OSError):
                self.remove_if_unused()
            if not self.is_current():
                self._close()
                return
        self.unlock_byte(_REGISTRY_BYTE)

    def remove_if_unused(self) -> None:
        """Remove the file if the namespace is empty and has no other process.

        Needs the registry lock.
        """
        is_used = self.locker_of(1, 0) is not None
        if self._forget_names() and not is_used:
            for path in _list_unhandled_transactions(self.namespace):
                path.unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)

    def _take_place(self) -> None:
        """Check that this process may use the namespace; the registry lock is held.

        The first process sets the time namespace for all. Once none of them lives, the next
        one does; but while there are queues the time namespace of their deadlines stays. Raises
        ForeignSegment, NoSpace.
        """
        here = _get_time_namespace()
        first, there = self._place()
        if first and there == here:
            return
        if first:
            alive = self.locker_of(1, 0) is not None
            if alive or not self.is_empty():
                raise ForeignSegment(self._describe_elsewhere(there, here, alive=alive))
        # A new file starts where no older one has been: at the time, in ns.
        self.write(_PLACE.pack(first or time.time_ns(), here), _PLACE_AT)

    def _place(self) -> tuple[int, int]:
        """The first process number of the file, and the time namespace; 0: not set."""
        raw = self.read(_PLACE.size, _PLACE_AT)
        first, there = _PLACE.unpack(raw.ljust(_PLACE.size, b"\0"))
        return first, there

    def _describe_elsewhere(self, there: int, here: int, *, alive: bool) -> str:
        what = "is used by processes of" if alive else "has the deadlines of"
        last = (
            ""
            if alive
            else f", or remove {self.path.parent}/*{self.path.name}* (its messages are lost)"
        )
        return (
            f"namespace {self.namespace!r} {what} time namespace {there or 'unknown'}, this "
            f"process is in {here or 'unknown'}: they cannot share queues; start both in one time "
            f"namespace, connect over TCP, or use another namespace{last}"
        )

    # ---- the life of the file ----

    @property
    def memory(self) -> int:
        """The number of this memory. A reboot, or removing its file, changes it.

        Needs the registry lock.
        """
        return self._place()[0]

    def is_lost(self, memory: int) -> bool:
        """Whether that memory's file was removed, maybe replaced, while this process used it."""
        with self.section():
            return self._fd < 0 or not self.is_current() or self._place()[0] != memory

    def outlived_memory(self) -> bool:
        """Whether memory that this process had a number in was removed by hand.

        For event loops: it does not wait for the section; while another thread has it, false.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return bool(self._kept) or (self._number > 0 and not self.is_current())
        finally:
            self._lock.release()

    def is_current(self) -> bool:
        """Whether the open file is the one that has the namespace's name now."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._fd))
        except OSError:
            return False

    def _open_or_make(self) -> None:
        try:
            self._fd, self.made_file = self._open(0), False
        except FileNotFoundError:
            ready_folder(self.namespace)  # it may have been removed by hand
            self._fd, self.made_file = self._open(os.O_CREAT), True

    def _open(self, how: int) -> int:
        flags = os.O_RDWR | how | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            fd = open_file(self.path, flags)
        except FileNotFoundError:
            raise  # unchanged: an error that is its own cause would keep its frames alive
        except OSError as error:
            raise as_no_file(error, self.path) from error
        try:
            refuse_foreign(fd, self.path)
        except SegmentError:
            os.close(fd)
            raise
        return fd

    @contextlib.contextmanager
    def existing_file(self) -> Iterator[bool]:
        """Hold the section with the file open, if it exists; gives whether it does.

        Leaves a file that was removed, with the last queue or by hand.
        """
        with self.section():
            if self._fd >= 0 and not self._depth and not self.is_current():
                self._leave()
            with self._file_if_any() as there:
                yield there

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

    def close_if_removed(self) -> None:
        """Close the namespace's file if it was removed as unused. Needs the section."""
        if self._fd >= 0 and not self._depth and not self.is_current():
            self._close()

    def deserted(self) -> bool:
        """Whether the namespace's file has no queue, stream, exchange or process.

        A file that was written within the last second does not count: its creator may be about to
        lock it. Raises ForeignSegment.
        """
        with self.section():
            if not self.is_empty():
                return False
            with self._file_if_any() as there:
                old = there and time.time() - os.fstat(self._fd).st_mtime > 1.0
                return old and self.locker_of(0, 0) is None

    def is_busy(self) -> bool:
        """Whether another process holds the registry lock. Needs the section."""
        if self._depth:
            return False
        with self._file_if_any() as there:
            return there and self.locker_of(_REGISTRY_BYTE) is not None

    def _leave(self) -> None:
        """Leave a file that somebody else has removed.

        It stays open if this process has a number there. Then it was removed by hand: other
        processes may still use it, and must see that this process lives.
        """
        if self._number:
            # Those that have yet to find out that it was removed wait for this lock, too.
            self.unlock_byte(_REGISTRY_BYTE)
            self._kept.append(self._fd)
            self._forget_file()
        else:
            self._close()

    def _close(self) -> None:
        fd = self._fd
        self._forget_file()
        os.close(fd)

    def _forget_file(self) -> None:
        self.own.leave()
        self._fd = -1
        self._number = 0
        self.locked_bytes.clear()

    def after_fork(self) -> None:
        """Reset the child of a fork, which has the descriptor, but neither locks nor a number."""
        self.own.leave()
        self._number = 0
        self._held = self._depth = 0
        self.made_file = False
        self._deferred.clear()
        self.locked_bytes.clear()
        if self._fd >= 0:
            self._open_anew()

    def _open_anew(self) -> None:
        """Put an open file of its own behind the descriptor that the child of a fork inherited.

        As long as the child shares its parent's, the kernel does not report the parent's death as
        the end of that open file.
        """
        with contextlib.suppress(OSError):  # then a later check finds the death
            fd = open_file(f"/proc/self/fd/{self._fd}", os.O_RDWR | os.O_CLOEXEC)
            os.dup2(fd, self._fd, inheritable=False)
            os.close(fd)


def _get_time_namespace() -> int:
    """The inode number of this process's time namespace; 0 where /proc is not mounted."""
    try:
        return os.stat("/proc/self/ns/time").st_ino
    except OSError:
        return 0


def _list_unhandled_transactions(namespace: str) -> list[Path]:
    """Second names of transactions' files that no writer has handled."""
    prefix, folder = f"{file_prefix(namespace, 'txn.')}@", folder_of(namespace)
    entries = (entry for entry in list_folder(namespace) if entry.startswith(prefix))
    return [folder / entry for entry in entries if "@" in entry[len(prefix) :]]
