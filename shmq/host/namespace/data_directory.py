"""The directory of a namespace's durable data, and the locks of its writer.

A namespace has one directory. The namespace's file names it while the namespace is in memory, and
the host remembers it across reboots: `shmq.host.namespace.directory_record`. A process that names
another one gets :class:`~shmq.WrongDirectory`, unless the namespace's own holds nothing.

There is one writer at a time: it holds flock(2) on ``writer.lock`` in the directory, which names
the namespace, so that no other namespace uses it, and on the namespace's lock of the host.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from shmq.api.names import group_of, name_in_group
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.file_lock import lock_file
from shmq.disk.storage.history import History, read_history
from shmq.disk.storage.inventory import LOCK, holds_data, is_written, writer_of
from shmq.errors import InvalidOption, ShmqError, WrongDirectory
from shmq.host.namespace.directory_record import (
    DirectoryRecord,
    forget_record,
    lock_namespace,
    lock_path,
    read_record,
    record_path,
    state_directory,
    write_record,
)
from shmq.host.namespace.folder import shared_gid
from shmq.host.namespace.namespace import Namespace
from shmq.host.namespace.roles import is_same_directory

log = logging.getLogger("shmq")

_FIRST: Final = "the writer of namespace "
#: How many moves are followed from one directory to the next.
_MOVES: Final = 16


# ---- which directory ----


def chosen_directory(namespace: str, given: str | os.PathLike[str] | None = None) -> Path:
    """The directory that is named: ``given``, or NAMESPACE in ``SHMQ_DATA_DIR``; else its own.

    A ``SHMQ_DATA_DIR`` that itself has the files of this namespace is used as is. An empty
    variable counts as not set. Its own is the one that the host remembers, by default NAMESPACE
    in the state directory of its group or user; where it says that its files were moved, that one.
    Raises :class:`~shmq.InvalidOption` for an empty path, and for a user without a home.
    """
    if given is not None:
        if not os.fspath(given):
            raise InvalidOption("data_dir='' is not a directory: name one, or leave it out")
        return Path(given).absolute()
    named = os.environ.get("SHMQ_DATA_DIR")
    if named:
        directory = Path(named).absolute()
        group = "" if group_of(namespace) is None else "@"  # no other namespace begins with it
        return directory if _is_of(directory, namespace) else directory / f"{group}{namespace}"
    record = read_record(namespace)
    return _follow_moves(
        state_directory(namespace) / name_in_group(namespace) if record is None else record.data_dir
    )


def is_named(given: str | os.PathLike[str] | None = None) -> bool:
    """Whether `chosen_directory` returns a named directory."""
    return given is not None or bool(os.environ.get("SHMQ_DATA_DIR"))


def _follow_moves(directory: Path) -> Path:
    """Where the files are: in the directory, or where moves from it, or to it, have left them."""
    for _ in range(_MOVES):
        history = read_history(Disk(directory))
        former = history.moving_from
        if former is not None and not is_moved(former, directory) and _has_data(former):
            directory = former
        elif history.moved_to is not None:
            directory = history.moved_to
        else:
            break
    return directory


def _has_data(directory: Path) -> bool:
    try:
        return holds_data(directory)
    except OSError:
        return False


def is_moved(former: Path, directory: Path) -> bool:
    """Whether a move of the files from the ``former`` directory to the other is complete."""
    moved_to = read_history(Disk(former)).moved_to
    return moved_to is not None and is_same_directory(moved_to, directory)


def _is_of(directory: Path, namespace: str) -> bool:
    """Whether a writer of the namespace has its files there."""
    try:
        first = (directory / LOCK).read_bytes()[:512].partition(b"\n")[0]
    except OSError:
        return False
    return first == f"{_FIRST}{namespace}".encode()


def directory_of(namespace: Namespace) -> Path:
    """The data directory of the namespace, whether it exists or not.

    Raises :class:`~shmq.WrongDirectory` if the environment names another than the namespace's
    own, and :class:`~shmq.InvalidOption` as `chosen_directory`.
    """
    if not is_named():
        own = namespace.roles.data_dir
        return chosen_directory(namespace.name) if own is None else _follow_moves(own)
    chosen = chosen_directory(namespace.name)
    own = other_directory(namespace, chosen)
    if own is not None:
        raise WrongDirectory(namespace.name, own, chosen)
    return chosen


def writer_directory(namespace: Namespace, given: str | os.PathLike[str] | None) -> Path:
    """The directory of a writer: ``given``, to which it moves the namespace's files, or its own.

    Raises as `directory_of`, and :class:`~shmq.InvalidOption` for an empty path.
    """
    return directory_of(namespace) if given is None else chosen_directory(namespace.name, given)


def other_directory(namespace: Namespace, directory: Path) -> Path | None:
    """The namespace's own directory, if that is another one, and in use; else None.

    It is in use while a writer writes there, or it holds durable data. Raises ShmqError if that
    cannot be read.
    """
    own = namespace.roles.data_dir
    if own is None:
        record = read_record(namespace.name)
        own = record.data_dir if record is not None else directory
    own = _follow_moves(own)
    if is_same_directory(own, directory):
        return None
    try:
        return own if is_written(own) or holds_data(own) else None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ShmqError(
            f"{own}, where namespace {namespace.name!r} keeps its durable data, cannot be read: "
            f"{error.strerror or error}"
        ) from error


def shared_disk(namespace: str, directory: Path) -> Disk:
    """The files of a directory of those who share the namespace."""
    disk = Disk(directory)
    disk.gid = shared_gid(namespace)
    return disk


def refuse_missing(namespace: Namespace, directory: Path) -> None:
    """Raises ShmqError if the host remembers files in the directory, and it has none.

    Its disk may not be mounted. What is in memory is not missing. Needs the registry lock.
    """
    record = read_record(namespace.name)
    if (
        record is not None
        and any(record.memories)  # a writer has written there, and left a history
        and is_same_directory(record.data_dir, directory)
        and namespace.processes.memory not in record.memories
        and read_history(Disk(directory)) == History()
        and not _has_data(directory)
    ):
        raise ShmqError(
            f"{directory}, where namespace {namespace.name!r} keeps its durable data, is missing "
            f"or empty: mount its disk or restore it; if the data is given up, remove "
            f"{record_path(namespace.name)}"
        )


def adopt_directory(namespace: Namespace) -> Path:
    """The data directory, noted as the namespace's, for a process that writes files there.

    Raises what `directory_of` and `Namespace.locked` raise.
    """
    with namespace.locked():
        directory = namespace.roles.adopt_data_dir(directory_of(namespace))
        remember(namespace.name, directory)
        return directory


def remember(namespace: str, directory: Path) -> None:
    """Let the host remember the directory across reboots; a failure is logged."""
    try:
        history = read_history(Disk(directory))
        memories = (*history.earlier, history.memory)
        write_record(namespace, DirectoryRecord(directory.absolute(), memories))
    except (OSError, InvalidOption) as error:
        _warn_of_state(namespace, directory, error)


def _warn_of_state(namespace: str, directory: Path, error: Exception) -> None:
    why = getattr(error, "strerror", None) or error
    log.warning(
        "this host cannot remember that namespace %r keeps its durable data in %s: %s; let "
        "SHMQ_STATE_DIR name a directory for that, or set SHMQ_DATA_DIR for all its processes",
        namespace,
        directory,
        why,
    )


# ---- the writer's hold on it ----


class DataDirectory:
    """The directory of one namespace's files, through ``disk``. For any thread.

    It is created when there is something to write, see `ready`; before that `claim` excludes
    other writers.
    """

    def __init__(self, namespace: str, disk: Disk) -> None:
        self.namespace = namespace
        disk.gid = shared_gid(namespace)
        self.disk = disk
        self._guard = threading.Lock()
        #: The locks that this object holds: of the directory, and of the namespace.
        self._locks: list[int] = []
        self._claimed = False
        #: The directory that counts until its files have been moved here; None: this one counts.
        self.former: Path | None = None
        #: The number of the memory for which this object holds the directory.
        self.memory = 0
        self._taken: list[Callable[[], None]] = []

    @property
    def path(self) -> Path:
        """The path of the directory."""
        return self.disk.directory

    @property
    def held(self) -> bool:
        """Whether this object holds the directory's lock."""
        return bool(self._locks)

    def exists(self) -> bool:
        """Whether the path exists; `ready` refuses one that is not a directory."""
        return self.path.exists()

    def claim(self, *, make: bool) -> None:
        """Be the only process that writes the namespace's queues, until `close`.

        The directory is locked if it exists. With ``make`` it is created, so that no other
        writer takes it before there is something to write. Raises as `ready`.
        """
        if make or self.exists():
            self.ready()
        else:
            self.memory = Namespace.of(self.namespace).roles.become_writer(self.former or self.path)
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
            namespace = Namespace.of(self.namespace)
            namespace.roles.refuse_second_writer(self.former or self.path)
            locks: list[int] = []
            try:
                self._lock(locks)
                self.memory = namespace.roles.become_writer(self.former or self.path)
            except BaseException:
                for lock in locks:
                    os.close(lock)
                raise
            self._locks = locks
        try:
            for call in self._taken:
                call()
        except BaseException:  # the next call tries again
            with self._guard:
                self._claimed = True
                self._release_locks()
            raise

    def _lock(self, locks: list[int]) -> None:
        """Append the locks of the namespace and of the directory. Raises ShmqError."""
        try:
            locks.append(lock_namespace(self.namespace))
        except BlockingIOError:
            if is_written(self.path):
                raise self._make_written_error() from None
            raise ShmqError(
                f"another process writes the durable queues of namespace {self.namespace!r} "
                f"already, and not in {self.path}: end it first "
                f"(fuser {lock_path(self.namespace)} finds it)"
            ) from None
        except (PermissionError, InvalidOption) as error:
            _warn_of_state(self.namespace, self.path, error)
        except OSError as error:
            if error.errno != errno.EROFS:
                raise ShmqError(
                    f"{error.filename or state_directory(self.namespace)} cannot be locked: "
                    f"{error.strerror or error}"
                ) from error
            _warn_of_state(self.namespace, self.path, error)
        try:
            self.disk.make()
            locks.append(lock_file(self.path / LOCK))
            self._sign(locks[-1])
        except BlockingIOError:
            raise self._make_written_error() from None
        except OSError as error:
            raise ShmqError(
                f"data_dir={str(self.path)!r} cannot be used: {error.strerror or error}"
            ) from error

    def _make_written_error(self) -> ShmqError:
        pid = writer_of(self.path)
        return ShmqError(
            f"data_dir={str(self.path)!r}: {f'process {pid}' if pid else 'another process'} writes "
            f"there already; end it first (fuser {self.path / LOCK} finds it), or name another "
            f"directory"
        )

    def _sign(self, lock: int) -> None:
        """Write the namespace and the PID. Raises ShmqError if it is another namespace's."""
        first = os.pread(lock, 512, 0).decode("ascii", "replace").partition("\n")[0]
        other = first.removeprefix(_FIRST)
        if first.startswith(_FIRST) and other != self.namespace:
            raise ShmqError(
                f"data_dir={str(self.path)!r} has the files of namespace {other!r}, not of "
                f"{self.namespace!r}: name another directory; shmq restore takes queues from one "
                f"namespace to another"
            )
        text = f"{_FIRST}{self.namespace}\npid {os.getpid()}\n".encode("ascii")
        os.pwrite(lock, text, 0)  # first: on a full disk the room that a cut frees may be taken
        os.ftruncate(lock, len(text))

    def close(self) -> None:
        """Release the directory, so that another writer can lock it."""
        namespace = Namespace.of(self.namespace)
        with self._guard:
            with contextlib.suppress(OSError):
                if self.held or self._claimed:
                    namespace.roles.release_writer()
                    self._claimed = False
            if self.held:
                with contextlib.suppress(OSError, ShmqError), namespace.locked():
                    if self._is_recorded() and not holds_data(self.path):
                        forget_record(self.namespace)
            self._release_locks()

    def _is_recorded(self) -> bool:
        record = read_record(self.namespace)
        return record is None or is_same_directory(record.data_dir, self.path)

    def _release_locks(self) -> None:
        while self._locks:
            os.close(self._locks.pop())
