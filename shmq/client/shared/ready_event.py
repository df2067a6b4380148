"""A file descriptor that tells of messages: for event loops other than asyncio's own waits."""

from __future__ import annotations

import abc
import contextlib
import os
import sys
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from shmq import api
from shmq.api.contract import Closing, unwrapped
from shmq.errors import InvalidOption, ShmqError, no_descriptor
from shmq.fork_safe import new_lock
from shmq.native._core import reserve_standard


class ReadyWatch(abc.ABC):
    """Watches one queue: it tells once when a message may have come, until it is armed again.

    A class of queues that can be waited for names its own as ``READY_WATCH``.
    """

    @abc.abstractmethod
    def __init__(self, queue: Any, descriptor: Descriptor) -> None: ...

    @abc.abstractmethod
    def arm(self) -> bool:
        """Tell of a message from now on; whether there may be one already.

        Raises ShmqError, such as LockTimeout and QueueDeleted.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """End it: it tells no more once a call that has started is over."""

    @staticmethod
    @abc.abstractmethod
    def look(queues: Sequence[Any]) -> list[bool | ShmqError]:
        """For each of these queues of its kind: whether it may have a message, or the error."""


class ReadyEvent(Closing):
    """A file descriptor that is readable while one of the queues may have a message.

    For selectors, poll, `loop.add_reader` and the like. The queues may be local and remote ones,
    of any number of brokers. It stays readable until `clear` finds that none of them has a message
    left; so clear it after the queues of `ready` were read, or before. Messages are taken with
    ``block=False``, for another consumer may be faster. A queue that was deleted, or whose server
    is gone, makes it readable too, for the next get says why. The child of a fork has a descriptor
    of its own from its first call of `fileno` on.

    Raises :class:`~shmq.InvalidOption` for no queues, TypeError for anything but queues,
    :class:`~shmq.Unsupported` for a queue of a server that cannot do it, and OSError if there is no
    file descriptor left.
    """

    def __init__(self, queues: Iterable[api.Queue]) -> None:
        self._queues = watchable(queues)
        self._lock = new_lock()
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._descriptor = Descriptor()
        self._watches: list[ReadyWatch] = []
        _all.add(self)
        try:
            for queue in self._queues:
                self._watches.append(queue.READY_WATCH(queue, self._descriptor))
        except BaseException:
            self._end()
            raise
        self._descriptor.set()
        self.clear()

    def fileno(self) -> int:
        """The descriptor. Do not read, write or close it. Raises ShmqError once it is closed."""
        with self._lock:
            if self._closed:
                raise ShmqError("this ReadyEvent is closed")
            if self._descriptor.is_closed:  # by a fork
                self._begin()
            return self._descriptor.fd

    def clear(self) -> None:
        """Make it unreadable, unless a queue may have a message: then it is readable after that."""
        if not self._descriptor.unset():
            return
        readable = False
        for watch in self._watches:
            try:
                readable |= watch.arm()
            except (ShmqError, OSError):
                readable = True  # the next get says why
        if readable:
            self._descriptor.set()

    def ready(self) -> list[api.Queue]:
        """The queues that may have a message, or whose next get says why not, as they were given.

        Asks each server once.
        """
        found = look(self._queues)
        return [given for plain, given in self._queues.items() if found[plain] is not False]

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def close(self) -> None:
        """Close the descriptor. Take it out of its selector first. May be called again."""
        with self._lock:
            self._closed = True
            self._end()

    def _end(self) -> None:
        watches, self._watches = self._watches, []
        self._descriptor.close()
        for watch in watches:
            watch.close()

    def forked(self) -> None:
        """In the child of a fork: leave the parent's descriptor and watches to the parent."""
        self._descriptor.forked()
        self._watches = []

    def __del__(self) -> None:
        # At the end of the interpreter a thread that has stopped may hold a lock that this takes.
        if hasattr(self, "_watches") and not sys.is_finalizing():
            self._end()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"descriptor {self._descriptor.fd}"
        return f"<ReadyEvent of {len(self._queues)} queues, {state}>"


class Descriptor:
    """An eventfd, readable between a `set` and the next `unset`.

    A caller that looks at what it tells of after an `unset` misses nothing. A signal handler may
    come between any two steps: so `set` writes before it stores, and `unset` stores before it
    reads, and ``is_set`` is never false while it is readable.
    """

    def __init__(self) -> None:
        try:
            reserve_standard()
            self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except OSError as error:
            raise no_descriptor(error) from None
        self.is_set = False
        #: How often it was set, and was unset.
        self.unsets = 0
        self._lock = new_lock()

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, by `close` or by a fork."""
        return self.fd < 0

    def set(self, since: int | None = None) -> None:
        """Make it readable; with the number of ``unsets`` of then, unless it was unset since.

        That is for a thread that looks and then sets it: what it saw may be taken in the meantime,
        and the caller of the `unset` has looked itself.
        """
        with self._lock:
            if self.fd >= 0 and since in {None, self.unsets}:
                os.eventfd_write(self.fd, 1)
                self.is_set = True

    def unset(self) -> bool:
        """Make it unreadable; whether it was set."""
        with self._lock, contextlib.suppress(BlockingIOError):
            was_set, self.is_set = self.is_set, False
            self.unsets += was_set  # its caller looks if it was set
            if was_set and self.fd >= 0:
                os.eventfd_read(self.fd)
        return was_set

    def close(self) -> None:
        """Close it. May be called again."""
        with self._lock:
            fd, self.fd = self.fd, -1
            if fd >= 0:
                os.close(fd)

    def forked(self) -> None:
        """Close it in the child of a fork, in which no other thread is left."""
        self.close()
        self.is_set = False

    def __del__(self) -> None:
        if getattr(self, "fd", -1) >= 0 and not sys.is_finalizing():
            self.close()


def watchable(queues: Iterable[api.Queue]) -> dict[Any, api.Queue]:
    """The queues, each with the handle that was given, which may be a proxy.

    Raises TypeError for anything but queues that can be waited for, and InvalidOption for none.
    """
    if hasattr(unwrapped(queues), "READY_WATCH"):
        raise TypeError(f"{queues!r} is one queue, not many: put it in a list")
    found: dict[Any, api.Queue] = {}
    for queue in dict.fromkeys(queues):
        plain = unwrapped(queue)
        if not hasattr(plain, "READY_WATCH"):
            raise TypeError(f"{queue!r:.60} is not a queue that can be waited for")
        found[plain] = queue
    if not found:
        raise InvalidOption("queues=[] names no queue to wait for")
    return found


def look(queues: Iterable[Any]) -> dict[Any, bool | ShmqError]:
    """Whether each of the queues may have a message, or why its next get fails."""
    by_kind: dict[type[ReadyWatch], list[Any]] = {}
    for queue in queues:
        by_kind.setdefault(queue.READY_WATCH, []).append(queue)
    found: dict[Any, bool | ShmqError] = {}
    for kind, some in by_kind.items():
        found.update(zip(some, kind.look(some), strict=True))
    return found


def descriptor_of(queue: Any) -> int:
    """The descriptor of the queue's own ReadyEvent, ``ready_event``, which is made at first."""
    with _making:
        if queue.ready_event is None:
            queue.ready_event = ReadyEvent([queue])
        descriptor: int = queue.ready_event.fileno()
        return descriptor


_all: weakref.WeakSet[ReadyEvent] = weakref.WeakSet()
_making = new_lock()


def _in_child() -> None:
    for event in list(_all):
        event.forked()


os.register_at_fork(after_in_child=_in_child)
