"""The contract of a queue."""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from shmq.api.closing import Closing
from shmq.api.options import Confirm, QueueOptions

if TYPE_CHECKING:
    from shmq.api.batch import Batch, Packed
    from shmq.api.bulk import BulkQueue, StagedPublisher
    from shmq.api.message import Body, Message, Put
    from shmq.api.pipeline import Pipeline
    from shmq.api.stats import Attachment, QueueStats


class Loan(abc.ABC):
    """Space in the queue to write one message in place.

    As a context manager it hands out the writable view, commits on success and drops
    the space on an exception.
    """

    @property
    @abc.abstractmethod
    def view(self) -> memoryview:
        """The writable bytes of the body-to-be. Raises ValueError once the loan has ended."""

    @property
    @abc.abstractmethod
    def put(self) -> Put | None:
        """What the commit returned; None before it, and after a drop."""

    @abc.abstractmethod
    def commit(self, size: int | None = None) -> Put:
        """Put the message, its body being the first ``size`` bytes (default: all).

        Raises :class:`~shmq.InvalidOption` for a size that is not within the loan,
        ValueError if the loan has ended, and :class:`~shmq.NotConfirmed`.
        """

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


class Consumer(Closing):
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


class Queue(Closing):
    """A named queue that any number of processes and threads share.

    Times are in seconds. A ``timeout`` of None waits without limit, one of 0 tries once.
    Every method raises :class:`~shmq.QueueDeleted` once the queue is deleted, and
    :class:`~shmq.ShmqError` once the handle is closed. As a context manager it closes
    itself.
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The queue's name."""

    @property
    @abc.abstractmethod
    def options(self) -> QueueOptions:
        """What the queue was made with."""

    @property
    @abc.abstractmethod
    def identity(self) -> int:
        """Which queue this is, a number of 64 bits: one that is made anew by its name has another.

        A durable queue that was brought back keeps its own. Raises :class:`~shmq.Unsupported`
        if the server is too old to say.
        """

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
        confirm: Confirm | None = None,
    ) -> Put:
        """Put one message.

        ``body`` is any buffer, a str, or whatever msgpack holds. ``block`` None waits where
        the queue's ``overflow`` is ``"block"`` or a timeout is given, and raises at once
        elsewhere. ``priority`` is 0 to priorities - 1, higher first, and by default the
        middle one (priorities // 2). ``delay`` is in seconds from now, ``deliver_at`` in
        seconds since 1970: one of the two. ``ttl`` None is the queue's.

        ``confirm="disk"`` returns once the message is in the journal and synced, with
        ``"memory"`` once it is in the queue; None is as the queue's option says. ``block`` is
        about room alone, the timeout bounds both waits. Without that confirmation it raises
        :class:`~shmq.NotConfirmed`: the message is in the queue all the same. A server
        refuses it with :class:`~shmq.NoSpace` or :class:`~shmq.ServerError`, and has taken
        nothing, while the disk fails; and it waits for the disk wherever the option says so.

        Raises :class:`~shmq.Full` if there was no room in time,
        :class:`~shmq.MessageTooLarge` at once for what can never fit, :class:`~shmq.NoSpace`,
        :class:`~shmq.InvalidOption` for a property out of range and for ``confirm="disk"``
        on a queue without a journal, and TypeError for one of the wrong type or a body that
        its codec cannot hold. A str with surrogates in it is a UnicodeEncodeError.
        """

    @abc.abstractmethod
    def get(
        self, block: bool = True, timeout: float | None = None, *, where: str | None = None
    ) -> Message:
        """Lease the next message, for the queue's ``visibility_timeout``.

        Waits for one, unless ``block`` is false. Raises :class:`~shmq.Empty` if none came
        in time.

        ``where`` is an expression over headers and properties, such as ``"header.region = 'eu'
        and priority > 1"``: the first message that it means, of those that could be had now.
        It is asked where the message stands, before anything is leased or copied; the others
        stay, in their order, for everyone else. Of a group the front alone is asked, and holds
        its group if it is not meant. A get looks through all that stands before what it means.
        Raises :class:`~shmq.InvalidOption` for an expression that cannot be read, or asks for
        what is in the body.
        """

    def put_nowait(self, body: Body, **properties: Any) -> Put:
        """``put(body, block=False, **properties)``."""
        return self.put(body, False, **properties)

    def get_nowait(self, *, where: str | None = None) -> Message:
        """``get(block=False, where=where)``."""
        return self.get(False, where=where)

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
        confirm: Confirm | None = None,
    ) -> int:
        """Put the ``bodies`` in order, as many as fit, and return how many that were.

        One str, buffer or map is one body, and refused with TypeError: put it in a list. The
        properties are those of every one of them. With ``block`` it waits for the rest as
        ``put`` does; a timeout returns the count so far, and a short count is no error. A
        body that can never fit, or cannot be encoded, raises before any is put. What ``put``
        raises is raised if none is put, but for :class:`~shmq.Full`; behind the first one it
        ends the call, which returns the count, whatever the size of the bodies. With
        ``confirm="disk"`` it waits once, when they are all put.
        """

    @abc.abstractmethod
    def get_many(
        self,
        max: int,
        timeout: float | None = None,
        *,
        block: bool = True,
        where: str | None = None,
    ) -> list[Message]:
        """Lease what is there, 1 to ``max`` messages; wait for the first one.

        Returns an empty list if none came within the timeout. ``where`` is as ``get`` has it.
        """

    @abc.abstractmethod
    def get_batch(self, max: int, timeout: float | None = None, *, block: bool = True) -> Batch:
        """``get_many`` for those who want the bodies alone: no object for each message.

        They are settled together. Empty if none came within the timeout. Raises
        :class:`~shmq.ShmqError` for a body that is not what its codec says: that message
        stays leased, by the receipt in the error, and the others are in the queue again.
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
        confirm: Confirm | None = None,
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
        """Lease what is there until there are ``max`` records, and copy them into one buffer.

        A packed batch is never split: the one with which there are so many comes whole,
        however large it is. A body that says it is packed and is not is one record. Empty if
        none came within the timeout.
        """

    @abc.abstractmethod
    def ack_many(self, messages: Iterable[Message | int]) -> list[int]:
        """Acknowledge messages, or receipts; returns the receipts that were refused.

        Raises TypeError, before any is settled, for what is neither.
        """

    @abc.abstractmethod
    def ack(self, receipt: int) -> None:
        """``Message.ack`` by receipt, from any process.

        Raises :class:`~shmq.LeaseExpired`.
        """

    @abc.abstractmethod
    def nack(self, receipt: int, delay: float | None = None) -> None:
        """``Message.nack`` by receipt, from any process.

        Raises :class:`~shmq.LeaseExpired`.
        """

    @abc.abstractmethod
    def reject(self, receipt: int) -> None:
        """``Message.reject`` by receipt, from any process.

        Raises :class:`~shmq.LeaseExpired`.
        """

    @abc.abstractmethod
    def extend(self, receipt: int, seconds: float) -> None:
        """``Message.extend`` by receipt, from any process.

        Raises :class:`~shmq.LeaseExpired`.
        """

    @abc.abstractmethod
    def consume(
        self,
        prefetch: int = 64,
        timeout: float | None = None,
        *,
        block: bool = True,
        where: str | None = None,
    ) -> Consumer:
        """Iterate over messages, leasing up to ``prefetch`` ahead, 1 to 1,048,576.

        The iteration ends when none came for ``timeout`` seconds (``block=False``: at
        once); by default it never does. A message whose lease ran out while it waited is
        skipped: it is back in the queue. ``where`` is as ``get`` has it.
        """

    @abc.abstractmethod
    async def aget(self, timeout: float | None = None, *, where: str | None = None) -> Message:
        """``get``, for a task of an event loop: others run while it waits.

        Tasks are served in the order in which they began to wait. One that is cancelled
        has taken nothing. ``timeout`` is in seconds, 0 does not wait. ``where`` is as ``get``
        has it; each task looks at every message that comes. Raises :class:`~shmq.Empty`.
        """

    @abc.abstractmethod
    async def aput(
        self,
        body: Body,
        timeout: float | None = None,
        *,
        block: bool | None = None,
        confirm: Confirm | None = None,
        **properties: Any,
    ) -> Put:
        """``put``, for a task of an event loop: others run while it waits.

        When it waits, the properties and what is raised are as with ``put``: a full queue
        whose ``overflow`` is ``"reject"`` refuses, unless there is ``block=True`` or a
        ``timeout``. A task that is cancelled while it waits for room has put nothing; one
        that waits for the disk has put its message.
        """

    @abc.abstractmethod
    def aconsume(
        self, prefetch: int = 64, timeout: float | None = None, *, where: str | None = None
    ) -> AsyncConsumer:
        """``consume``, for a task of an event loop: ``async for message in ...``.

        The iteration ends when none came for ``timeout`` seconds; by default it never
        does. ``where`` is as ``get`` has it.
        """

    @abc.abstractmethod
    def loan(self, size: int, **properties: Any) -> Loan:
        """Space for a body of ``size`` bytes, to be written in place.

        The properties, ``block``, ``timeout`` and ``confirm`` are those of ``put``, and so is
        what is raised; it is the commit that waits for the disk, as long as ``timeout``. The
        loan of a duplicate has space that goes nowhere.
        """

    @abc.abstractmethod
    def pipeline(self, window: int = 64, *, confirm: Confirm | None = None) -> Pipeline:
        """Many puts under way at a time, up to ``window``: ``with queue.pipeline() as pipe``.

        For queues of a server, where a put by itself waits for its answer, and for puts that
        are to be on disk (``confirm``, of which each put may have its own), which then share
        their syncs; else it is a put after the other on this host. Raises
        :class:`~shmq.InvalidOption` for a window below 1, and for ``confirm="disk"`` on a
        queue without a journal.
        """

    @abc.abstractmethod
    def peek(self, limit: int = 10, *, where: str | None = None) -> list[Message]:
        """The visible messages that would be served first, at most ``limit``, not leased.

        Each is a copy; settling one raises :class:`~shmq.LeaseExpired`. It looks at the
        whole queue, so it costs more the more there is in it. ``where`` is an expression as
        ``redrive`` takes one, the body included: only those that it means.
        """

    @abc.abstractmethod
    def purge(self) -> int:
        """Remove the visible and the delayed messages, and return how many that were.

        Leased ones stay. The memory that was theirs goes back to the system.
        """

    @abc.abstractmethod
    def redrive(self, limit: int | None = None, *, where: str | None = None) -> int:
        """Send dead letters back to this queue; returns how many went.

        On a queue with dead letters of its own it takes those that came from it; on a
        dead-letter queue it sends each to the queue it came from. The oldest go first, at
        most ``limit`` (None: all), until a queue is full; :class:`~shmq.Full` or
        :class:`~shmq.NoSpace` is raised only if none could go.

        ``where`` is an expression, such as ``"reason = 'expired' and age < 2h"``: only those
        go for which it is true. Raises :class:`~shmq.InvalidOption` for one that cannot be
        read, and :class:`~shmq.Unsupported` if the server is too old for it.
        """

    # ---- very many messages at once ----

    @abc.abstractmethod
    def bulk(self) -> BulkQueue:
        """This queue for those who read, lease and settle very many messages at once."""

    @abc.abstractmethod
    def staged_publisher(self, publisher: str) -> StagedPublisher:
        """What stages batches of rows for this queue, and puts each into it exactly once.

        ``publisher`` names the job or query that makes these batches, one after the other;
        it is 1 to 200 bytes of UTF-8. Raises :class:`~shmq.InvalidOption` and TypeError.
        """

    # ---- what the queue has ----

    @abc.abstractmethod
    def stats(self) -> QueueStats:
        """The queue in numbers."""

    @abc.abstractmethod
    def attachments(self) -> list[Attachment]:
        """Who is attached: each open handle of each process, this one included."""

    @abc.abstractmethod
    def qsize(self) -> int:
        """How many messages are visible, those behind their group's one in flight included."""

    def empty(self) -> bool:
        """Whether no message is visible."""
        return self.qsize() == 0

    @abc.abstractmethod
    def full(self) -> bool:
        """Whether the queue holds as many messages as it may.

        Bytes do not count here: a put may find no room for its body before.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Detach; what this handle holds leased goes back at once. May be called again."""
