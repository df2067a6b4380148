"""The contract of a queue."""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from shmq.api.contract import AsyncClosing, Closing
from shmq.api.options import Confirm, Level, QueueOptions
from shmq.display import Displayed

if TYPE_CHECKING:
    import datetime as dt

    from shmq.api.batch import Batch, Packed
    from shmq.api.bulk import BulkQueue, StagedPublisher
    from shmq.api.keywords import PutKeywords
    from shmq.api.message import Body, Failure, Message, Put
    from shmq.api.stats import Attachment, Lease, QueueStats


class Loan(abc.ABC):
    """Space in the queue, in which the producer writes one message in place.

    As a context manager it returns the writable view, commits on success and drops the space on an
    exception.
    """

    @property
    @abc.abstractmethod
    def view(self) -> memoryview:
        """The writable bytes of the body. Raises ValueError once the loan has ended."""

    @property
    @abc.abstractmethod
    def put(self) -> Put | None:
        """The result of the commit; None before the commit, and after a drop."""

    @abc.abstractmethod
    def commit(self, size: int | None = None) -> Put:
        """Put the message with the first ``size`` bytes as its body (default: all).

        Raises :class:`~shmq.InvalidOption` for a size outside the loan, ValueError if the loan has
        ended, and :class:`~shmq.NotConfirmed`.
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
    """An iterator over a queue's messages that prefetches some.

    An acknowledgement takes effect at once; the space of acknowledged messages is freed, and a
    journal gets the acknowledgements, in batches: when the buffer fills, when the iterator waits or
    closes, and otherwise at the first call at least 10 ms after the first of them was delivered: so
    at the next call if the work on it took that long. Closing returns the messages that were not
    delivered, at once and without counting a delivery. When a prefetched message is delivered, its
    lease starts again.
    """

    @abc.abstractmethod
    def __iter__(self) -> Iterator[Message]: ...

    @abc.abstractmethod
    def __next__(self) -> Message: ...

    @abc.abstractmethod
    def flush(self) -> None:
        """Free the space of the messages acknowledged so far.

        Over TCP, it waits until the server has confirmed them. Raises
        :class:`~shmq.LeaseExpired` with the receipts of acknowledgements that were too late, and
        :class:`~shmq.ConnectionLost` if the outcome is unknown.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Flush, return the messages that were not delivered, and end the iteration."""


class AsyncConsumer(AsyncClosing):
    """An asynchronous iterator over a queue's messages that prefetches some.

    Messages, acknowledgements and closing are as for a :class:`Consumer`. One task at a time may
    use it. It yields to other tasks once for every ``prefetch`` messages that it delivers without
    waiting.
    """

    @abc.abstractmethod
    def __aiter__(self) -> AsyncIterator[Message]: ...

    @abc.abstractmethod
    async def __anext__(self) -> Message: ...

    @abc.abstractmethod
    def flush(self) -> None:
        """Free the space of the messages acknowledged so far."""

    @abc.abstractmethod
    async def aclose(self) -> None:
        """Flush, return the messages that were not delivered, and end the iteration."""


class Bodies(Closing):
    """An iterator over the bodies of a queue's messages, which it acknowledges itself.

    Asking for the next body acknowledges the message of the one before. Leaving a ``with`` block
    acknowledges the last one, too; leaving it by an exception returns that message to the queue, as
    ``nack`` does: it counts as a delivery. Messages are prefetched, and acknowledgements take
    effect, as for a :class:`Consumer`.

    Without a ``with`` block the iterator cannot tell how a loop ended. After a ``break`` or an
    exception, it is garbage-collected, and its last message returns like after an exception.

    If the lease of the last message has ended, the next step raises :class:`~shmq.LeaseExpired`:
    the message is delivered again. The iteration may go on after that, and after a body that its
    codec cannot decode: that step raises :class:`~shmq.ShmqError`, and the message returns.
    """

    @abc.abstractmethod
    def __iter__(self) -> Iterator[Any]: ...

    @abc.abstractmethod
    def __next__(self) -> Any: ...

    @abc.abstractmethod
    def flush(self) -> None:
        """Free the space of the messages acknowledged so far; the last one is not among them."""

    @abc.abstractmethod
    def close(self) -> None:
        """Flush, return the last message and those that were not delivered, end the iteration.

        The last message counts as delivered, the others do not.
        """


class AsyncBodies(AsyncClosing):
    """An asynchronous iterator over the bodies of a queue's messages.

    It acknowledges them as :class:`Bodies` does, with ``async with`` in place of ``with``; a
    cancellation is an exception. One task at a time may use it.
    """

    @abc.abstractmethod
    def __aiter__(self) -> AsyncIterator[Any]: ...

    @abc.abstractmethod
    async def __anext__(self) -> Any: ...

    @abc.abstractmethod
    def flush(self) -> None:
        """Free the space of the messages acknowledged so far; the last one is not among them."""

    @abc.abstractmethod
    async def aclose(self) -> None:
        """Flush, return the last message and those that were not delivered, end the iteration."""

    @abc.abstractmethod
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Queue(Closing, Displayed):
    """A named queue that any number of processes and threads share.

    Times are in seconds. A ``timeout`` of None waits without limit; a timeout of 0 tries once.
    Every method raises :class:`~shmq.QueueDeleted` once the queue is deleted, and
    :class:`~shmq.ShmqError` once the handle is closed. As a context manager it closes itself.
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The queue's name."""

    @property
    @abc.abstractmethod
    def options(self) -> QueueOptions:
        """The options that the queue was created with."""

    @property
    @abc.abstractmethod
    def identity(self) -> int:
        """The queue's identity, a 64-bit number; a queue recreated by the same name has another.

        A durable queue that was recovered keeps its identity. Raises :class:`~shmq.Unsupported` if
        the server does not report it.
        """

    @abc.abstractmethod
    def put(
        self,
        body: Body,
        block: bool | None = None,
        timeout: float | None = None,
        *,
        # signature of a put: made by tools/options.py
        priority: int | Level | None = None,
        group: str | None = None,
        headers: Mapping[str, Any] | None = None,
        delay: float | dt.timedelta | None = None,
        deliver_at: float | dt.datetime | None = None,
        ttl: float | dt.timedelta | None = None,
        dedupe_id: str | None = None,
        codec: str | None = None,
        reply_to: str | None = None,
        correlation: str | None = None,
        confirm: Confirm | None = None,
        # end
    ) -> Put:
        """Put one message.

        ``body`` is any buffer, a str, or any value that msgpack encodes. With ``block`` None, the
        put waits for room if the queue's ``overflow`` is ``"block"`` or a timeout is given;
        otherwise it raises at once. ``priority`` is 0 to priorities - 1, higher first, and by
        default the middle one (priorities // 2); ``"low"``, ``"normal"`` and ``"high"`` are the
        lowest, the middle and the highest. Give either ``delay``, in seconds from now or as a
        timedelta, or ``deliver_at``, in seconds since 1970 or as an aware datetime. ``ttl``, in
        seconds or as a timedelta, is the queue's by default.

        ``confirm="disk"`` returns once the message is in the journal and synced, ``"memory"`` once
        it is in the queue; None takes the queue's option. ``block`` is about room only; the timeout
        bounds both waits. If the disk does not confirm in time, the put raises
        :class:`~shmq.NotConfirmed`, and the message is in the queue nevertheless. While a server's
        disk fails, the server refuses the put with :class:`~shmq.NoSpace` or
        :class:`~shmq.ServerError` and takes nothing; a server also waits for the disk whenever the
        queue's option says so.

        Raises :class:`~shmq.Full` if there was no room in time, :class:`~shmq.MessageTooLarge` at
        once for a message that can never fit, :class:`~shmq.NoSpace`, :class:`~shmq.InvalidOption`
        for a property out of range and for ``confirm="disk"`` on a queue without a journal, and
        TypeError for a property of the wrong type or a body that its codec cannot encode. A
        text with half of a surrogate pair, in the body or a property, is an InvalidOption.
        """

    @abc.abstractmethod
    def get(
        self, block: bool = True, timeout: float | None = None, *, where: str | None = None
    ) -> Message:
        """Lease the next message, for the queue's ``visibility_timeout``.

        Waits for a message, unless ``block`` is false. Raises :class:`~shmq.Empty` if none came in
        time.

        ``where`` is an expression over headers and properties, such as ``"header.region = 'eu' and
        priority > 1"``: the call leases the first available message that matches. The expression is
        evaluated in place, before anything is leased or copied; messages that do not match stay in
        order for other consumers. Of a message group only the front message is tested; if it does
        not match, the rest of its group waits after it. The call examines every message that
        stands before the first match. Raises :class:`~shmq.InvalidOption` for an expression that
        cannot be parsed or that refers to the body.
        """

    def put_nowait(self, body: Body, **properties: Unpack[PutKeywords]) -> Put:
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
        # signature of many puts: made by tools/options.py
        priority: int | Level | None = None,
        group: str | None = None,
        headers: Mapping[str, Any] | None = None,
        delay: float | dt.timedelta | None = None,
        ttl: float | dt.timedelta | None = None,
        codec: str | None = None,
        confirm: Confirm | None = None,
        # end
    ) -> int:
        """Put the ``bodies`` in order, as many as fit; returns how many were put.

        A single str, buffer or map is refused with TypeError: pass it in a list. The properties
        apply to every body. With ``block`` the call waits for room for the rest as ``put`` does; at
        a timeout it returns the count so far, and a short count is not an error. A body that can
        never fit, or cannot be encoded, raises before any is put. If none is put, the call raises
        what ``put`` raises, except :class:`~shmq.Full`; after the first body such an error ends the
        call, which returns the count, whatever the size of the bodies. With ``confirm="disk"`` it
        waits once, after all of them were put.
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
        """Lease 1 to ``max`` messages, waiting only for the first.

        Returns an empty list if none came within the timeout. ``where`` is as for ``get``.
        """

    @abc.abstractmethod
    def get_batch(self, max: int, timeout: float | None = None, *, block: bool = True) -> Batch:
        """``get_many`` for the bodies alone, without an object for each message.

        The messages are settled together. The batch is empty if none came within the timeout.
        Raises :class:`~shmq.ShmqError` if a body cannot be decoded by its codec: that message stays
        leased, with its receipt in the error, and the others return to the queue.
        """

    @abc.abstractmethod
    def put_packed(
        self,
        data: Body,
        lengths: int | Iterable[int],
        block: bool | None = None,
        timeout: float | None = None,
        *,
        # signature of a packed put: made by tools/options.py
        priority: int | Level | None = None,
        group: str | None = None,
        headers: Mapping[str, Any] | None = None,
        delay: float | dt.timedelta | None = None,
        ttl: float | dt.timedelta | None = None,
        dedupe_id: str | None = None,
        confirm: Confirm | None = None,
        # end
    ) -> Put:
        """Put many records as one message, without an object for each.

        ``data`` is the concatenated records; ``lengths`` is the size of every record in bytes, or
        the sizes of each: a buffer of unsigned 32-bit numbers, or ints. The batch is one message
        with the codec ``"packed"``: it has one sequence number, is leased, settled and counted as
        one, and must fit into ``max_message_bytes``. ``get`` returns its body as a list of bytes.
        Raises what ``put`` raises, and :class:`~shmq.InvalidOption` if the lengths do not add up to
        the size of the data.
        """

    @abc.abstractmethod
    def get_packed(
        self, max: int = 65536, timeout: float | None = None, *, block: bool = True
    ) -> Packed:
        """Lease messages until they hold ``max`` records, and copy the records into one buffer.

        It waits only for the first message. A packed batch is never split: the last one is returned
        whole, however large it is. A body with the codec ``"packed"`` that is not a valid batch
        counts as one record. The result is empty if no message came within the timeout.
        """

    @abc.abstractmethod
    def ack_many(self, messages: Iterable[Message | int]) -> list[int]:
        """Acknowledge messages, or receipts; returns the receipts that were refused.

        Those had expired, or were settled already; of neither an error is raised. Raises TypeError,
        before any is settled, if an item is neither a message nor a receipt.
        """

    @abc.abstractmethod
    def ack(self, receipt: int) -> None:
        """``Message.ack`` by receipt, from any process.

        Raises :class:`~shmq.LeaseExpired`.
        """

    @abc.abstractmethod
    def nack(
        self,
        receipt: int,
        delay: float | None = None,
        *,
        counted: bool = True,
        error: BaseException | Failure | str | None = None,
    ) -> None:
        """``Message.nack`` by receipt, from any process.

        Raises :class:`~shmq.LeaseExpired`.
        """

    @abc.abstractmethod
    def reject(self, receipt: int, reason: BaseException | Failure | str | None = None) -> None:
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
        """Iterate over messages, prefetching up to ``prefetch`` of them, 1 to 1,048,576.

        The iteration ends if no message came for ``timeout`` seconds (``block=False``: at once); by
        default it never ends. A message whose lease expired before it was delivered is skipped: it
        is back in the queue. ``where`` is as for ``get``.
        """

    @abc.abstractmethod
    def bodies(
        self,
        prefetch: int = 64,
        timeout: float | None = None,
        *,
        block: bool = True,
        where: str | None = None,
    ) -> Bodies:
        """Iterate over bodies; each step acknowledges the message of the body before.

        The arguments and the end of the iteration are as for ``consume``. Use it in a ``with``
        block, so that an exception returns the message it happened at.
        """

    @abc.abstractmethod
    async def aget(self, timeout: float | None = None, *, where: str | None = None) -> Message:
        """``get`` for asyncio: other tasks run while it waits.

        Tasks get messages in the order in which they began to wait. A cancelled task has taken
        nothing. ``timeout`` is in seconds, 0 does not wait. ``where`` is as for ``get``; each
        waiting task tests every message that arrives. Raises :class:`~shmq.Empty`.
        """

    @abc.abstractmethod
    async def aput(
        self,
        body: Body,
        timeout: float | None = None,
        *,
        block: bool | None = None,
        **properties: Unpack[PutKeywords],
    ) -> Put:
        """``put`` for asyncio: other tasks run while it waits.

        When it waits, its properties and its errors are as for ``put``: a full queue whose
        ``overflow`` is ``"reject"`` refuses, unless ``block=True`` or a ``timeout`` is given. If a
        task is cancelled while it waits for room, nothing was put; if it is cancelled while it
        waits for the disk, its message was put.
        """

    @abc.abstractmethod
    def aconsume(
        self, prefetch: int = 64, timeout: float | None = None, *, where: str | None = None
    ) -> AsyncConsumer:
        """``consume`` for asyncio: ``async for message in ...``.

        The iteration ends if no message came for ``timeout`` seconds; by default it never ends.
        ``where`` is as for ``get``.
        """

    @abc.abstractmethod
    def abodies(
        self, prefetch: int = 64, timeout: float | None = None, *, where: str | None = None
    ) -> AsyncBodies:
        """``bodies`` for asyncio: ``async for body in ...``, within an ``async with`` block.

        The arguments are as for ``aconsume``.
        """

    @abc.abstractmethod
    def fileno(self) -> int:
        """A file descriptor that is readable while a message may be visible, for event loops.

        For selectors, poll, `loop.add_reader` and the like: take messages with ``block=False``
        when it is readable. It stays readable until a get finds the queue empty; a message that
        comes, comes back or becomes due makes it readable again. It is readable, too, when the
        queue is deleted, or its server cannot be reached: the next get says so. It is made at the
        first call, and `close` closes it: take it out of its selector first. The child of a fork
        gets one of its own at its first call. See :class:`shmq.ReadyEvent` for several queues.

        Raises :class:`~shmq.Unsupported` if the server cannot do it, and OSError if there is
        no file descriptor left.
        """

    @abc.abstractmethod
    def loan(
        self,
        size: int,
        *,
        block: bool | None = None,
        timeout: float | None = None,
        **properties: Unpack[PutKeywords],
    ) -> Loan:
        """Reserve space for a body of ``size`` bytes, to be written in place.

        The properties, ``block``, ``timeout``, ``confirm`` and the errors are those of ``put``;
        only the commit waits for the disk, as long as ``timeout``. The loan of a duplicate is space
        that is never put. Over TCP and in a NATS cluster, the space is memory of this process, and
        the commit sends it.
        """

    @abc.abstractmethod
    def pipeline(self, window: int = 64, *, confirm: Confirm | None = None) -> Pipeline:
        """Keep up to ``window`` puts in flight: ``with queue.pipeline() as pipe``.

        Use it for queues of a server, where a single put waits for its answer, and for puts with
        ``confirm="disk"``, which then share their syncs; each put may set its own ``confirm``.
        Otherwise, on this host, the puts run one after the other. Raises
        :class:`~shmq.InvalidOption` for a window below 1, and for ``confirm="disk"`` on a queue
        without a journal.
        """

    @abc.abstractmethod
    def peek(self, limit: int = 10, *, where: str | None = None) -> list[Message]:
        """Copies of up to ``limit`` visible messages, those to be delivered first; not leased.

        Settling one raises :class:`~shmq.LeaseExpired`. The call looks at the whole queue, so its
        cost grows with the queue's depth. ``where`` keeps only the messages that match an
        expression, as for ``redrive``; it may refer to the body. In a NATS cluster, messages that
        were delivered and returned may be missing.
        """

    @abc.abstractmethod
    def purge(self) -> int:
        """Remove the visible and the delayed messages; returns how many.

        Leased messages stay. The memory of the removed ones goes back to the system.
        """

    @abc.abstractmethod
    def redrive(self, limit: int | None = None, *, where: str | None = None) -> int:
        """Send dead letters back to this queue; returns how many were sent.

        On a queue that has a dead-letter queue, the call takes the dead letters that came from this
        queue; on a dead-letter queue, it sends each message to the queue that it came from. It
        sends at most ``limit`` (None: all), oldest first, until a queue is full; it raises
        :class:`~shmq.Full` or :class:`~shmq.NoSpace` only if none could be sent.

        ``where`` is an expression, such as ``"reason = 'expired' and age < 2h"``: only matching
        messages are sent. Raises :class:`~shmq.InvalidOption` for one that cannot be parsed, and
        :class:`~shmq.Unsupported` if the server cannot do it.
        """

    @abc.abstractmethod
    def move_to(self, target: str, limit: int | None = None, *, where: str | None = None) -> int:
        """Move visible messages to the queue ``target`` of the same broker; returns how many.

        It moves at most ``limit`` (None: all that are visible when it starts), in the order of
        delivery, until ``target`` is full. Each message is in one of the two queues, whichever
        process dies. It keeps its body, headers, group, reply address and the rest of its ttl; its
        deliveries and its age are counted again, its ``dedupe_id`` is not remembered there, and a
        priority that ``target`` does not have becomes its highest. Leased and delayed messages
        stay: call it again once they are visible. A move leases what it moves, so the messages of a
        process that is killed meanwhile return with one delivery more. ``where`` is as for ``get``.

        Raises :class:`~shmq.NoSuchQueue`, :class:`~shmq.InvalidOption` if ``target`` is this queue
        or ``where`` cannot be parsed, :class:`~shmq.Full` or :class:`~shmq.NoSpace` if none could
        be moved, :class:`~shmq.MessageTooLarge` at a message that can never fit into ``target``,
        after it has moved those before it, and :class:`~shmq.Unsupported` if the server cannot.
        """

    @abc.abstractmethod
    async def amove_to(
        self, target: str, limit: int | None = None, *, where: str | None = None
    ) -> int:
        """:meth:`move_to` for asyncio: other tasks run in the meantime.

        A move whose task is cancelled goes on, and each message is in one of the two queues.
        """

    # ---- very many messages at once ----

    @abc.abstractmethod
    def bulk(self) -> BulkQueue:
        """The bulk interface of this queue: read, lease and settle very many messages at once."""

    @abc.abstractmethod
    def staged_publisher(self, publisher: str) -> StagedPublisher:
        """A publisher that stages batches of rows and puts each batch into this queue exactly once.

        ``publisher`` names the job or query that produces these batches, one after the other; it is
        1 to 200 bytes of UTF-8. Raises :class:`~shmq.InvalidOption` and TypeError.
        """

    # ---- what the queue has ----

    @abc.abstractmethod
    def stats(self) -> QueueStats:
        """The queue's statistics. In a NATS cluster, only puts and removals are totalled."""

    @abc.abstractmethod
    def attachments(self) -> list[Attachment]:
        """Every open handle of every process on this queue, this one included.

        A server's process stands for all of its clients.
        """

    @abc.abstractmethod
    def leases(self, limit: int = 100, *, after: int = 0) -> list[Lease]:
        """Who holds what: up to ``limit`` leased messages, those with the lowest sequences first.

        Only sequences above ``after`` count: give the last one of a list to get the next list. The
        call looks at the whole queue, a part at a time, so its cost grows with the queue's depth;
        a message that changes its state in the meantime may be missing. Raises
        :class:`~shmq.Unsupported` if the server cannot do it.
        """

    @abc.abstractmethod
    def qsize(self) -> int:
        """How many messages are visible, including those after a leased one of their group."""

    def __len__(self) -> int:
        """`qsize`: how many messages are visible."""
        return self.qsize()

    def __bool__(self) -> bool:
        """True: a handle is one, whether or not its queue is empty."""
        return True

    def empty(self) -> bool:
        """Whether no message is visible."""
        return self.qsize() == 0

    @abc.abstractmethod
    def full(self) -> bool:
        """Whether the queue holds as many messages as its capacity allows.

        Bytes do not count here: a put may run out of room for its body earlier.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Detach; messages that this handle has leased return at once. May be called again."""


class Pipeline(abc.ABC):
    """Puts that do not wait for each other's answers.

    Up to a window of puts are in flight. The end of the block waits for them all. If a put was
    refused, :class:`~shmq.PutsRefused` is raised at the next call or at the end of the block, once
    every answer has arrived: it says which puts were taken and which were not. Puts after a refused
    one may have been taken. With ``confirm="disk"`` a put is answered once it is on disk; a message
    that is in the queue without that confirmation is listed as ``unconfirmed``.
    """

    @abc.abstractmethod
    def put(self, body: Body, **properties: Unpack[PutKeywords]) -> int:
        """Put one message; returns its number in this pipeline, from 0 on.

        The properties are those of ``Queue.put``, and so are the errors raised at once for an
        invalid body or property. If a put to the queue would wait for room, so does this one; its
        message may then end up behind later ones. Raises :class:`~shmq.PutsRefused`.
        """

    @abc.abstractmethod
    def flush(self) -> None:
        """Return once every put so far was taken. Raises :class:`~shmq.PutsRefused`."""

    @property
    @abc.abstractmethod
    def taken(self) -> int:
        """How many puts are known to have been taken."""

    def __enter__(self) -> Self:
        return self

    @abc.abstractmethod
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
