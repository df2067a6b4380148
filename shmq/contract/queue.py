"""The contract of a queue."""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from shmq.contract.batch import Batch, Packed
from shmq.contract.message import Body, Message, Put
from shmq.contract.stats import Attachment, QueueStats
from shmq.options import QueueOptions


class Loan(abc.ABC):
    """Space in the queue to write one message in place.

    As a context manager it hands out the writable view, commits on success and drops
    the space on an exception.
    """

    @property
    @abc.abstractmethod
    def view(self) -> memoryview:
        """The writable bytes of the body-to-be."""

    @abc.abstractmethod
    def commit(self, size: int | None = None) -> Put:
        """Put the message, its body being the first ``size`` bytes (default: all)."""

    @abc.abstractmethod
    def drop(self) -> None:
        """Give the space back. After a commit this does nothing."""

    @abc.abstractmethod
    def __enter__(self) -> memoryview: ...

    @abc.abstractmethod
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Consumer(abc.ABC):
    """An iterator over a queue's messages that leases some ahead.

    An acknowledgement counts at once; what is acknowledged is set free in batches: when
    the buffer fills, when the iterator waits or closes, and at the latest 10 ms later at
    the next call. Closing it returns what was not handed out, at once and uncounted. The
    lease of a message that waited begins anew when it is handed out.
    """

    @abc.abstractmethod
    def __iter__(self) -> Iterator[Message]: ...

    @abc.abstractmethod
    def __next__(self) -> Message: ...

    @abc.abstractmethod
    def flush(self) -> None:
        """Set free what was acknowledged so far."""

    @abc.abstractmethod
    def close(self) -> None:
        """Flush, return what was not handed out, and end the iteration."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncConsumer(abc.ABC):
    """An asynchronous iterator over a queue's messages that leases some ahead.

    Its messages, their acknowledgements and what closing does are as those of a
    :class:`Consumer`. It is for one task at a time, and gives way to others once for each
    ``prefetch`` messages that it hands out without waiting.
    """

    @abc.abstractmethod
    def __aiter__(self) -> AsyncIterator[Message]: ...

    @abc.abstractmethod
    async def __anext__(self) -> Message: ...

    @abc.abstractmethod
    def flush(self) -> None:
        """Set free what was acknowledged so far."""

    @abc.abstractmethod
    async def aclose(self) -> None:
        """Flush, return what was not handed out, and end the iteration."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


class Queue(abc.ABC):
    """A named queue that any number of processes and threads share.

    Times are in seconds. A ``timeout`` of None waits without limit. ``QueueDeleted``
    may come of every method once the queue is deleted.
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The queue's name."""

    @property
    @abc.abstractmethod
    def options(self) -> QueueOptions:
        """What the queue was made with."""

    @abc.abstractmethod
    def put(
        self,
        body: Body,
        block: bool | None = None,
        timeout: float | None = None,
        *,
        priority: int | None = None,
        group: str | None = None,
        headers: Mapping[str, Any] | None = None,
        delay: float | None = None,
        deliver_at: float | None = None,
        ttl: float | None = None,
        dedupe_id: str | None = None,
        codec: str | None = None,
        reply_to: str | None = None,
        correlation: str | None = None,
    ) -> Put:
        """Put one message.

        ``block`` None waits where the queue's ``overflow`` is ``"block"`` or a timeout
        is given, and raises at once where it is ``"reject"``. ``priority`` defaults to
        the middle one (priorities // 2). ``delay`` is in seconds from now,
        ``deliver_at`` in seconds since 1970. Raises :class:`~shmq.Full`,
        :class:`~shmq.MessageTooLarge`, :class:`~shmq.NoSpace`,
        :class:`~shmq.InvalidOption` for a property out of range, and TypeError for a
        body that msgpack cannot hold.
        """

    @abc.abstractmethod
    def get(self, block: bool = True, timeout: float | None = None) -> Message:
        """Lease the next message. Raises :class:`~shmq.Empty`."""

    def put_nowait(self, body: Body, **properties: Any) -> Put:
        """``put(body, block=False, **properties)``."""
        return self.put(body, False, **properties)

    def get_nowait(self) -> Message:
        """``get(block=False)``."""
        return self.get(False)

    @abc.abstractmethod
    def put_many(
        self,
        bodies: Iterable[Body],
        block: bool | None = None,
        timeout: float | None = None,
        *,
        priority: int | None = None,
        group: str | None = None,
        headers: Mapping[str, Any] | None = None,
        delay: float | None = None,
        ttl: float | None = None,
        codec: str | None = None,
    ) -> int:
        """Put the ``bodies`` in order, as many as fit, and return how many that were.

        The properties are those of every one of them. With ``block`` it waits for the
        rest as ``put`` does; a timeout returns the count so far. A body that can never
        fit raises before any is put.
        """

    @abc.abstractmethod
    def get_many(
        self, max: int, timeout: float | None = None, *, block: bool = True
    ) -> list[Message]:
        """Lease what is there, 1 to ``max`` messages; wait for the first one.

        Returns an empty list if none came within the timeout.
        """

    @abc.abstractmethod
    def get_batch(self, max: int, timeout: float | None = None, *, block: bool = True) -> Batch:
        """``get_many`` for those who want the bodies alone: no object for each message.

        They are settled together. Empty if none came within the timeout.
        """

    @abc.abstractmethod
    def put_packed(
        self,
        data: Body,
        lengths: int | Iterable[int],
        block: bool | None = None,
        timeout: float | None = None,
        *,
        priority: int | None = None,
        group: str | None = None,
        headers: Mapping[str, Any] | None = None,
        delay: float | None = None,
        ttl: float | None = None,
        dedupe_id: str | None = None,
    ) -> Put:
        """Put many records as one message, without an object for each.

        ``data`` is all records, one behind the other; ``lengths`` is the bytes of every
        record, or those of each: a buffer of unsigned 32-bit numbers, or ints. The batch
        is one message with the codec ``"packed"``: it has one sequence number, is leased,
        settled and counted as one, and must fit into ``max_message_bytes``. ``get`` sees
        its body as a list of bytes. Raises what ``put`` raises, and
        :class:`~shmq.InvalidOption` if the lengths do not add up to the data.
        """

    @abc.abstractmethod
    def get_packed(
        self, max: int = 65536, timeout: float | None = None, *, block: bool = True
    ) -> Packed:
        """Lease what is there, up to ``max`` records, and copy them into one buffer.

        A packed batch is never split: the first one comes whole, however large it is.
        Empty if none came within the timeout.
        """

    @abc.abstractmethod
    def ack_many(self, messages: Iterable[Message | int]) -> list[int]:
        """Acknowledge messages, or receipts; returns the receipts that were refused."""

    @abc.abstractmethod
    def nack(self, receipt: int, delay: float | None = None) -> None:
        """``Message.nack`` by receipt."""

    @abc.abstractmethod
    def reject(self, receipt: int) -> None:
        """``Message.reject`` by receipt."""

    @abc.abstractmethod
    def extend(self, receipt: int, seconds: float) -> None:
        """``Message.extend`` by receipt."""

    @abc.abstractmethod
    def consume(
        self, prefetch: int = 64, timeout: float | None = None, *, block: bool = True
    ) -> Consumer:
        """Iterate over messages, leasing up to ``prefetch`` ahead.

        The iteration ends when none came for ``timeout`` seconds (``block=False``: at
        once); by default it never does.
        """

    @abc.abstractmethod
    async def aget(self, timeout: float | None = None) -> Message:
        """``get``, for a task of an event loop: others run while it waits.

        Tasks are served in the order in which they began to wait. One that is cancelled
        has taken nothing. ``timeout`` is in seconds, 0 does not wait. Raises
        :class:`~shmq.Empty`.
        """

    @abc.abstractmethod
    async def aput(
        self,
        body: Body,
        timeout: float | None = None,
        *,
        block: bool | None = None,
        **properties: Any,
    ) -> Put:
        """``put``, for a task of an event loop: others run while it waits for room.

        The properties and what is raised are those of ``put``. A task that is cancelled
        while it waits has put nothing.
        """

    @abc.abstractmethod
    def aconsume(self, prefetch: int = 64, timeout: float | None = None) -> AsyncConsumer:
        """``consume``, for a task of an event loop: ``async for message in ...``.

        The iteration ends when none came for ``timeout`` seconds; by default it never
        does.
        """

    @abc.abstractmethod
    def loan(self, size: int, **properties: Any) -> Loan:
        """Space for a body of ``size`` bytes, to be written in place.

        The properties, ``block`` and ``timeout`` are those of ``put``.
        """

    @abc.abstractmethod
    def peek(self, limit: int = 10) -> list[Message]:
        """The visible messages that would be served first, without leasing them.

        Each is a copy; settling one raises :class:`~shmq.LeaseExpired`.
        """

    @abc.abstractmethod
    def purge(self) -> int:
        """Remove the visible and the delayed messages, and return how many that were."""

    @abc.abstractmethod
    def redrive(self, limit: int | None = None) -> int:
        """Send dead letters back to this queue; returns how many went.

        On a queue with dead letters of its own it takes those that came from it; on a
        dead-letter queue it sends each to the queue it came from.
        """

    @abc.abstractmethod
    def stats(self) -> QueueStats:
        """The queue in numbers."""

    @abc.abstractmethod
    def attachments(self) -> list[Attachment]:
        """Who is attached."""

    @abc.abstractmethod
    def qsize(self) -> int:
        """How many messages are visible."""

    def empty(self) -> bool:
        """Whether no message is visible."""
        return self.qsize() == 0

    @abc.abstractmethod
    def full(self) -> bool:
        """Whether the queue holds as many messages as it may."""

    @abc.abstractmethod
    def close(self) -> None:
        """Detach; what this handle holds leased goes back at once. May be called again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
