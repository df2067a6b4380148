"""The directory of a namespace's durable queues, and the lock of its writer.

There is one writer at a time: it holds flock(2) on ``writer.lock``, which the kernel releases
when it dies. The file names the namespace, so that no other namespace uses the directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from shmq.errors import InvalidOption, ShmqError
from shmq.namespace.namespace import Namespace
from shmq.native.descriptors import open_file
from shmq.storage.disk import Disk
from shmq.storage.inventory import LOCK, writer_of

__all__ = ["DataDirectory", "chosen_directory", "is_named"]

_SYSTEM: Final = Path("/var/lib")
_FIRST: Final = "the writer of namespace "


def chosen_directory(namespace: str, given: str | os.PathLike[str] | None = None) -> Path:
    """The directory of the files: ``given``, else NAMESPACE in the directory of all namespaces.

    That one is ``SHMQ_DATA_DIR``, or else ``/var/lib/shmq`` for root, and for other users
    ``shmq`` in ``XDG_STATE_HOME``, by default ``~/.local/state``. A ``SHMQ_DATA_DIR`` that itself
    has the files of this namespace is used as it is. An empty variable counts as not set. Raises
    :class:`~shmq.InvalidOption` for an empty path, and for a user without a home.
    """
    if given is not None:
        if not os.fspath(given):
            raise InvalidOption("data_dir='' is no directory: name one, or leave it out")
        return Path(given).absolute()
    named = os.environ.get("SHMQ_DATA_DIR")
    if named:
        directory = Path(named).absolute()
        return directory if _is_of(directory, namespace) else directory / namespace
    return _state_home() / "shmq" / namespace


def is_named(given: str | os.PathLike[str] | None) -> bool:
    """Whether `chosen_directory` returns a named directory, not the default."""
    return given is not None or bool(os.environ.get("SHMQ_DATA_DIR"))


def _is_of(directory: Path, namespace: str) -> bool:
    """Whether a writer of the namespace has its files there."""
    try:
        told = (directory / LOCK).read_bytes()[:512].partition(b"\n")[0]
    except OSError:
        return False
    return told == f"{_FIRST}{namespace}".encode()


def _state_home() -> Path:
    if os.geteuid() == 0:
        return _SYSTEM
    named = Path(os.environ.get("XDG_STATE_HOME", ""))
    if named.is_absolute():  # the XDG specification says to ignore a relative path
        return named
    try:
        return Path.home() / ".local" / "state"
    except RuntimeError as error:
        raise InvalidOption(
            "this user has no home directory to keep queues in: name a directory with "
            "data_dir, --data-dir or SHMQ_DATA_DIR"
        ) from error


class DataDirectory:
    """The directory of one namespace's files, through ``disk``. For any thread.

    It is created when there is something to write, see `ready`; before that `claim` excludes
    other writers.
    """

    def __init__(self, namespace: str, disk: Disk) -> None:
        self.namespace = namespace
        self.disk = disk
        self._guard = threading.Lock()
        self._lock = -1
        self._claimed = False
        self._taken: list[Callable[[], None]] = []

    @property
    def path(self) -> Path:
        """The path of the directory."""
        return self.disk.directory

    @property
    def held(self) -> bool:
        """Whether this object holds the directory's lock."""
        return self._lock >= 0

    def exists(self) -> bool:
        """Whether the path exists; `ready` refuses one that is no directory."""
        return self.path.exists()

    def claim(self, *, make: bool) -> None:
        """Be the only process that writes the namespace's queues, until `close`.

        The directory is locked if it exists. With ``make`` it is created, so that no other
        writer takes it before there is something to write. Raises as `ready`.
        """
        if make or self.exists():
            self.ready()
        else:
            Namespace.of(self.namespace).become_writer(self.path)
            self._claimed = True

    def when_taken(self, call: Callable[[], None]) -> None:
        """Call ``call`` once the directory is locked."""
        self._taken.append(call)

    def ready(self) -> None:
        """Create the directory if needed, and be its only writer until `close`. Does it once.

        The namespace's file has its path from now on. Raises :class:`~shmq.ShmqError` if another
        process writes there, or writes this namespace's queues elsewhere, if the directory is
        another namespace's, or if it cannot be created.
        """
        with self._guard:
            if self.held:
                return
            Namespace.of(self.namespace).refuse_second_writer(self.path)
            try:
                self.disk.make()
                lock = self._take()
            except OSError as error:
                raise ShmqError(
                    f"data_dir={str(self.path)!r} cannot be used: {error.strerror or error}"
                ) from error
            try:
                Namespace.of(self.namespace).become_writer(self.path)
            except BaseException:
                os.close(lock)
                raise
            self._lock = lock
        for call in self._taken:
            call()

    def _take(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        lock = open_file(self.path / LOCK, flags, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._sign(lock)
        except BlockingIOError:
            os.close(lock)
            raise ShmqError(
                f"data_dir={str(self.path)!r}: {_who_writes(self.path)} writes there already; end "
                f"it first (fuser {self.path / LOCK} finds it), or name another directory"
            ) from None
        except BaseException:
            os.close(lock)
            raise
        return lock

    def _sign(self, lock: int) -> None:
        """Write the namespace and the PID. Raises ShmqError if it is another namespace's."""
        told = os.pread(lock, 512, 0).decode("ascii", "replace").partition("\n")[0]
        other = told.removeprefix(_FIRST)
        if told.startswith(_FIRST) and other != self.namespace:
            raise ShmqError(
                f"data_dir={str(self.path)!r} has the files of namespace {other!r}, not of "
                f"{self.namespace!r}: name another directory; shmq restore takes queues from one "
                f"namespace to another"
            )
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{_FIRST}{self.namespace}\npid {os.getpid()}\n".encode("ascii"), 0)

    def close(self) -> None:
        """Release the directory, so that another writer can lock it."""
        with self._guard, contextlib.suppress(OSError):
            if self.held or self._claimed:
                Namespace.of(self.namespace).release_writer()
                self._claimed = False
            if self.held:
                os.close(self._lock)
                self._lock = -1


def _who_writes(path: Path) -> str:
    pid = writer_of(path)
    return f"process {pid}" if pid else "another process"
