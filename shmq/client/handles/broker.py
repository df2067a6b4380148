"""The handle of a broker: the contract on top of a port, for any transport."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, get_args, overload

from shmq import api
from shmq.api.names import check_name
from shmq.api.options import IfDifferent, QueueOptions, check_one_of
from shmq.client.ports.broker import BrokerPort, Exchange, Queue, Stream, Table
from shmq.client.shared.name_texts import learn_names, share_name, with_texts
from shmq.client.shared.rpc_client import RpcClient
from shmq.errors import InvalidOption, NotFound, ShmqError
from shmq.lazy_imports import late_imports
from shmq.model.schema.check import as_json_schema
from shmq.model.schema.compare import Compatibility
from shmq.suggestions import suggest_known

if TYPE_CHECKING:
    from shmq.api.keywords import EnsureStreamKeywords, QueueKeywords, StreamKeywords
    from shmq.api.table import TableDurability

T = TypeVar("T")
_Handle = TypeVar("_Handle", bound="api.Queue | api.Stream | api.Exchange")
_Any = TypeVar("_Any", bound="api.Queue | api.Stream | api.Exchange | api.Table")


class BrokerHandle(BrokerPort[Queue, Stream, Exchange, Table], RpcClient):
    """Implements :class:`shmq.api.Broker` on top of its port."""

    #: Whether the error for an unknown name suggests a known one. A server's broker does not: a
    #: client may see only some names.
    suggests = True

    def __init__(self) -> None:
        super().__init__()
        self._closed = False
        self._handles: weakref.WeakSet[Any] = weakref.WeakSet()
        #: Errors whose hints may still be asked for; a closed broker can no longer list names.
        self._unread: weakref.WeakSet[NotFound] = weakref.WeakSet()

    def _keep_handle(self, handle: _Any) -> _Any:
        """The handle, which is closed with the broker."""
        self._handles.add(handle)
        share_name(self, handle.name)
        return handle

    def _find_known(
        self, find: Callable[[str], T], name: str, list_names: Callable[[], Iterable[str]]
    ) -> T:
        """Return what ``find`` does for the name; its NotFound suggests one of the listed names."""
        try:
            return find(name)
        except NotFound as error:
            if self.suggests:
                suggest_known(error, name, list_names)
                self._unread.add(error)
            raise

    # ---- queues ----

    def create_queue(self, name: str, **options: Unpack[QueueKeywords]) -> Queue:
        self._check_open()
        wanted = QueueOptions.for_queue(check_name(name), options)
        return self._keep_handle(self.make_queue(name, wanted, options, True))

    def ensure_queue(
        self, name: str, *, if_different: IfDifferent = "accept", **options: Unpack[QueueKeywords]
    ) -> Queue:
        self._check_open()
        check_if_different(if_different)
        wanted = QueueOptions.for_queue(check_name(name), options)
        made = self.make_queue(name, wanted, options, False)
        return self._keep_handle(same(made, options, if_different))

    def queue(self, name: str) -> Queue:
        self._check_open()
        return self._keep_handle(self._open_known_queue(name, False))

    def put_target(self, name: str) -> Queue:
        self._check_open()
        return self._keep_handle(self._open_known_queue(name, True))

    def _open_known_queue(self, name: str, to_put: bool) -> Queue:
        check_name(name)
        return self._find_known(
            lambda one: self.open_queue(one, to_put), name, self.find_queue_names
        )

    def delete_queue(self, name: str) -> None:
        self._check_open()
        self._find_known(self.remove_queue, check_name(name), self.find_queue_names)

    def list_queues(self) -> list[api.QueueSummary]:
        self._check_open()
        return with_texts(self, self.summarize_queues())

    def queue_names(self) -> list[str]:
        self._check_open()
        names = self.find_queue_names()
        learn_names(self, names)
        return names

    # ---- streams ----

    def create_stream(
        self, name: str, partitions: int = 4, **options: Unpack[StreamKeywords]
    ) -> Stream:
        return self._make_stream(name, {"partitions": partitions, **options}, True)

    def ensure_stream(
        self,
        name: str,
        *,
        if_different: IfDifferent = "accept",
        **options: Unpack[EnsureStreamKeywords],
    ) -> Stream:
        check_if_different(if_different)
        return same(self._make_stream(name, options, False), options, if_different)

    def _make_stream(self, name: str, given: Mapping[str, Any], exact: bool) -> Stream:
        with late_imports:
            from shmq.api.stream_options import StreamOptions  # noqa: PLC0415

        self._check_open()
        check_name(name, "stream")
        return self._keep_handle(self.make_stream(name, StreamOptions.given(given), given, exact))

    def stream(self, name: str) -> Stream:
        self._check_open()
        check_name(name, "stream")
        return self._keep_handle(self._find_known(self.open_stream, name, self._stream_names))

    def delete_stream(self, name: str) -> None:
        self._check_open()
        self._find_known(self.remove_stream, check_name(name, "stream"), self._stream_names)

    def _stream_names(self) -> list[str]:
        return [one.name for one in self.summarize_streams()]

    def list_streams(self) -> list[api.StreamSummary]:
        self._check_open()
        return with_texts(self, self.summarize_streams())

    # ---- exchanges ----

    def create_exchange(
        self, name: str, kind: api.ExchangeKind = "direct", alternate: str | None = None
    ) -> Exchange:
        return self._make_exchange(name, kind, alternate, True)

    def ensure_exchange(
        self,
        name: str,
        kind: api.ExchangeKind | None = None,
        alternate: str | None = None,
        *,
        if_different: IfDifferent = "accept",
    ) -> Exchange:
        check_if_different(if_different)
        given = {"kind": kind, "alternate": alternate}
        given = {key: value for key, value in given.items() if value is not None}
        return same(
            self._make_exchange(name, kind or "direct", alternate, False), given, if_different
        )

    def _make_exchange(
        self, name: str, kind: api.ExchangeKind, alternate: str | None, exact: bool
    ) -> Exchange:
        with late_imports:
            from shmq.model.routing.table import check_exchange  # noqa: PLC0415

        check_exchange(name, kind, alternate)
        self._check_open()
        return self._keep_handle(self.make_exchange(name, kind, alternate, exact))

    def exchange(self, name: str) -> Exchange:
        self._check_open()
        check_name(name, "exchange")
        return self._keep_handle(self._find_known(self.open_exchange, name, self._exchange_names))

    def delete_exchange(self, name: str) -> None:
        self._check_open()
        self._find_known(self.remove_exchange, check_name(name, "exchange"), self._exchange_names)

    def _exchange_names(self) -> list[str]:
        return [one.name for one in self.summarize_exchanges()]

    def list_exchanges(self) -> list[api.ExchangeSummary]:
        self._check_open()
        return with_texts(self, self.summarize_exchanges())

    # ---- tables ----

    def ensure_table(
        self, name: str, durability: TableDurability = "memory", *, max_bytes: int | None = None
    ) -> Table:
        with late_imports:
            from shmq.client.handles.table import check_table  # noqa: PLC0415

        self._check_open()
        check_name(name, "table")
        check_table(durability, max_bytes)
        return self._keep_handle(self.make_table(name, durability, max_bytes))

    def table(self, name: str) -> Table:
        self._check_open()
        check_name(name, "table")
        return self._keep_handle(self._find_known(self.open_table, name, self.find_table_names))

    def delete_table(self, name: str) -> None:
        self._check_open()
        self._find_known(self.remove_table, check_name(name, "table"), self.find_table_names)

    def list_tables(self) -> list[str]:
        self._check_open()
        return self.find_table_names()

    # ---- schemas ----

    def set_schema(self, name: str, schema: Any, compatibility: str | None = None) -> int:
        self._check_open()
        return self.add_schema(check_name(name), as_json_schema(schema), _rule(compatibility))

    def check_schema(self, name: str, schema: Any, compatibility: str | None = None) -> None:
        self._check_open()
        self.test_schema(check_name(name), as_json_schema(schema), _rule(compatibility))

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
            raise ShmqError("this broker is closed: connect() again")

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


def same(handle: _Handle, given: Mapping[str, Any], if_different: IfDifferent) -> _Handle:
    """The handle; if it must be as given and is not, it is closed, and `check_same` raises."""
    if if_different == "refuse":
        # Loaded when it is asked for: it imports the options of streams and exchanges.
        with late_imports:
            from shmq.client.shared.differences import check_same  # noqa: PLC0415

        try:
            check_same(handle, given)
        except BaseException:
            handle.close()
            raise
    return handle


def _rule(compatibility: str | None) -> str | None:
    if compatibility is not None:
        check_one_of("compatibility", compatibility, get_args(Compatibility))
    return compatibility
