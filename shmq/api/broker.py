"""The contract of a broker: the queues, exchanges and streams of one namespace."""

from __future__ import annotations

import abc
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack, overload

from shmq.api.closing import Closing
from shmq.api.options import check_whole
from shmq.errors import InvalidOption, Unsupported

if TYPE_CHECKING:
    from shmq.api.exchange import Exchange, ExchangeKind, ExchangeSummary
    from shmq.api.keywords import (
        EnsureStreamKeywords,
        QueueKeywords,
        StreamKeywords,
        SubscribeKeywords,
    )
    from shmq.api.message import Body, Message
    from shmq.api.queue import Queue
    from shmq.api.schema import SchemaVersion, TypedQueue, TypedStream
    from shmq.api.stats import QueueSummary
    from shmq.api.stream import Stream, StreamSummary
    from shmq.api.subscription import Subscription
    from shmq.api.transaction import Transaction


class Broker(Closing):
    """Makes, finds, lists and deletes the queues and exchanges of one namespace.

    A broker is a context manager that closes itself and every queue it opened. A method of
    a closed broker raises :class:`~shmq.ShmqError`, as one of a closed queue does. A queue
    whose segment cannot be used raises :class:`~shmq.SegmentError`.
    """

    @property
    @abc.abstractmethod
    def namespace(self) -> str:
        """The namespace whose queues these are."""

    @abc.abstractmethod
    def create_queue(self, name: str, **options: Unpack[QueueKeywords]) -> Queue:
        """Make the queue ``name`` and attach to it.

        The options are the fields of :class:`shmq.QueueOptions`, by name. A queue that
        exists with the same ones is attached to. Raises :class:`~shmq.QueueExists` if it
        exists with others (and says which differ), :class:`~shmq.InvalidName`,
        :class:`~shmq.InvalidOption` for an unknown option or a value out of range,
        :class:`~shmq.NoSpace`, and TypeError for a value of the wrong type.
        """

    @abc.abstractmethod
    def queue(self, name: str) -> Queue:
        """Attach to the queue ``name``. Raises :class:`~shmq.NoSuchQueue`."""

    @abc.abstractmethod
    def ensure_queue(self, name: str, **options: Unpack[QueueKeywords]) -> Queue:
        """Attach to the queue ``name``, whatever its options, or make it with these.

        Raises what ``create_queue`` raises, but for :class:`~shmq.QueueExists`: the options
        are checked in any case, and compared in none.
        """

    @abc.abstractmethod
    def delete_queue(self, name: str) -> None:
        """Delete the queue ``name`` and all its messages; its dead-letter queue stays.

        Whoever waits on it gets :class:`~shmq.QueueDeleted`. One whose segment is damaged or
        of another version is deleted too. Raises :class:`~shmq.NoSuchQueue`, and
        :class:`~shmq.ForeignSegment` if it is someone else's.
        """

    @abc.abstractmethod
    def list_queues(self) -> list[QueueSummary]:
        """Every queue of the namespace with its depth, sorted by name.

        One that cannot be used is among them, with its ``problem``. It attaches to each of
        them: where there are thousands, ask for `queue_names`.
        """

    @abc.abstractmethod
    def queue_names(self) -> list[str]:
        """The names of the queues of the namespace, sorted, without attaching to any.

        One may be half made or half removed by a process that died. Where the machine has
        more than 1,000 files in /dev/shm, a queue whose file was removed by hand may be among
        them for a second.
        """

    # ---- requests and replies ----

    @abc.abstractmethod
    def request(
        self,
        queue: str | Queue,
        body: Body,
        timeout: float | None = None,
        **properties: Any,
    ) -> Message:
        """Put a request into ``queue`` and wait for its reply: a message that is settled.

        Within ``timeout`` seconds (None: without limit) there must be room for the request,
        and a reply; ``properties`` are those of a put. The reply comes to a private queue of
        this client, which the first request makes and which is removed with the broker, or
        once its process or its connection has ended. Any number of threads may ask.

        Raises :class:`~shmq.NoReply` if none came in time; the request stays, give it a
        ``ttl`` too if it must not be handled late. Raises :class:`~shmq.RequestFailed` if the
        handler raised, :class:`~shmq.ConnectionLost` if the reply queue is gone,
        :class:`~shmq.NoSuchQueue`, and what ``Queue.put`` raises.
        """

    @abc.abstractmethod
    async def arequest(
        self,
        queue: str | Queue,
        body: Body,
        timeout: float | None = None,
        **properties: Any,
    ) -> Message:
        """``request``, for a task. A task that is cancelled drops its reply."""

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

        What ``handler`` returns is the reply, and what it raises reaches who asked as
        :class:`~shmq.RequestFailed`: the error's type and text, with ``tracebacks`` its
        traceback. A request is settled after its reply was put, so one whose server dies is
        handled by another, and then its reply may come twice: the second one is dropped.
        The handler may raise :class:`~shmq.Retry`, which replies nothing and has the request
        handled again, and :class:`~shmq.Reject`, which is told and makes it a dead letter. A
        message that wants no reply is acknowledged, or returned to the queue if the handler
        raises. The lease is prolonged while the handler runs.

        ``prefetch``: messages leased at a time. Without ``stop`` it runs until the broker is
        closed or the queue is deleted. Any number of threads and processes may serve a queue.
        Returns how many messages were handled. Raises what ``Queue.get`` raises.
        """

    @property
    @abc.abstractmethod
    def late_replies(self) -> int:
        """How many replies came when nobody waited for them any more, and were dropped."""

    # ---- schemas ----

    @abc.abstractmethod
    def set_schema(self, name: str, schema: Any, compatibility: str | None = None) -> int:
        """Make ``schema`` the newest version of that of the queue or stream; its number.

        It is a JSON Schema, as a map, or a type such as a ``msgspec.Struct``. Where it is the
        newest one already, nothing happens. ``compatibility`` is what it, and what follows,
        must be to every version before: ``"backward"`` (who reads by the new one can read what
        was written by the old ones), ``"forward"`` (the other way round), ``"full"`` or
        ``"none"``; None is that of the newest version, or ``"backward"`` for the first.

        Raises :class:`~shmq.SchemaError`, which names the field, if it is not so;
        :class:`~shmq.InvalidOption` for what is no JSON Schema, :class:`~shmq.NoSuchQueue` if
        there is neither a queue nor a stream of that name; :class:`~shmq.NotConfirmed` if it was
        set and is not known to be on disk. A schema goes with those; a queue and a stream of one
        name share it.
        """

    @abc.abstractmethod
    def check_schema(self, name: str, schema: Any, compatibility: str | None = None) -> None:
        """Raise what ``set_schema`` would raise, and change nothing."""

    @abc.abstractmethod
    def schemas(self, name: str) -> list[SchemaVersion]:
        """Every version of the schema of the queue or stream, the oldest first."""

    def schema(self, name: str, version: int | None = None) -> SchemaVersion:
        """That version, or the newest one.

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
        self, of: str | Queue, schema: Any = None, compatibility: str | None = None
    ) -> TypedQueue: ...

    @overload
    @abc.abstractmethod
    def typed(
        self, of: Stream, schema: Any = None, compatibility: str | None = None
    ) -> TypedStream: ...

    @abc.abstractmethod
    def typed(
        self, of: str | Queue | Stream, schema: Any = None, compatibility: str | None = None
    ) -> TypedQueue | TypedStream:
        """The queue (or that of this name), or the stream, checked by its newest schema.

        A ``schema`` that is given is set first, as ``set_schema`` does. What is put or appended
        by the queue or stream itself is not checked, and costs what it did. Raises what
        ``set_schema`` and ``schema`` raise, and :class:`~shmq.ShmqError` if ``shmq[schemas]``
        is not installed.
        """

    # ---- streams ----

    def create_stream(
        self, name: str, partitions: int = 4, **options: Unpack[StreamKeywords]
    ) -> Stream:
        """Make the stream ``name`` and attach to it.

        The options are the fields of :class:`shmq.StreamOptions`, by name. A stream that
        exists with the same ones is attached to; of one that was repartitioned ``partitions``
        may be what it was made with. A stream and a queue may have the same name. Raises
        :class:`~shmq.StreamExists` if it exists with others (and says which differ),
        :class:`~shmq.InvalidName`, :class:`~shmq.InvalidOption` for an unknown option or a
        value out of range, :class:`~shmq.NoSpace`, and TypeError for a value of the wrong type.
        """
        raise _no_streams(name, partitions, options)

    def stream(self, name: str) -> Stream:
        """Attach to the stream ``name``. Raises :class:`~shmq.NoSuchStream`."""
        raise _no_streams(name)

    def ensure_stream(self, name: str, **options: Unpack[EnsureStreamKeywords]) -> Stream:
        """Attach to the stream ``name``, whatever its options, or make it with these.

        Raises what ``create_stream`` raises, but for :class:`~shmq.StreamExists`.
        """
        raise _no_streams(name, options)

    def delete_stream(self, name: str) -> None:
        """Delete the stream ``name`` and all its records.

        Whoever waits on it gets :class:`~shmq.StreamDeleted`. One whose segments are damaged
        or of another version is deleted too. Raises :class:`~shmq.NoSuchStream`, and
        :class:`~shmq.ForeignSegment` if it is someone else's.
        """
        raise _no_streams(name)

    def list_streams(self) -> list[StreamSummary]:
        """Every stream of the namespace, sorted by name.

        One that cannot be used is among them, with its ``problem``.
        """
        raise _no_streams()

    def subscribe(
        self, stream: str, pattern: str = "#", **how: Unpack[SubscribeKeywords]
    ) -> Subscription:
        """``stream(stream).subscribe(pattern, **how)``: see :meth:`Stream.subscribe`."""
        return self.stream(stream).subscribe(pattern, **how)

    def transaction(self, *, timeout: float | None = 0.0) -> Transaction:
        """Begin a transaction: what it collects happens when its block is left, or nothing.

        ``timeout``: for how many seconds (None: without limit) the commit may wait for room
        in a queue. Raises :class:`~shmq.Unsupported` over TCP: what commits is a process of
        the host, whose death the kernel tells.
        """
        raise Unsupported(
            f"a transaction is of one host, and this broker's queues and streams are on another "
            f"(timeout={timeout}): connect there by name, without a URL"
        )

    @abc.abstractmethod
    def create_exchange(
        self, name: str, kind: ExchangeKind = "direct", alternate: str | None = None
    ) -> Exchange:
        """Make the exchange ``name``, without bindings.

        ``alternate`` names the exchange that gets what this one's bindings do not take; it may
        be made later. An exchange that exists with the same kind and alternate is attached
        to. Raises :class:`~shmq.ExchangeExists`, :class:`~shmq.InvalidName`,
        :class:`~shmq.InvalidOption`, :class:`~shmq.NoSpace`, :class:`~shmq.SegmentError`
        if the namespace's table of exchanges cannot be used, and, as every change of
        exchanges does, :class:`~shmq.NotConfirmed` if it was made and the disk of a namespace that
        is kept on disk did not take it.
        """

    @abc.abstractmethod
    def exchange(self, name: str) -> Exchange:
        """Attach to the exchange ``name``. Raises :class:`~shmq.NoSuchExchange`."""

    @abc.abstractmethod
    def ensure_exchange(
        self, name: str, kind: ExchangeKind = "direct", alternate: str | None = None
    ) -> Exchange:
        """Attach to the exchange ``name``, whatever it is, or make it.

        Raises what ``create_exchange`` raises, but for :class:`~shmq.ExchangeExists`.
        """

    @abc.abstractmethod
    def delete_exchange(self, name: str) -> None:
        """Delete the exchange ``name``, its bindings and those to it.

        The queues stay. Raises :class:`~shmq.NoSuchExchange`.
        """

    @abc.abstractmethod
    def list_exchanges(self) -> list[ExchangeSummary]:
        """Every exchange of the namespace, sorted by name."""

    @abc.abstractmethod
    def close(self) -> None:
        """Detach from every queue and stream this broker opened. May be called again."""


def _no_streams(*asked: object) -> Unsupported:
    what = f"stream {asked[0]!r}" if asked else "streams"
    return Unsupported(f"this broker has no streams, so not {what}: connect on their host")
