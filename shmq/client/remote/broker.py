"""The queues and streams of a server's namespace."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from shmq import api, errors
from shmq.api.names import check_name, reply_name
from shmq.api.options import IfDifferent, Options, QueueOptions
from shmq.api.stream_options import StreamOptions
from shmq.client.handles.broker import BaseBroker, check_if_different, given_of, same
from shmq.client.handles.table import check_table
from shmq.client.remote import exchange, table
from shmq.client.remote import stream as streams
from shmq.client.remote.address import Target, Tls
from shmq.client.remote.connection import Connection
from shmq.client.remote.exchange import RemoteExchange
from shmq.client.remote.queue import RemoteQueue, attach, make_exclusive
from shmq.client.remote.stream import RemoteStream
from shmq.client.remote.table import RemoteTable
from shmq.client.shared.name_texts import learn_names, share_name, with_texts
from shmq.client.shared.rpc_client import REPLY_OPTIONS
from shmq.model.routing.table import check_exchange
from shmq.native import _clock as time
from shmq.native import _core
from shmq.protocol.messages.exchange import Shown
from shmq.protocol.messages.payload import pack_name
from shmq.protocol.messages.queue import QUEUES, Create, Greeting, List, SchemaAnswer, SchemaRequest
from shmq.protocol.messages.stream import STREAMS, StreamCreate
from shmq.protocol.messages.table import TableInfo, TableRequest
from shmq.protocol.opcodes import MAX_PING, Status, Type
from shmq.protocol.status import error_of

if TYPE_CHECKING:
    from shmq.api.keywords import EnsureStreamKeywords, QueueKeywords, StreamKeywords
    from shmq.api.table import TableDurability


class RemoteBroker(BaseBroker):
    """The queues of the namespace that a server serves.

    It connects when it is created, and has its own connection beside those of its queues.
    """

    def __init__(self, target: Target) -> None:
        super().__init__()
        self._closed = False
        self._connection = Connection(target)
        self._handles: weakref.WeakSet[RemoteQueue | RemoteStream] = weakref.WeakSet()
        #: The handles of the exclusive queues that it has made, with the connections that own them.
        self._owned: dict[str, RemoteQueue] = {}
        self._connection.ready(time.monotonic() + target.connect_timeout)

    @classmethod
    def connect(
        cls,
        url: str,
        token: str | None = None,
        tls: Tls = None,
        connect_timeout: float = 5.0,
        request_timeout: float = 30.0,
        wait_for_acks: bool = True,
    ) -> RemoteBroker:
        """Connect to the server at ``url``. Raises what :func:`shmq.connect` raises."""
        return cls(Target.of(url, token, tls, connect_timeout, request_timeout, wait_for_acks))

    @property
    def url(self) -> str:
        """The server's URL, without the token."""
        return self._connection.url

    @property
    def server(self) -> str:
        """The server's self-description."""
        return self._greeting.server

    @property
    def namespace(self) -> str:
        return self._greeting.namespace

    @property
    def _greeting(self) -> Greeting:
        greeting = self._connection.greeting
        assert greeting is not None
        return greeting

    def ping(self, payload: bytes = b"", timeout: float | None = None) -> float:
        """The time of one round trip to the server with ``payload``, in seconds.

        The payload has at most 64 bytes. Raises :class:`~shmq.ConnectionLost` if there is no answer
        within ``timeout`` (None: the request timeout), and :class:`~shmq.InvalidOption`.
        """
        if len(payload) > MAX_PING:
            raise errors.InvalidOption(f"payload has {len(payload)} bytes, and may have {MAX_PING}")
        _core.check_timeout(timeout)
        began = time.monotonic()
        patience = self._connection.target.request_timeout if timeout is None else timeout
        wire = self._connection.ready(began + patience)
        answer = wire.request(Type.PING, False, bytes(payload))
        self._connection.await_(wire, answer, patience)
        if answer.lost:
            raise self._connection.lost(wire)
        self._check(answer)
        return time.monotonic() - began

    # ---- queues ----

    def create_queue(self, name: str, **options: Unpack[QueueKeywords]) -> RemoteQueue:
        self._check_open()
        wanted = QueueOptions.for_queue(check_name(name), options)
        if (mine := self._mine(name)) is not None:
            differences = wanted.differences(mine.options)
            if differences:
                raise errors.QueueExists.of(name, differences)
            return mine
        create = Create(_sent(wanted, options))
        if wanted.exclusive:
            return self._make_exclusive(name, create)
        answer = self._ask(Type.CREATE, name, create.pack())
        if answer.status == Status.QUEUE_EXISTS:
            raise self._exists(name, wanted, answer)
        self._check_made(answer, name)
        return self._opened(name)

    def _make_exclusive(self, name: str, create: Create) -> RemoteQueue:
        """Create a queue that belongs to the connection of its handle."""
        made = make_exclusive(self._connection.target, name, self.namespace, create)
        self._handles.add(made)
        share_name(self, name)
        self._owned[name] = made
        return made

    def _mine(self, name: str) -> RemoteQueue | None:
        """The handle of an exclusive queue that this broker has made."""
        found = self._owned.get(name)
        if found is None or (not found.closed and found.is_owner()):
            return found
        del self._owned[name]
        found.close()
        return None

    def _check_made(self, answer: _core.Answer, name: str) -> None:
        if answer.status == Status.NO_QUEUE:  # no right to create: the answer tells no more
            raise errors.NoSuchQueue(
                f"there is no queue {name!r} for this token in namespace {self.namespace!r} of "
                f"{self.url}, and it may make none of that name"
            )
        self._check(answer, name)

    def _exists(self, name: str, wanted: QueueOptions, answer: _core.Answer) -> errors.ShmqError:
        try:
            differences = wanted.differences(self.queue(name).options)
        except errors.ShmqError:
            differences = {}
        if not differences:
            return error_of(answer, f"queue {name!r}")
        return errors.QueueExists.of(name, differences)

    def queue(self, name: str) -> RemoteQueue:
        self._check_open()
        mine = self._mine(check_name(name))
        return self._usable(self._opened(name)) if mine is None else mine

    def put_target(self, name: str) -> RemoteQueue:
        self._check_open()
        mine = self._mine(check_name(name))
        return self._opened(name) if mine is None else mine

    def _usable(self, queue: RemoteQueue) -> RemoteQueue:
        """The queue. Raises Forbidden if it is exclusive to another client."""
        if queue.exclusive_to is not None:
            queue.close()
            raise errors.Forbidden(queue.exclusive_to)
        return queue

    def ensure_queue(
        self, name: str, *, if_different: IfDifferent = "accept", **options: Unpack[QueueKeywords]
    ) -> RemoteQueue:
        self._check_open()
        check_if_different(if_different)
        wanted = QueueOptions.for_queue(check_name(name), options)
        try:
            queue = self.queue(name)
        except errors.NoSuchQueue:
            create = Create(_sent(wanted, options))
            if wanted.exclusive:
                return self._make_exclusive(name, create)
            answer = self._ask(Type.CREATE, name, create.pack())
            if answer.status != Status.QUEUE_EXISTS:
                self._check_made(answer, name)
            queue = self._opened(name)
        else:
            if queue.options.expires is not None:  # which begins anew
                given = queue.options.as_dict()
                self._ask(Type.CREATE, name, Create(_sent(queue.options, given)).pack())
        return same(queue, options, if_different)

    def delete_queue(self, name: str) -> None:
        self._check_open()
        answer = self._ask(Type.DELETE, check_name(name))
        if answer.status == Status.NO_QUEUE:
            raise errors.NoSuchQueue(
                f"there is no queue {name!r} in namespace {self.namespace!r} of {self.url}: "
                f"see `shmq list`"
            )
        self._check(answer, name)

    def list_queues(self) -> list[api.QueueSummary]:
        self._check_open()
        return with_texts(self, QUEUES.unpack(self._list(List())))

    def queue_names(self) -> list[str]:
        self._check_open()
        if not self._greeting.extended:
            return [queue.name for queue in self.list_queues()]
        names = List.unpack_names(self._list(List(only_names=True)))
        learn_names(self, names)
        return names

    def _list(self, asked: List) -> _core.Answer:
        answer = self._connection.call(
            lambda wire: wire.request(Type.LIST, False, asked.pack()), again=True
        )
        self._check(answer)
        return answer

    # ---- streams ----

    def create_stream(
        self, name: str, partitions: int = 4, **options: Unpack[StreamKeywords]
    ) -> RemoteStream:
        self._check_open()
        check_name(name, "stream")
        given = {"partitions": partitions, **options}
        wanted = StreamOptions.given(given)
        wanted.check_of_host(name)
        answer = self._ask(Type.STREAM_CREATE, name, StreamCreate(_sent(wanted, given)).pack())
        if answer.status == Status.QUEUE_EXISTS:
            raise self._stream_exists(name, wanted)
        self._check_stream(answer, name)
        return self._opened_stream(name)

    def stream(self, name: str) -> RemoteStream:
        self._check_open()
        return self._opened_stream(check_name(name, "stream"))

    def ensure_stream(
        self,
        name: str,
        *,
        if_different: IfDifferent = "accept",
        **options: Unpack[EnsureStreamKeywords],
    ) -> RemoteStream:
        self._check_open()
        check_if_different(if_different)
        check_name(name, "stream")
        wanted = StreamOptions.given(options)
        wanted.check_of_host(name)
        try:
            stream = self._opened_stream(name)
        except errors.NoSuchStream:
            packed = StreamCreate(_sent(wanted, options)).pack()
            answer = self._ask(Type.STREAM_CREATE, name, packed)
            if answer.status != Status.QUEUE_EXISTS:
                self._check_stream(answer, name)
            stream = self._opened_stream(name)
        return same(stream, options, if_different)

    def delete_stream(self, name: str) -> None:
        self._check_open()
        answer = self._ask(Type.STREAM_DELETE, check_name(name, "stream"))
        if answer.status == Status.NO_QUEUE:
            raise errors.NoSuchStream(
                f"there is no stream {name!r} in namespace {self.namespace!r} of {self.url}: "
                f"see `shmq stream list`"
            )
        self._check_stream(answer, name)

    def list_streams(self) -> list[api.StreamSummary]:
        self._check_open()
        answer = self._connection.call(
            lambda wire: wire.request(Type.STREAM_LIST, False, b""), again=True
        )
        self._check(answer)
        return with_texts(self, STREAMS.unpack(answer))

    def _opened_stream(self, name: str) -> RemoteStream:
        stream = streams.attach(self._connection.target, name, self.namespace)
        self._handles.add(stream)
        share_name(self, name)
        return stream

    def _stream_exists(self, name: str, wanted: StreamOptions) -> errors.ShmqError:
        try:
            differences = wanted.differences(self.stream(name).options)
        except errors.ShmqError:
            differences = {}
        return errors.StreamExists.of(name, differences)

    def _check_stream(self, answer: _core.Answer, name: str) -> None:
        if answer.status == Status.NO_QUEUE:  # no right to create: the answer tells no more
            raise errors.NoSuchStream(
                f"there is no stream {name!r} for this token in namespace {self.namespace!r} of "
                f"{self.url}, and it may make none of that name"
            )
        if answer.status != Status.OK:
            raise error_of(answer, f"stream {name!r} of {self.url}")

    # ---- schemas ----

    def _set_schema(self, name: str, schema: dict[str, Any], rule: str | None) -> int:
        return self._schema(name, SchemaRequest("set", schema, rule)).version or 0

    def _check_schema(self, name: str, schema: dict[str, Any], rule: str | None) -> None:
        self._schema(name, SchemaRequest("check", schema, rule))

    def schemas(self, name: str) -> list[api.SchemaVersion]:
        return self._schema(name, SchemaRequest("get")).versions or []

    def _schema(self, name: str, asked: SchemaRequest) -> SchemaAnswer:
        """The answer. Raises SchemaError if the server refuses the schema."""
        self._check_open()
        check_name(name)
        answer = self._ask(Type.SCHEMA, name, asked.pack(), again=True)
        if answer.status == Status.NO_QUEUE:
            raise errors.NoSuchQueue(
                f"there is no queue and no stream {name!r} in namespace {self.namespace!r} of "
                f"{self.url}: create it first"
            )
        self._check(answer, name)
        found = SchemaAnswer.unpack(answer, name)
        if found.refused is not None:
            raise errors.SchemaError(found.refused, name, found.field)
        return found

    # ---- exchanges ----

    def create_exchange(
        self, name: str, kind: api.ExchangeKind = "direct", alternate: str | None = None
    ) -> RemoteExchange:
        check_exchange(name, kind, alternate)
        answer = self._ask_exchange(name, "create", kind=kind, alternate=alternate)
        return self._opened_exchange(name, answer)

    def exchange(self, name: str) -> RemoteExchange:
        answer = self._ask_exchange(check_name(name, "exchange"), "look")
        return self._opened_exchange(name, answer)

    def _opened_exchange(self, name: str, answer: _core.Answer) -> RemoteExchange:
        share_name(self, name)
        return RemoteExchange(self, self._connection, name, Shown.unpack(answer))

    def ensure_exchange(
        self,
        name: str,
        kind: api.ExchangeKind | None = None,
        alternate: str | None = None,
        *,
        if_different: IfDifferent = "accept",
    ) -> RemoteExchange:
        check_if_different(if_different)
        check_exchange(name, kind or "direct", alternate)
        return same(
            self._ensured_exchange(name, kind or "direct", alternate),
            given_of(kind, alternate),
            if_different,
        )

    def _ensured_exchange(
        self, name: str, kind: api.ExchangeKind, alternate: str | None
    ) -> RemoteExchange:
        while True:
            try:
                return self.exchange(name)
            except errors.NoSuchExchange:
                with contextlib.suppress(errors.ExchangeExists):  # another client was faster
                    return self.create_exchange(name, kind, alternate)

    def delete_exchange(self, name: str) -> None:
        self._ask_exchange(check_name(name, "exchange"), "delete")

    def list_exchanges(self) -> list[api.ExchangeSummary]:
        self._check_open()
        return with_texts(self, exchange.summaries(self._connection))

    def _ask_exchange(self, name: str, action: str, **arguments: Any) -> _core.Answer:
        self._check_open()
        return exchange.ask(self._connection, name, action, **arguments)

    # ---- tables ----

    def ensure_table(
        self, name: str, durability: TableDurability = "memory", *, max_bytes: int | None = None
    ) -> RemoteTable:
        check_name(name, "table")
        check_table(durability, max_bytes)
        try:
            return self.table(name)
        except errors.NoSuchTable:
            options = {"durability": durability, "max_bytes": max_bytes}
            return self._opened_table(name, TableRequest("make", options))

    def table(self, name: str) -> RemoteTable:
        return self._opened_table(check_name(name, "table"), TableRequest("look"))

    def _opened_table(self, name: str, asked: TableRequest) -> RemoteTable:
        self._check_open()
        answer = table.ask(self._connection, name, asked)
        return RemoteTable(self, self._connection, name, TableInfo.unpack(answer))

    def delete_table(self, name: str) -> None:
        check_name(name, "table")
        self._check_open()
        table.ask(self._connection, name, TableRequest("drop"))

    def list_tables(self) -> list[str]:
        self._check_open()
        return List.unpack_names(self._list(List(tables=True)))

    # ---- the reply queues ----

    def _make_reply_queue(self) -> api.Queue:
        if not self._greeting.extended:
            raise errors.Unsupported(f"{self.url} has no reply queues, which requests need")
        create = Create(REPLY_OPTIONS, own=True)
        queue = make_exclusive(self._connection.target, reply_name(), self.namespace, create)
        self._handles.add(queue)
        return queue

    def _remove_reply_queue(self, queue: api.Queue) -> None:
        with contextlib.suppress(errors.ShmqError):
            self._ask(Type.DELETE, queue.name)
        queue.close()

    # ---- the connection ----

    def _ask(self, kind: int, name: str, rest: bytes = b"", *, again: bool = False) -> _core.Answer:
        payload = pack_name(name) + rest
        return self._connection.call(
            lambda wire: wire.request(kind, False, payload),
            again=again or kind in (Type.CREATE, Type.STREAM_CREATE),
        )

    def _check(self, answer: _core.Answer, name: str = "") -> None:
        if answer.status != Status.OK:
            raise error_of(answer, f"queue {name!r} of {self.url}" if name else self.url)

    def _opened(self, name: str) -> RemoteQueue:
        queue = attach(self._connection.target, name, self.namespace)
        self._handles.add(queue)
        share_name(self, name)
        return queue

    def _check_open(self) -> None:
        if self._closed:
            raise self._connection.closed_error()

    def close(self) -> None:
        if self._closed:
            return
        self._close_replies()
        self._closed = True  # before its handles: it ends serve() in another thread
        for handle in list(self._handles):
            handle.close()
        self._connection.close()

    def __del__(self) -> None:
        connection = getattr(self, "_connection", None)
        if connection is not None:
            connection.drop()

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteBroker, (self._connection.target,)

    def __rich_repr__(self) -> Iterator[tuple[str, object]]:
        yield "url", self.url

    def __repr__(self) -> str:
        return f"<RemoteBroker of {self.url}>"


def _sent(wanted: Options, given: Mapping[str, Any]) -> dict[str, Any]:
    """The given options as plain numbers, which the check of all options has ensured."""
    return {key: getattr(wanted, key) for key in given}
