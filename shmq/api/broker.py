"""The contract of a broker: the queues, exchanges, streams, tables and locks of a namespace."""

from __future__ import annotations

import abc
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from shmq.api.contract import Closing
from shmq.api.options import check_whole
from shmq.display import Displayed
from shmq.errors import InvalidOption, Unsupported

if TYPE_CHECKING:
    from shmq.api.exchange import Exchange, ExchangeKind, ExchangeSummary
    from shmq.api.keywords import (
        EnsureStreamKeywords,
        PutKeywords,
        QueueKeywords,
        StreamKeywords,
        SubscribeKeywords,
    )
    from shmq.api.lock import Lock, LockSummary, Semaphore
    from shmq.api.message import Body, Message
    from shmq.api.options import IfDifferent, QueueOptions
    from shmq.api.queue import Queue
    from shmq.api.schema import SchemaVersion, TypedQueue, TypedStream
    from shmq.api.stats import QueueSummary
    from shmq.api.stream import Stream, StreamSummary
    from shmq.api.stream_options import StreamOptions
    from shmq.api.subscription import AsyncSubscription, Subscription
    from shmq.api.table import Table, TableDurability
    from shmq.api.transaction import Transaction


T = TypeVar("T")


class Broker(Closing, Displayed):
    """Creates, finds, lists and deletes the queues, exchanges and tables of one namespace.

    A broker is a context manager that closes itself and every queue it opened. The methods of a
    closed broker or queue raise :class:`~shmq.ShmqError`. A queue whose segment cannot be used
    raises :class:`~shmq.SegmentError`.
    """

    @property
    @abc.abstractmethod
    def namespace(self) -> str:
        """The namespace that this broker works in."""

    @abc.abstractmethod
    def create_queue(
        self, name: str, *, allow_same_name: bool = False, **options: Unpack[QueueKeywords]
    ) -> Queue:
        """Create the queue ``name`` and attach to it.

        The options are the fields of :class:`shmq.QueueOptions`, by name. If the queue exists with
        the same options, the call attaches to it. Raises :class:`~shmq.QueueExists` if it exists
        with other options (the error says which differ), :class:`~shmq.StreamExists` if a stream
        has the name, unless ``allow_same_name`` is true, :class:`~shmq.InvalidName`,
        :class:`~shmq.InvalidOption` for an unknown option or a value out of range,
        :class:`~shmq.NoSpace`, and TypeError for a value of the wrong type.
        """

    @abc.abstractmethod
    def queue(self, name: str) -> Queue:
        """Attach to the queue ``name``.

        Raises :class:`~shmq.NoSuchQueue`, and :class:`~shmq.Forbidden` with the owner if the queue
        is exclusive to another.
        """

    @abc.abstractmethod
    def put_target(self, name: str) -> Queue:
        """As `queue`, but to put messages into it, or to look at its statistics.

        It may be exclusive to another: then what leases, reads or removes messages raises
        :class:`~shmq.Forbidden`.
        """

    @abc.abstractmethod
    def ensure_queue(
        self,
        name: str,
        *,
        if_different: IfDifferent = "warn",
        allow_same_name: bool = False,
        **options: Unpack[QueueKeywords],
    ) -> Queue:
        """Attach to the queue ``name``, or create it with these options.

        The options given here are compared with those of an existing queue; others are not.
        ``if_different`` is what happens if one differs: ``"warn"`` attaches, and issues one
        :class:`~shmq.OptionsWarning` per queue and process, which lists each difference with both
        values; ``"accept"`` attaches silently; ``"refuse"`` raises :class:`~shmq.QueueExists`,
        whose text and ``differences`` have them; ``"alter"`` does and raises what ``alter_queue``
        does. Raises what ``create_queue`` raises for the options themselves.
        """

    @abc.abstractmethod
    def alter_queue(self, name: str, **options: Unpack[QueueKeywords]) -> QueueOptions:
        """Change options of the queue ``name`` while it is in use; return all its options then.

        They apply at once in every process, and to its messages as follows: ``ttl`` to later puts,
        ``visibility_timeout`` to later leases, ``max_deliveries`` and the retry delays from the
        next failed delivery on. A call that is already waiting goes on with the old options.
        Handles of a server's queue get the new ones when they are opened, or when the same broker
        alters the queue. Its dead-letter queue keeps its options: alter that by its own name.

        If a writer is running, the options of a durable queue are on disk when the call returns;
        a machine that fails before comes back with the old options or with the new. Without a
        writer they are on disk with the first snapshot of the next one.

        Raises :class:`~shmq.NoSuchQueue`, :class:`~shmq.Forbidden`, and
        :class:`~shmq.InvalidOption`, after which nothing is altered: for an unknown option, a value
        out of range or one that contradicts the queue's other options, and for each option that is
        fixed, such as ``capacity``, with the reason. Also raises TypeError for a value of the wrong
        type, and :class:`~shmq.NotConfirmed`, from a server :class:`~shmq.ServerError`, if the
        queue is altered and the options are not known to be on disk: call it again.
        """

    @abc.abstractmethod
    async def aalter_queue(self, name: str, **options: Unpack[QueueKeywords]) -> QueueOptions:
        """:meth:`alter_queue` for asyncio: other tasks run in the meantime.

        It is carried out even if its task is cancelled.
        """

    @abc.abstractmethod
    def delete_queue(self, name: str) -> None:
        """Delete the queue ``name`` and all its messages.

        Its dead-letter queue ``NAME.dlq`` is deleted with it, if that was created with the queue,
        holds no messages, and no other queue uses it; otherwise it stays, and in a cluster always.
        Processes that wait on the queue get :class:`~shmq.QueueDeleted`. A queue whose segment is
        damaged or of another version is deleted too. Raises :class:`~shmq.NoSuchQueue`, and
        :class:`~shmq.ForeignSegment` if the segment belongs to another user.
        """

    @abc.abstractmethod
    def list_queues(self) -> list[QueueSummary]:
        """Every queue of the namespace with its depth, sorted by name.

        A queue that cannot be used is listed with its ``problem``. The call attaches to each queue:
        with thousands of queues, use `queue_names` instead.
        """

    @abc.abstractmethod
    def queue_names(self) -> list[str]:
        """The names of the queues of the namespace, sorted, without attaching to any.

        The list may contain a queue that a process left half created or half deleted when it died.
        If the machine has more than 1,000 files in /dev/shm, a queue whose file was removed by hand
        may stay in the list for a second.
        """

    # ---- requests and replies ----

    @abc.abstractmethod
    def request(
        self,
        queue: str | Queue,
        body: Body,
        timeout: float | None = None,
        **properties: Unpack[PutKeywords],
    ) -> Message:
        """Put a request into ``queue`` and return its reply, a message that is already settled.

        ``timeout`` bounds the wait for room and for the reply together (None: no limit);
        ``properties`` are those of a put. The reply arrives in a private queue of this client. The
        first request creates that queue; it is removed when the broker is closed, or once its
        process or its connection has ended. Any number of threads may send requests.

        Raises :class:`~shmq.NoReply` if no reply came in time; the request stays in the queue: give
        it a ``ttl`` as well if it must not be handled late. Raises :class:`~shmq.RequestFailed` if
        the handler raised, :class:`~shmq.ConnectionLost` if the reply queue is gone,
        :class:`~shmq.NoSuchQueue`, and what ``Queue.put`` raises.
        """

    @abc.abstractmethod
    async def arequest(
        self,
        queue: str | Queue,
        body: Body,
        timeout: float | None = None,
        **properties: Unpack[PutKeywords],
    ) -> Message:
        """``request`` for asyncio. If the task is cancelled, its reply is dropped."""

    @abc.abstractmethod
    def serve(
        self,
        queue: str | Queue,
        handler: Callable[[Message], Any],
        *,
        prefetch: int = 1,
        stop: threading.Event | None = None,
        tracebacks: bool = False,
    ) -> int:
        """Handle the requests of ``queue`` one by one until ``stop`` is set.

        The return value of ``handler`` is the reply. An exception of the handler reaches the client
        as :class:`~shmq.RequestFailed` with the error's type and text, and with its traceback if
        ``tracebacks`` is true. A request is settled after its reply was put: if the server dies,
        another server handles the request, and a second reply to it is dropped. The handler may
        raise :class:`~shmq.Retry`, which sends no reply and has the request handled again, or
        :class:`~shmq.Reject`, which reports the error to the client and makes the request a dead
        letter. A message that wants no reply is acknowledged, or returned to the queue if the
        handler raises. The lease is extended while the handler runs.

        ``prefetch`` is the number of messages leased at a time. Without ``stop`` the call runs
        until the broker is closed or the queue is deleted. Any number of threads and processes may
        serve a queue. Returns how many messages were handled. Raises what ``Queue.get`` raises.
        """

    @property
    @abc.abstractmethod
    def late_replies(self) -> int:
        """How many replies arrived after their request had timed out, and were dropped."""

    # ---- schemas ----

    @abc.abstractmethod
    def set_schema(self, name: str, schema: Any, compatibility: str | None = None) -> int:
        """Make ``schema`` the newest schema version of the queue or stream; returns its number.

        ``schema`` is a JSON Schema, as a map, or a type such as a ``msgspec.Struct``. If it equals
        the newest version, nothing happens. ``compatibility`` is what this version and later ones
        must be to every earlier version: ``"backward"`` (readers with the new version can read data
        written with the old ones), ``"forward"`` (the other way round), ``"full"`` or ``"none"``;
        None takes that of the newest version, or ``"backward"`` for the first.

        Raises :class:`~shmq.SchemaError`, which names the field, if the schema is not compatible;
        :class:`~shmq.InvalidOption` if it is not a JSON Schema; :class:`~shmq.NoSuchQueue` if there
        is neither a queue nor a stream of that name; :class:`~shmq.NotConfirmed` if it was set and
        is not known to be on disk. A queue and a stream of the same name share a schema, which is
        deleted with them.
        """

    @abc.abstractmethod
    def check_schema(self, name: str, schema: Any, compatibility: str | None = None) -> None:
        """Raise what ``set_schema`` would raise, and change nothing."""

    @abc.abstractmethod
    def schemas(self, name: str) -> list[SchemaVersion]:
        """Every schema version of the queue or stream, oldest first."""

    def schema(self, name: str, version: int | None = None) -> SchemaVersion:
        """One schema version of the queue or stream; without ``version`` the newest.

        Raises :class:`~shmq.InvalidOption` if there is none, and TypeError.
        """
        if version is not None:
            check_whole("version", version, 1)
        for found in reversed(self.schemas(name)):
            if version in (None, found.version):
                return found
        which = "no schema" if version is None else f"no version {version} of a schema"
        raise InvalidOption(f"{name!r} has {which}: set one with set_schema")

    @overload
    @abc.abstractmethod
    def typed(
        self, of: str | Queue, schema: type[T], compatibility: str | None = None
    ) -> TypedQueue[T]: ...

    @overload
    @abc.abstractmethod
    def typed(
        self, of: str | Queue, schema: Any = None, compatibility: str | None = None
    ) -> TypedQueue[Any]: ...

    @overload
    @abc.abstractmethod
    def typed(
        self, of: Stream, schema: type[T], compatibility: str | None = None
    ) -> TypedStream[T]: ...

    @overload
    @abc.abstractmethod
    def typed(
        self, of: Stream, schema: Any = None, compatibility: str | None = None
    ) -> TypedStream[Any]: ...

    @abc.abstractmethod
    def typed(
        self, of: str | Queue | Stream, schema: Any = None, compatibility: str | None = None
    ) -> TypedQueue[Any] | TypedStream[Any]:
        """A queue (given by name or handle) or stream whose values its newest schema checks.

        If a ``schema`` is given, it is set first, as by ``set_schema``. Values that are put or
        appended through the plain queue or stream are not checked, at no extra cost. Raises what
        ``set_schema`` and ``schema`` raise, and :class:`~shmq.ShmqError` if ``shmq[schemas]`` is
        not installed.
        """

    # ---- streams ----

    def create_stream(
        self,
        name: str,
        partitions: int = 4,
        *,
        allow_same_name: bool = False,
        **options: Unpack[StreamKeywords],
    ) -> Stream:
        """Create the stream ``name`` and attach to it.

        The options are the fields of :class:`shmq.StreamOptions`, by name. If the stream exists
        with the same options, the call attaches to it; for a stream that was repartitioned,
        ``partitions`` may be the original number. Raises :class:`~shmq.StreamExists` if it exists
        with other options (the error says which differ), :class:`~shmq.QueueExists` if a queue has
        the name, unless ``allow_same_name`` is true, :class:`~shmq.InvalidName`,
        :class:`~shmq.InvalidOption` for an unknown option or a value out of range,
        :class:`~shmq.NoSpace`, and TypeError for a value of the wrong type.
        """
        raise _make_no_streams(name, partitions, allow_same_name, options)

    def stream(self, name: str) -> Stream:
        """Attach to the stream ``name``. Raises :class:`~shmq.NoSuchStream`."""
        raise _make_no_streams(name)

    def ensure_stream(
        self,
        name: str,
        *,
        if_different: IfDifferent = "warn",
        allow_same_name: bool = False,
        **options: Unpack[EnsureStreamKeywords],
    ) -> Stream:
        """Attach to the stream ``name``, or create it with these options.

        ``if_different`` is as for ``ensure_queue``, with :class:`~shmq.StreamExists`; ``"alter"``
        does and raises what ``alter_stream`` does. For a stream
        that was repartitioned, ``partitions`` may be the original number, that of all, or
        that of those it is appended to. Raises what ``create_stream`` raises for the options
        themselves.
        """
        raise _make_no_streams(name, if_different, allow_same_name, options)

    def alter_stream(self, name: str, **options: Unpack[EnsureStreamKeywords]) -> StreamOptions:
        """Change options of the stream ``name`` while it is in use; return all its options then.

        They apply in every process with its next call, and to records as follows:
        ``retention_bytes`` and ``retention_seconds`` to those that are there, ``max_record_bytes``
        and ``confirm`` to later appends, ``ring_bytes`` at once: an append that waits for room goes
        on, and no record moves or goes. A ring only grows, to 16 times what the stream was created
        with, and keeps the memory of the one before it. Handles of a server's stream get the new
        options when they are opened, when the same broker alters the stream, or with their next
        ``offsets``.

        If a writer is running, the options of a durable stream are on disk when the call returns;
        a machine that fails before comes back with the old options or with the new. Without a
        writer they are on disk once the next one begins.

        Raises :class:`~shmq.NoSuchStream`, and :class:`~shmq.InvalidOption`, after which nothing is
        altered: for an unknown option, a value out of range or one that contradicts the stream's
        other options, and for each option that is fixed, such as ``durability``, with the reason.
        Also raises TypeError for a value of the wrong type, :class:`~shmq.Unsupported` on a
        cluster, and :class:`~shmq.NotConfirmed`, from a server :class:`~shmq.ServerError`, if the
        stream is altered and the options are not known to be on disk: call it again.
        """
        raise _make_no_streams(name, options)

    async def aalter_stream(
        self, name: str, **options: Unpack[EnsureStreamKeywords]
    ) -> StreamOptions:
        """:meth:`alter_stream` for asyncio: other tasks run in the meantime.

        It is carried out even if its task is cancelled.
        """
        raise _make_no_streams(name, options)

    def delete_stream(self, name: str) -> None:
        """Delete the stream ``name`` and all its records.

        Processes that wait on the stream get :class:`~shmq.StreamDeleted`. A stream whose segments
        are damaged or of another version is deleted too. Raises :class:`~shmq.NoSuchStream`, and
        :class:`~shmq.ForeignSegment` if a segment belongs to another user.
        """
        raise _make_no_streams(name)

    def list_streams(self) -> list[StreamSummary]:
        """Every stream of the namespace, sorted by name.

        A stream that cannot be used is listed with its ``problem``.
        """
        raise _make_no_streams()

    def subscribe(
        self, stream: str, pattern: str = "#", **how: Unpack[SubscribeKeywords]
    ) -> Subscription:
        """``stream(stream).subscribe(pattern, **how)``: see :meth:`Stream.subscribe`."""
        return self.stream(stream).subscribe(pattern, **how)

    def asubscribe(
        self, stream: str, pattern: str = "#", **how: Unpack[SubscribeKeywords]
    ) -> AsyncSubscription:
        """``stream(stream).asubscribe(pattern, **how)``: see :meth:`Stream.asubscribe`.

        It attaches to the stream when it starts, without blocking the event loop.
        """
        raise _make_no_streams(stream, pattern, how)

    def transaction(self, *, timeout: float | None = 0.0) -> Transaction:
        """Begin a transaction: at the end of its block either all of its operations happen or none.

        ``timeout``: for how many seconds (None: no limit) the commit may wait for room in a queue.
        Raises :class:`~shmq.Unsupported` over TCP: a transaction is committed by a process of the
        host, whose death the kernel reports.
        """
        raise Unsupported(
            f"a transaction is of one host, and this broker's queues and streams are on another "
            f"(timeout={timeout}): connect there by name, without a URL"
        )

    @abc.abstractmethod
    def create_exchange(
        self, name: str, kind: ExchangeKind = "direct", alternate: str | None = None
    ) -> Exchange:
        """Create the exchange ``name``, without bindings.

        ``alternate`` names the exchange that gets the messages that no binding matches; it may be
        created later. If an exchange exists with the same kind and alternate, the call attaches to
        it. Raises :class:`~shmq.ExchangeExists`, :class:`~shmq.InvalidName`,
        :class:`~shmq.InvalidOption`, :class:`~shmq.NoSpace`, and :class:`~shmq.SegmentError` if the
        namespace's table of exchanges cannot be used. Like every change of exchanges in a namespace
        that is kept on disk, it raises :class:`~shmq.NotConfirmed` if the change was made in memory
        but not written to disk.
        """

    @abc.abstractmethod
    def exchange(self, name: str) -> Exchange:
        """Attach to the exchange ``name``. Raises :class:`~shmq.NoSuchExchange`."""

    @abc.abstractmethod
    def ensure_exchange(
        self,
        name: str,
        kind: ExchangeKind | None = None,
        alternate: str | None = None,
        *,
        if_different: IfDifferent = "warn",
    ) -> Exchange:
        """Attach to the exchange ``name``, or create it; a kind of None creates a direct one.

        ``if_different`` is as for ``ensure_queue``, with :class:`~shmq.ExchangeExists`; a kind or
        an alternate of None is not compared. Raises what ``create_exchange`` raises for the
        arguments themselves.
        """

    @abc.abstractmethod
    def delete_exchange(self, name: str) -> None:
        """Delete the exchange ``name`` and all bindings from it and to it.

        The queues stay. Raises :class:`~shmq.NoSuchExchange`.
        """

    @abc.abstractmethod
    def list_exchanges(self) -> list[ExchangeSummary]:
        """Every exchange of the namespace, sorted by name."""

    # ---- tables ----

    @abc.abstractmethod
    def ensure_table(
        self,
        name: str,
        durability: TableDurability | None = None,
        *,
        max_bytes: int | None = None,
        if_different: IfDifferent = "warn",
    ) -> Table:
        """Attach to the table ``name``, or create it with these options.

        ``durability`` is ``"memory"`` (shared memory: the table is there until it is deleted or the
        machine ends; the default) or ``"disk"`` (a file in the namespace's data directory: each
        write is on disk when it returns). ``max_bytes`` bounds what the table takes; beyond it
        writes raise :class:`~shmq.NoSpace`. ``if_different`` is as for ``ensure_queue``, with
        :class:`~shmq.TableExists`; an option of None is not compared. Raises
        :class:`~shmq.InvalidName`, :class:`~shmq.InvalidOption`, :class:`~shmq.NoSpace`,
        :class:`~shmq.SegmentError` or :class:`~shmq.FileError` if the table's file cannot be used,
        and TypeError.
        """

    @abc.abstractmethod
    def table(self, name: str) -> Table:
        """Attach to the table ``name``. Raises :class:`~shmq.NoSuchTable`."""

    @abc.abstractmethod
    def delete_table(self, name: str) -> None:
        """Delete the table ``name`` and all its values, also one that is damaged.

        Handles of it raise :class:`~shmq.TableDeleted` from then on. Raises
        :class:`~shmq.NoSuchTable`.
        """

    @abc.abstractmethod
    def list_tables(self) -> list[str]:
        """The names of the namespace's tables, sorted."""

    # ---- locks ----

    def lock(self, name: str, *, timeout: float | None = None) -> Lock:
        """A handle of the lock ``name``, which all processes of the namespace share.

        ``timeout`` is for how many seconds ``with`` and ``acquire`` wait (None: no limit). Raises
        :class:`~shmq.LockExists` if a semaphore has the name, :class:`~shmq.InvalidName` for a name
        that no queue may have, or of over 94 characters, :class:`~shmq.InvalidOption`, TypeError,
        :class:`~shmq.NoSpace`, :class:`~shmq.LockTimeout` if a process is stopped while it creates
        or deletes a queue, over TCP and in a NATS cluster :class:`~shmq.ConnectionLost`, and over
        TCP :class:`~shmq.NoSuchQueue` or :class:`~shmq.Forbidden` if the token lacks a right.
        """
        raise _make_no_locks(name, timeout)

    def semaphore(self, name: str, permits: int, *, timeout: float | None = None) -> Semaphore:
        """A handle of the semaphore ``name`` with so many permits, 1 to 10,000.

        Raises :class:`~shmq.LockExists` if it exists with another number of permits or is a lock,
        and otherwise what ``lock`` raises.
        """
        raise _make_no_locks(name, permits, timeout)

    def list_locks(self) -> list[LockSummary]:
        """Every lock and semaphore of the namespace, sorted by name, with holders and waiters.

        One that no process has used, or that was closed by all of them, is not there. Raises
        :class:`~shmq.Unsupported` in a NATS cluster.
        """
        raise _make_no_locks()

    @abc.abstractmethod
    def close(self) -> None:
        """Detach from every queue, stream and table this broker opened. May be called again."""


def _make_no_locks(*asked: object) -> Unsupported:
    what = f"lock {asked[0]!r}" if asked else "locks"
    return Unsupported(f"this broker has no locks, so not {what}: connect to a host, or its server")


def _make_no_streams(*asked: object) -> Unsupported:
    what = f"stream {asked[0]!r}" if asked else "streams"
    return Unsupported(f"this broker has no streams, so not {what}: connect on their host")
