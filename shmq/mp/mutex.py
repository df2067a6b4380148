"""A lock between processes. The kernel releases it when its holder dies.

It is an open-file-description lock (fcntl(2), F_OFD_SETLK) on a file that all processes
can open. Each lock object has its own file description, so two objects exclude each other
within one process, too. A forked child closes the description it inherited: otherwise it
would keep the lock of a parent that dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import weakref
from pathlib import Path
from types import TracebackType
from typing import Final

from shmq.host.namespace.processes import FLOCK
from shmq.native.descriptors import open_file
from shmq.native.lock_holder import locker_of, take_file_lock

_TAKE: Final = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
_GIVE: Final = FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 1, 0)

_all: weakref.WeakSet[Mutex] = weakref.WeakSet()


class Mutex:
    """A context manager that holds the lock on ``path``, which must exist. Not reentrant.

    Entering it raises :class:`~shmq.LockTimeout`: after 100 ms if the process that holds the
    lock is stopped.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._threads = threading.Lock()
        _all.add(self)

    def __enter__(self) -> None:
        self._threads.acquire()
        try:
            if self._fd < 0:
                self._fd = open_file(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            take_file_lock(self._try_it, f"the file {self._path}", lambda: locker_of(self._fd))
        except BaseException:  # an interrupt may come once the lock is ours
            self._release()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._release()

    def _try_it(self) -> bool:
        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _TAKE)
        except BlockingIOError:
            return False
        return True

    def _release(self) -> None:
        try:
            if self._fd >= 0:
                fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _GIVE)
        finally:
            self._threads.release()

    def close(self) -> None:
        """Close the file. The next use opens it again."""
        fd, self._fd = self._fd, -1  # before it is closed: another thread may fork now
        if fd >= 0:
            os.close(fd)

    def after_fork(self) -> None:
        """Give the child a lock of its own, which no thread of the child holds."""
        self._threads = threading.Lock()
        with contextlib.suppress(OSError):
            self.close()


def _reset_after_fork() -> None:
    for mutex in list(_all):
        mutex.after_fork()


os.register_at_fork(after_in_child=_reset_after_fork)
