"""The contracts of locks and semaphores between processes."""

from __future__ import annotations

import abc
import dataclasses
from types import TracebackType
from typing import Final, Literal, Self

#: The most permits of a semaphore.
MAX_PERMITS: Final = 10_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LockHolder:
    """One who holds a lock or a permit, or waits for it."""

    #: The process id, as in `Attachment`; of a remote client, that of the server's process. 0: the
    #: process cannot be seen from here.
    pid: int
    #: The name of that process.
    name: str
    #: Since when it has held it, or waited for it, in seconds since 1970.
    since: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LockSummary:
    """One entry of the list of locks and semaphores."""

    #: Its name.
    name: str
    #: What it is.
    kind: Literal["lock", "semaphore"]
    #: How many may hold it at the same time.
    permits: int
    #: Those who hold it, the first one first.
    holders: list[LockHolder]
    #: Those who wait, in the order in which they get it.
    waiters: list[LockHolder]


class Semaphore(abc.ABC):
    """A number of permits that processes share: ``with`` takes one, and returns it at the end.

    A permit is held until it is released, its broker is closed, or its process or, over TCP, its
    connection ends: the permit of a dead process is free within 100 ms, or later if all cores are
    busy. A process that is stopped keeps its permit; no timer takes it away. Those who wait get
    permits in the order in which they began to wait; one that is next, and does not take a free
    permit for 30 to 100 ms, because it is stopped, say, may be passed.

    In a NATS cluster a permit is a lease of 10 seconds, which the client extends: a dead holder's
    permit is free when its lease ends, a holder that is stopped or cut off for longer loses it, and
    those who wait get permits in no order.

    Threads and tasks may share a handle, and each acquire takes one more permit: a thread that
    holds the only permit of a handle and acquires again waits for another thread to release it. The
    child of a fork holds nothing that its parent holds, and a pickled handle holds nothing where it
    is unpickled.
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Its name."""

    @property
    @abc.abstractmethod
    def permits(self) -> int:
        """How many permits there are."""

    @abc.abstractmethod
    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        """Take a permit; whether one was taken.

        ``block=False`` takes one only if that is possible at once. ``timeout`` is in seconds, 0
        does not wait; None: that of the handle. Raises :class:`~shmq.InvalidOption` or TypeError
        for an invalid timeout, :class:`~shmq.ShmqError` if the broker is closed, and over TCP
        :class:`~shmq.ConnectionLost` if the server stays away, and :class:`~shmq.NoSuchQueue` or
        :class:`~shmq.Forbidden` if the token lacks a right.
        """

    @abc.abstractmethod
    async def aacquire(self, block: bool = True, timeout: float | None = None) -> bool:
        """``acquire`` for asyncio. A cancelled task has taken nothing."""

    @abc.abstractmethod
    def release(self) -> None:
        """Return a permit that this handle holds, from any thread.

        Raises :class:`~shmq.LockNotHeld` if it holds none: it was not acquired by this handle, was
        released, or was lost with the connection, or in a NATS cluster by the end of its lease.
        """

    @abc.abstractmethod
    async def arelease(self) -> None:
        """``release`` for asyncio."""

    @abc.abstractmethod
    def locked(self) -> bool:
        """Whether no permit is free."""

    @abc.abstractmethod
    def holders(self) -> list[LockHolder]:
        """Those who hold a permit, of any process; one who holds several is in it several times.

        Raises :class:`~shmq.Unsupported` in a NATS cluster.
        """

    @abc.abstractmethod
    def waiters(self) -> list[LockHolder]:
        """Those who wait for a permit, in the order in which they get one.

        Raises :class:`~shmq.Unsupported` in a NATS cluster.
        """

    @abc.abstractmethod
    def _make_timeout_error(self) -> Exception:
        """Return the error of a block that could not be entered in time."""

    def __enter__(self) -> Self:
        if not self.acquire():
            raise self._make_timeout_error()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    async def __aenter__(self) -> Self:
        if not await self.aacquire():
            raise self._make_timeout_error()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.arelease()


class Lock(Semaphore):
    """A semaphore with one permit, which is the lock. It is not re-entrant."""

    @abc.abstractmethod
    def holder(self) -> LockHolder | None:
        """The one who holds the lock; None: it is free.

        Raises :class:`~shmq.Unsupported` in a NATS cluster.
        """
