"""The handle of a broker: the contract on top of a port, for any transport."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, Unpack, cast, get_args, overload

from shmq import api
from shmq.api.names import LOCK_PERMITS, check_name, is_lock_queue
from shmq.api.options import IfDifferent, QueueOptions, check_flag, check_one_of
from shmq.client.ports.broker import BrokerPort, CollectionPort, Kind
from shmq.client.ports.steps import Steps, arun, blocking, run
from shmq.client.shared.name_texts import learn_names, share_name, with_texts
from shmq.client.shared.rpc_client import RpcClient
from shmq.errors import ConnectionLost, InvalidOption, NotFound, ShmqError, closed_broker
from shmq.lazy_imports import late_imports
from shmq.suggestions import name_other, suggest_known

if TYPE_CHECKING:
    from shmq.api.keywords import (
        EnsureStreamKeywords,
        QueueKeywords,
        StreamKeywords,
        SubscribeOptions,
    )
    from shmq.api.stream_options import StreamOptions
    from shmq.api.table import TableDurability
    from shmq.model.codec.codecs import Default

#: How many locks, and how many inboxes, a broker keeps open that no handle uses.
_MOST_LOCKS: Final = 64

T = TypeVar("T")
# The bounds are strings: each of these contracts is loaded when it is asked for.
Queue = TypeVar("Queue", bound="api.Queue")
Stream = TypeVar("Stream", bound="api.Stream")
Exchange = TypeVar("Exchange", bound="api.Exchange")
Table = TypeVar("Table", bound="api.Table")
_Any = TypeVar("_Any", bound="api.Queue | api.Stream | api.Exchange | api.Table")


def _remember(used: dict[str, T], name: str, value: T) -> None:
    """Store it as the one that was used last; threads may do so at the same time."""
    used.pop(name, None)
    used[name] = value
    for oldest in list(used)[:-_MOST_LOCKS]:
        used.pop(oldest, None)


class BrokerHandle(BrokerPort, RpcClient, Generic[Queue, Stream, Exchange, Table]):
    """Implements :class:`shmq.api.Broker` on top of its port."""

    #: Whether the error for an unknown name suggests a known one. A server's broker does not: a
    #: client may see only some names.
    suggests = True
    #: See `connect`.
    default: Default | None = None
    #: After how many seconds the lock of a dead or stopped holder is free; None: its permit comes
    #: back with the holder's death, and no sooner.
    lock_lease: float | None = None

    def __init__(self) -> None:
        super().__init__()
        self._closed = False
        self._handles: weakref.WeakSet[Any] = weakref.WeakSet()
        #: Errors whose hints may still be asked for; a closed broker can no longer list names.
        self._unread: weakref.WeakSet[NotFound] = weakref.WeakSet()
        #: The queues of the locks that were used last, by their names.
        self._lock_queues: dict[str, tuple[str, int, tuple[Any, Any]]] = {}
        #: The inbox of this broker's waiters; None: none has waited.
        self._inbox: Any = None
        #: The inboxes of other brokers that were used last, by name.
        self._inboxes: dict[str, Any] = {}
        #: The handles that hold a lock: it is held even if the application drops its handle.
        self.held_locks: set[api.Semaphore] = set()

    def _keep_handle(self, handle: _Any) -> _Any:
        """The handle, which is closed with the broker, and encodes as it does."""
        if self.default is not None:
            cast("Any", handle).default = self.default
        self._handles.add(handle)
        share_name(self, handle.name)
        return handle

    # ---- what has a name ----

    def _make(
        self, kind: Kind, name: str, wanted: Any, given: Mapping[str, Any], exact: bool
    ) -> Any:
        self._check_open()
        return self._keep_handle(self.collection(kind).make(name, wanted, given, exact))

    def _reconcile(
        self,
        handle: _Any,
        given: Mapping[str, Any],
        if_different: IfDifferent,
        alterable: Kind | None = None,
    ) -> _Any:
        """The handle of something that is as given, altered or accepted; else it is closed.

        ``alterable`` is the kind of a handle whose options can be altered.
        """
        if not given or if_different == "accept":
            return handle
        # Loaded when it is asked for: it imports the options of streams and exchanges.
        with late_imports:
            from shmq.client.shared import differences  # noqa: PLC0415

        try:
            if alterable is None or if_different != "alter":
                differences.reconcile(handle, given, if_different, self.namespace)
            elif wanted := differences.find_differences(cast("Any", handle), given):
                self._alter(
                    alterable, cast("Any", handle).name, {key: given[key] for key in wanted}
                )
        except BaseException:
            handle.close()
            raise
        return handle

    def _open(self, kind: Kind, name: str, to_put: bool = False) -> Any:
        self._check_open()
        name = check_name(name, kind)
        named = self.collection(kind)
        return self._keep_handle(self._find_known(lambda: named.open(name, to_put), name, named))

    def _delete(self, kind: Kind, name: str) -> None:
        self._check_open()
        name = check_name(name, kind)
        named = self.collection(kind)
        self._find_known(lambda: named.delete(name), name, named)

    def _list(self, kind: Kind) -> list[Any]:
        self._check_open()
        return self.collection(kind).summaries()

    def _find_known(self, find: Callable[[], T], name: str, known: CollectionPort) -> T:
        """Return what ``find`` does for the name; its NotFound suggests a known one."""
        try:
            return find()
        except NotFound as error:
            if self.suggests:
                kind = error.kind
                suggest_known(error, name, known.names, lambda: self.find_other(name, kind))
                self._unread.add(error)
            raise

    def find_other(self, name: str, kind: str = "") -> str:
        """Return the hint that a thing of another ``kind`` has the name; "" if there is none."""
        for other in get_args(Kind):
            try:
                names = self.collection(other).names()
            except ConnectionLost:  # each of the others would wait as long
                return ""
            except ShmqError:  # this kind is not for the caller to see, or damaged
                continue
            if other != kind and name in names:
                return name_other(other)
            if other == "queue" and LOCK_PERMITS + name in names:
                return name_other("lock")
        return ""

    # ---- queues ----

    def create_queue(
        self, name: str, *, allow_same_name: bool = False, **options: Unpack[QueueKeywords]
    ) -> Queue:
        queue: Queue = self._make_queue(name, options, allow_same_name, True)
        return queue

    def ensure_queue(
        self,
        name: str,
        *,
        if_different: IfDifferent = "warn",
        allow_same_name: bool = False,
        **options: Unpack[QueueKeywords],
    ) -> Queue:
        check_if_different(if_different)
        queue: Queue = self._make_queue(name, options, allow_same_name, False)
        return self._reconcile(queue, options, if_different, "queue")

    def alter_queue(self, name: str, **options: Unpack[QueueKeywords]) -> QueueOptions:
        altered: QueueOptions = run(self._altering("queue", name, options))
        return altered

    async def aalter_queue(self, name: str, **options: Unpack[QueueKeywords]) -> QueueOptions:
        altered: QueueOptions = await arun(self._altering("queue", name, options))
        return altered

    def _altering(self, kind: Kind, name: str, given: Mapping[str, Any]) -> Steps[Any]:
        return (yield blocking(lambda: self._alter(kind, name, given)))

    def _alter(self, kind: Kind, name: str, given: Mapping[str, Any]) -> Any:
        self._check_open()
        name = check_name(name, kind)
        named = self.collection(kind)
        return self._find_known(lambda: named.alter(name, given), name, named)

    def handles_of(self, name: str) -> list[Any]:
        """The handles of that name that this broker has opened."""
        return [handle for handle in self._handles if handle.name == name]

    def _make_queue(
        self, name: str, options: Mapping[str, Any], allow_same_name: bool, exact: bool
    ) -> Any:
        self._check_open()
        name = check_name(name)
        wanted = QueueOptions.for_queue(name, options)
        return self._make("queue", name, wanted, _given(options, allow_same_name), exact)

    def queue(self, name: str) -> Queue:
        queue: Queue = self._open("queue", name)
        return queue

    def put_target(self, name: str) -> Queue:
        queue: Queue = self._open("queue", name, True)
        return queue

    def delete_queue(self, name: str) -> None:
        self._delete("queue", name)

    def list_queues(self) -> list[api.QueueSummary]:
        found = [one for one in self._list("queue") if not is_lock_queue(one.name)]
        return with_texts(self, found)

    def queue_names(self) -> list[str]:
        self._check_open()
        names = [name for name in self.collection("queue").names() if not is_lock_queue(name)]
        learn_names(self, names)
        return names

    # ---- streams ----

    def create_stream(
        self,
        name: str,
        partitions: int = 4,
        *,
        allow_same_name: bool = False,
        **options: Unpack[StreamKeywords],
    ) -> Stream:
        given = {"partitions": partitions, **options}
        stream: Stream = self._make_stream(name, given, allow_same_name, True)
        return stream

    def ensure_stream(
        self,
        name: str,
        *,
        if_different: IfDifferent = "warn",
        allow_same_name: bool = False,
        **options: Unpack[EnsureStreamKeywords],
    ) -> Stream:
        check_if_different(if_different)
        stream: Stream = self._make_stream(name, options, allow_same_name, False)
        return self._reconcile(stream, options, if_different, "stream")

    def alter_stream(self, name: str, **options: Unpack[EnsureStreamKeywords]) -> StreamOptions:
        altered: StreamOptions = run(self._altering("stream", name, options))
        return altered

    async def aalter_stream(
        self, name: str, **options: Unpack[EnsureStreamKeywords]
    ) -> StreamOptions:
        altered: StreamOptions = await arun(self._altering("stream", name, options))
        return altered

    def _make_stream(
        self, name: str, options: Mapping[str, Any], allow_same_name: bool, exact: bool
    ) -> Any:
        with late_imports:
            from shmq.api.stream_options import StreamOptions  # noqa: PLC0415

        self._check_open()
        name = check_name(name, "stream")
        wanted = StreamOptions.given(options)
        return self._make("stream", name, wanted, _given(options, allow_same_name), exact)

    def stream(self, name: str) -> Stream:
        stream: Stream = self._open("stream", name)
        return stream

    def asubscribe(
        self,
        stream: str,
        pattern: str = "#",
        history: int | None = 0,
        **how: Unpack[SubscribeOptions],
    ) -> api.AsyncSubscription:
        with late_imports:  # they import asyncio
            from shmq.client.handles.subscription import AsyncSubscription  # noqa: PLC0415
            from shmq.client.shared.blocking_calls import run_blocking  # noqa: PLC0415

        name = check_name(stream, "stream")
        return AsyncSubscription(
            name, lambda: run_blocking(self.stream, name), pattern, history, **how
        )

    def delete_stream(self, name: str) -> None:
        self._delete("stream", name)

    def list_streams(self) -> list[api.StreamSummary]:
        return with_texts(self, self._list("stream"))

    # ---- exchanges ----

    def create_exchange(
        self, name: str, kind: api.ExchangeKind = "direct", alternate: str | None = None
    ) -> Exchange:
        exchange: Exchange = self._make_exchange(name, kind, alternate, True)
        return exchange

    def ensure_exchange(
        self,
        name: str,
        kind: api.ExchangeKind | None = None,
        alternate: str | None = None,
        *,
        if_different: IfDifferent = "warn",
    ) -> Exchange:
        check_if_different(if_different)
        given = _without_none(kind=kind, alternate=alternate)
        exchange: Exchange = self._make_exchange(name, kind or "direct", alternate, False)
        return self._reconcile(exchange, given, if_different)

    def _make_exchange(
        self, name: str, kind: api.ExchangeKind, alternate: str | None, exact: bool
    ) -> Any:
        with late_imports:
            from shmq.model.routing.table import check_exchange  # noqa: PLC0415

        check_exchange(name, kind, alternate)
        wanted = {"kind": kind, "alternate": alternate}
        return self._make("exchange", name, wanted, wanted, exact)

    def exchange(self, name: str) -> Exchange:
        exchange: Exchange = self._open("exchange", name)
        return exchange

    def delete_exchange(self, name: str) -> None:
        self._delete("exchange", name)

    def list_exchanges(self) -> list[api.ExchangeSummary]:
        return with_texts(self, self._list("exchange"))

    # ---- tables ----

    def ensure_table(
        self,
        name: str,
        durability: TableDurability | None = None,
        *,
        max_bytes: int | None = None,
        if_different: IfDifferent = "warn",
    ) -> Table:
        with late_imports:
            from shmq.client.handles.table import check_table  # noqa: PLC0415

        check_if_different(if_different)
        self._check_open()
        name = check_name(name, "table")
        given = _without_none(durability=durability, max_bytes=max_bytes)
        wanted = {"durability": "memory", "max_bytes": None, **given}
        check_table(**wanted)
        table: Table = self._make("table", name, wanted, given, False)
        return self._reconcile(table, given, if_different)

    def table(self, name: str) -> Table:
        table: Table = self._open("table", name)
        return table

    def delete_table(self, name: str) -> None:
        self._delete("table", name)

    def list_tables(self) -> list[str]:
        return self._list("table")

    # ---- locks ----

    def lock(self, name: str, *, timeout: float | None = None) -> api.Lock:
        with late_imports:
            from shmq.client.handles.lock import LockHandle  # noqa: PLC0415

        return LockHandle(self, name, 1, timeout)

    def semaphore(self, name: str, permits: int, *, timeout: float | None = None) -> api.Semaphore:
        with late_imports:
            from shmq.client.handles.lock import SemaphoreHandle  # noqa: PLC0415

        return SemaphoreHandle(self, name, permits, timeout)

    def list_locks(self) -> list[api.LockSummary]:
        self._check_open()
        with late_imports:
            from shmq.client.handles.lock import summarize_all  # noqa: PLC0415

        return summarize_all(self, self.collection("queue").names())

    def lock_queues(
        self, kind: str, name: str, permits: int, *, again: bool = False
    ) -> tuple[Any, Any]:
        """The queues of a lock; ``again``: those that are open, or the inbox, were deleted."""
        self._check_open()
        with late_imports:
            from shmq.client.handles.lock import open_queues  # noqa: PLC0415

        if again:
            self._inbox = None
        known = self._lock_queues.get(name) if isinstance(name, str) else None
        if known is None or again or known[:2] != (kind, permits):
            known = kind, permits, open_queues(self, kind, name, permits)
        _remember(self._lock_queues, name, known)
        return known[2]

    def lock_inbox(self) -> Any:
        """The inbox that notifies this broker's waiters that they are first in the line."""
        inbox = self._inbox
        if inbox is None:
            with late_imports:
                from shmq.client.handles.lock import inbox_options, new_inbox  # noqa: PLC0415

            inbox = self._inbox = self.open_reserved(new_inbox(), inbox_options())
        return inbox

    def other_inbox(self, name: str) -> Any:
        """The inbox of another broker, to notify its waiters."""
        inbox = self._inboxes.get(name)
        if inbox is None:
            inbox = self.put_target(name)
        _remember(self._inboxes, name, inbox)
        return inbox

    def open_reserved(self, name: str, options: Mapping[str, Any]) -> Queue:
        """Create or open a queue of a lock. Raises QueueExists if it has other options."""
        wanted = QueueOptions.for_queue(name, options)
        queue: Queue = self._make("queue", name, wanted, options, True)
        if wanted.auto_delete:
            with late_imports:
                from shmq.client.handles.lock import get_nothing  # noqa: PLC0415

            get_nothing(queue)  # from now on it stays, and ends with its last consumer
        return queue

    # ---- schemas ----

    def set_schema(self, name: str, schema: Any, compatibility: str | None = None) -> int:
        self._check_open()
        document, rule = _check_schema(schema, compatibility)
        return self.add_schema(check_name(name), document, rule)

    def check_schema(self, name: str, schema: Any, compatibility: str | None = None) -> None:
        self._check_open()
        document, rule = _check_schema(schema, compatibility)
        self.add_schema(check_name(name), document, rule, only_check=True)

    def schemas(self, name: str) -> list[api.SchemaVersion]:
        self._check_open()
        return self.find_schemas(check_name(name))

    @overload
    def typed(
        self, of: str | api.Queue, schema: type[T], compatibility: str | None = None
    ) -> api.TypedQueue[T]: ...

    @overload
    def typed(
        self, of: str | api.Queue, schema: Any = None, compatibility: str | None = None
    ) -> api.TypedQueue[Any]: ...

    @overload
    def typed(
        self, of: api.Stream, schema: type[T], compatibility: str | None = None
    ) -> api.TypedStream[T]: ...

    @overload
    def typed(
        self, of: api.Stream, schema: Any = None, compatibility: str | None = None
    ) -> api.TypedStream[Any]: ...

    def typed(
        self, of: str | api.Queue | api.Stream, schema: Any = None, compatibility: str | None = None
    ) -> api.TypedQueue[Any] | api.TypedStream[Any]:
        if schema is None and compatibility is not None:
            raise InvalidOption(
                f"compatibility={compatibility!r} is for a schema that is set: give one, or neither"
            )
        opened = self.queue(of) if isinstance(of, str) else of
        version = None
        if schema is not None:
            version = self.set_schema(opened.name, schema, compatibility)
        kind = schema if isinstance(schema, type) else None
        # Loaded with the first typed handle: it imports what streams and their producers import.
        with late_imports:
            from shmq.client.handles.typed_queue import typed  # noqa: PLC0415

        return typed(opened, self.schema(opened.name, version), kind)

    # ---- the end ----

    def _check_open(self) -> None:
        if self._closed:
            raise closed_broker()

    def close(self) -> None:
        if self._closed:
            return
        for error in list(self._unread):
            str(error)
        self._close_replies()
        self._closed = True  # before its handles: it ends serve() in another thread
        for handle in list(self._handles):
            handle.close()
        self.disconnect()


def check_if_different(value: object) -> None:
    """Raise TypeError or InvalidOption for an invalid ``if_different``."""
    check_one_of("if_different", value, get_args(IfDifferent))


def _given(options: Mapping[str, Any], allow_same_name: bool) -> Mapping[str, Any]:
    """What a port gets as given: the options, and ``allow_same_name`` if it is true."""
    check_flag("allow_same_name", allow_same_name)
    return {**options, "allow_same_name": True} if allow_same_name else options


def _without_none(**options: Any) -> dict[str, Any]:
    return {key: value for key, value in options.items() if value is not None}


def _check_schema(schema: Any, compatibility: str | None) -> tuple[dict[str, Any], str | None]:
    """The JSON Schema, and the rule that its next version has to keep."""
    with late_imports:
        from shmq.model.schema.check import as_json_schema  # noqa: PLC0415 - for schemas alone
        from shmq.model.schema.compare import Compatibility  # noqa: PLC0415

    if compatibility is not None:
        check_one_of("compatibility", compatibility, get_args(Compatibility))
    return as_json_schema(schema), compatibility
