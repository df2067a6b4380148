"""An anonymous queue: its files, and how long it lives.

In /dev/shm, mode 0600, in a namespace of its own for each user:

``mp.shmq@NAMESPACE@NAME``
    the words that all handles share. The file also decides how long the queue lives: every
    process with a handle has it open with a shared flock(2). A forked child inherits the
    lock with the descriptor, a started process is given it, and the kernel releases it
    with the last descriptor, however the processes died. Made first, removed last.
``shmq@NAMESPACE@NAME``
    the queue of the messages.
``shmq@NAMESPACE@NAME.done``
    the wakeups of processes that wait in ``join``, made at the first wait.

NAME is the number of the process that made the queue, a dot and a count. Closing or dropping
the last handle removes all of its files. Queues left by killed processes are removed when the
next queue is made, or by ``shmq doctor --fix``: a queue is unused if its maker is dead and its
lock is free.

The lock order is registry first, queue second. A mutex may be held around both.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import itertools
import mmap
import os
import re
from collections.abc import Iterator
from multiprocessing import util
from pathlib import Path
from typing import Any, Final

from shmq.api import names
from shmq.api.names import SHM
from shmq.api.options import MAX_ARENA, MIN_ARENA
from shmq.client.local.broker import LocalBroker
from shmq.client.local.queue import LocalQueue
from shmq.errors import Full, NoSpace, NoSuchQueue, ShmqError
from shmq.host.namespace.folder import file_path, list_folder
from shmq.host.namespace.namespace import Namespace
from shmq.mp.mutex import Mutex
from shmq.native._core import MAX_CAPACITY, reserve_standard
from shmq.native.descriptors import open_file

#: The words, each of 64 bits. SHUT is 0, DRAINING or IMMEDIATE; DONE counts the calls of
#: task_done and the messages that a shutdown discarded; JOINING is 1 while a process may wait
#: for the tasks to end; IDLE counts how often no task was left.
SHUT, DONE, JOINING, IDLE = range(4)
DRAINING, IMMEDIATE = 1, 2

_BYTES: Final = 32
_BODY_LIMIT: Final = (1 << 32) - 1
_NAME: Final = re.compile(r"(\d+)\.\d+\Z", re.ASCII)
#: The visibility timeout, in seconds: when a message comes back whose getter was interrupted
#: between leasing and acknowledging it.
_LEASE: Final = 10.0

#: Runs after an exiting process has closed every handle: see multiprocessing.util.
_LAST: Final = -20

_count = itertools.count(1)

_retiring: set[tuple[int, str]] = set()


def default_namespace() -> str:
    """The namespace of new queues: ``SHMQ_MP_NAMESPACE``, or else one for each user."""
    return os.environ.get("SHMQ_MP_NAMESPACE") or names.user_namespace("mp")


class Store:
    """One hold on an anonymous queue."""

    def __init__(self, namespace: Namespace, name: str, fd: int, queue: LocalQueue) -> None:
        """Take the hold: ``fd``, the open file of the words, has a shared lock."""
        self.namespace = namespace
        self.name = name
        self.queue = queue
        reserve_standard()
        self._map = mmap.mmap(fd, _BYTES)  # duplicates the descriptor
        self.words = words = memoryview(self._map).cast("Q")
        queue.interrupted = lambda: words[SHUT] != 0
        self.mutex = Mutex(_make_path(namespace, name))
        self._lifeline = -1
        self._wakeups: LocalQueue | None = None
        self._closed = False
        _retire_at_exit(namespace)

    # ---- making and finding ----

    @classmethod
    def create(cls, maxsize: int, namespace_name: str | None = None, **options: Any) -> Store:
        """A new queue of at most ``maxsize`` messages; 0 or less: as many as fit.

        ``options`` are those of the queue that differ from those of multiprocessing's queues.
        Raises NoSpace, and ForeignSegment if another user's namespace has the name.
        """
        namespace = Namespace.of(namespace_name or default_namespace())
        with namespace.locked():
            return cls._make(namespace, maxsize, options)

    @classmethod
    def _make(cls, namespace: Namespace, maxsize: int, options: dict[str, Any]) -> Store:
        number = namespace.processes.own_number()
        for left in abandoned(namespace):
            with contextlib.suppress(OSError, ShmqError):
                remove(namespace, left)
        name = f"{number}.{next(_count)}"
        fd = _make_words(_make_path(namespace, name))
        try:
            return cls(namespace, name, fd, _make_queue(namespace, name, maxsize, options))
        except BaseException:
            remove(namespace, name)
            raise
        finally:
            os.close(fd)

    @classmethod
    def attach(cls, namespace_name: str, name: str) -> Store:
        """Another hold on a queue. Raises NoSuchQueue if no process held it any more."""
        namespace = Namespace.of(namespace_name)
        with namespace.locked():
            try:
                fd = open_file(
                    _make_path(namespace, name), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
                )
            except FileNotFoundError:
                raise NoSuchQueue(
                    f"queue {name!r} was removed when its last handle was closed: keep "
                    f"a handle until the receiver has what you send"
                ) from None
            try:
                fcntl.flock(fd, fcntl.LOCK_SH)
                return cls(namespace, name, fd, LocalBroker(namespace_name).queue(name))
            finally:
                os.close(fd)

    def lifeline(self) -> int:
        """A descriptor of which every duplicate holds the queue."""
        if self._lifeline < 0:
            fd = open_file(_make_path(self.namespace, self.name), os.O_RDWR | os.O_CLOEXEC)
            fcntl.flock(fd, fcntl.LOCK_SH)
            self._lifeline = fd
        return self._lifeline

    # ---- tasks ----

    def unfinished(self) -> int:
        """How many of the put messages are not done. Needs the mutex."""
        return self.queue.last_sequence - self.words[DONE]

    def count_done(self, count: int) -> None:
        """Count tasks as done; if none is left, wake the processes in ``join``. Needs the mutex."""
        self.words[DONE] += count
        if count and not self.unfinished():
            self.words[IDLE] += 1
            if self.words[JOINING]:
                self.words[JOINING] = 0
                self.wake()

    def discard(self) -> None:
        """Discard the messages; each counts as done."""
        with self.mutex:
            self.count_done(self.queue.purge())

    def wake(self) -> None:
        """Wake one process that waits in ``join``, or the next one that will."""
        with contextlib.suppress(Full):  # a wakeup is pending; its receiver sends another
            self.wakeups().put(b"", False)

    def wakeups(self) -> LocalQueue:
        """The queue of wakeups: each woken process puts a wakeup for the next."""
        if self._wakeups is None:
            self._wakeups = LocalBroker(self.namespace.name).ensure_queue(
                f"{self.name}.done",
                if_different="accept",
                capacity=1,
                arena_bytes=MIN_ARENA,
                visibility_timeout=_LEASE,
                max_deliveries=None,
                dead_letter=None,
                priorities=1,
                overflow="drop-oldest",
            )
        return self._wakeups

    # ---- the end ----

    def close(self) -> None:
        """Close the hold; the last one removes the queue. May be called again."""
        if self._end():
            _release(self.namespace, self.name)

    def drop(self) -> None:
        """Close the hold from a destructor, once the namespace is free.

        The garbage collector may run while another queue is being made. If this queue was the
        last one in the namespace, closing it at once would end the namespace during that.
        """
        if self._end():
            self.namespace.processes.run_when_unlocked(
                functools.partial(_release, self.namespace, self.name)
            )

    def _end(self) -> bool:
        """Close all descriptors; False if that was done before."""
        if self._closed:
            return False
        self._closed = True
        self.queue.close()
        if self._wakeups is not None:
            self._wakeups.close()
        self.mutex.close()
        lifeline, self._lifeline = self._lifeline, -1
        if lifeline >= 0:
            os.close(lifeline)
        self.words.release()
        self._map.close()
        return True

    def __del__(self) -> None:
        if hasattr(self, "_closed"):  # the constructor has set everything that drop() needs
            self.drop()


def _release(namespace: Namespace, name: str) -> None:
    with contextlib.suppress(OSError, ShmqError):  # the next create removes what is left
        with namespace.locked():
            if _is_unused(namespace, name):
                remove(namespace, name)
        namespace.retire()


def _retire_at_exit(namespace: Namespace) -> None:
    """Remove the namespace's file at exit, no matter which process removed the last queue."""
    process = os.getpid(), namespace.name
    if process not in _retiring:
        _retiring.add(process)
        util.Finalize(None, namespace.retire, exitpriority=_LAST)


def _make_path(namespace: Namespace, name: str) -> Path:
    return file_path(namespace.name, "mp.", f"@{name}")


def _make_words(path: Path) -> int:
    """Make the file, allocate and lock it; returns the open descriptor."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        fd = open_file(path, flags)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH)
            os.posix_fallocate(fd, 0, _BYTES)
        except BaseException:
            path.unlink()
            os.close(fd)
            raise
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT, errno.ENOMEM}:
            raise
        raise NoSpace(f"no queue can be made in {SHM}: {error}; give it more room") from error
    return fd


def _make_queue(
    namespace: Namespace, name: str, maxsize: int, options: dict[str, Any]
) -> LocalQueue:
    space = os.statvfs(SHM)
    arena = max(MIN_ARENA, min(space.f_blocks * space.f_frsize, MAX_ARENA))
    defaults = {
        "capacity": min(maxsize, MAX_CAPACITY) if maxsize > 0 else MAX_CAPACITY,
        "arena_bytes": arena,
        "max_message_bytes": min(arena, _BODY_LIMIT),
        "visibility_timeout": _LEASE,
        "max_deliveries": None,
        "dead_letter": None,
        "priorities": 1,
        "retry_delay": 0.0,
        "overflow": "block",
    }
    return LocalBroker(namespace.name).create_queue(name, **defaults | options)


# ---- removing: all of these need the registry lock ----


def abandoned(namespace: Namespace) -> Iterator[str]:
    """The names of the queues that no process holds and whose makers are dead."""
    prefix = _make_path(namespace, "").name
    for entry in sorted(list_folder(namespace.name)):
        parts = _NAME.match(entry.removeprefix(prefix)) if entry.startswith(prefix) else None
        if parts is None or namespace.processes.is_alive(int(parts[1])):
            continue
        if _is_unused(namespace, parts[0]):
            yield parts[0]


def remove(namespace: Namespace, name: str) -> None:
    """Remove all files of a queue, the words last, so that removal can be resumed."""
    broker = LocalBroker(namespace.name)
    for queue in (f"{name}.done", name):
        with contextlib.suppress(NoSuchQueue):
            broker.delete_queue(queue)
    _make_path(namespace, name).unlink(missing_ok=True)


def _is_unused(namespace: Namespace, name: str) -> bool:
    """Whether the queue's words exist and no process holds them."""
    try:
        fd = open_file(_make_path(namespace, name), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:  # gone, or another user's
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True
