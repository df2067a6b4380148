"""The queues and streams of a server's namespace."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from shmq import api, errors
from shmq.api.names import reply_name
from shmq.api.options import Options, QueueOptions
from shmq.api.stream_options import StreamOptions
from shmq.client.handles.broker import BrokerHandle
from shmq.client.remote import exchange, table
from shmq.client.remote import stream as streams
from shmq.client.remote.address import Target, Tls
from shmq.client.remote.connection import Connection
from shmq.client.remote.exchange import RemoteExchange
from shmq.client.remote.queue import RemoteQueue, attach, make_exclusive
from shmq.client.remote.stream import RemoteStream
from shmq.client.remote.table import RemoteTable
from shmq.client.shared.rpc_client import REPLY_OPTIONS
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
    from shmq.api.table import TableDurability


class RemoteBroker(BrokerHandle[RemoteQueue, RemoteStream, RemoteExchange, RemoteTable]):
    """The queues of the namespace that a server serves.

    It connects when it is created, and has its own connection beside those of its queues.
    """

    def __init__(self, target: Target) -> None:
        super().__init__()
        self._connection = Connection(target)
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

        The payload has at most 64 bytes. Raises :class:`~shmq.ConnectionLost` if no answer exists
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

    def make_queue(
        self, name: str, wanted: QueueOptions, given: Mapping[str, Any], exact: bool
    ) -> RemoteQueue:
        queue = self._mine(name)
        if not exact:
            with contextlib.suppress(errors.NoSuchQueue):
                queue = self.open_queue(name, False)
                if queue.options.expires is not None:  # which starts again
                    options = queue.options
                    again = Create(_plain_options(options, options.as_dict()))
                    self._ask(Type.CREATE, name, again.pack())
        if queue is None:
            create = Create(_plain_options(wanted, given))
            if wanted.exclusive:
                return self._make_exclusive(name, create)
            answer = self._ask(Type.CREATE, name, create.pack())
            if answer.status == Status.QUEUE_EXISTS and exact:
                raise self._exists(name, wanted, answer)
            if answer.status != Status.QUEUE_EXISTS:
                self._check_made(answer, name)
            return attach(self._connection.target, name, self.namespace)
        if exact and (differences := wanted.differences(queue.options)):
            raise errors.QueueExists.of(name, differences)
        return queue

    def _make_exclusive(self, name: str, create: Create) -> RemoteQueue:
        """Create a queue that belongs to the connection of its handle."""
        made = make_exclusive(self._connection.target, name, self.namespace, create)
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
                f"queue {name!r} does not exist for this token in namespace {self.namespace!r} of "
                f"{self.url}, and it may make none of that name"
            )
        self._check(answer, name)

    def _exists(self, name: str, wanted: QueueOptions, answer: _core.Answer) -> errors.ShmqError:
        try:
            differences = wanted.differences(self.open_queue(name, False).options)
        except errors.ShmqError:
            differences = {}
        if not differences:
            return error_of(answer, f"queue {name!r}")
        return errors.QueueExists.of(name, differences)

    def open_queue(self, name: str, to_put: bool) -> RemoteQueue:
        mine = self._mine(name)
        if mine is not None:
            return mine
        queue = attach(self._connection.target, name, self.namespace)
        if queue.exclusive_to is not None and not to_put:
            queue.close()
            raise errors.Forbidden(queue.exclusive_to)
        return queue

    def remove_queue(self, name: str) -> None:
        answer = self._ask(Type.DELETE, name)
        if answer.status == Status.NO_QUEUE:
            raise errors.NoSuchQueue.of(name, f"in namespace {self.namespace!r} of {self.url}")
        self._check(answer, name)

    def summarize_queues(self) -> list[api.QueueSummary]:
        return QUEUES.unpack(self._list(List()))

    def find_queue_names(self) -> list[str]:
        if not self._greeting.extended:
            return [queue.name for queue in self.summarize_queues()]
        return List.unpack_names(self._list(List(only_names=True)))

    def _list(self, asked: List) -> _core.Answer:
        answer = self._connection.call(
            lambda wire: wire.request(Type.LIST, False, asked.pack()), again=True
        )
        self._check(answer)
        return answer

    # ---- streams ----

    def make_stream(
        self, name: str, wanted: StreamOptions, given: Mapping[str, Any], exact: bool
    ) -> RemoteStream:
        wanted.check_of_host(name)
        if not exact:
            with contextlib.suppress(errors.NoSuchStream):
                return self.open_stream(name)
        answer = self._ask(
            Type.STREAM_CREATE, name, StreamCreate(_plain_options(wanted, given)).pack()
        )
        if answer.status == Status.QUEUE_EXISTS and exact:
            raise self._stream_exists(name, wanted)
        if answer.status != Status.QUEUE_EXISTS:
            self._check_stream(answer, name)
        return self.open_stream(name)

    def open_stream(self, name: str) -> RemoteStream:
        return streams.attach(self._connection.target, name, self.namespace)

    def remove_stream(self, name: str) -> None:
        answer = self._ask(Type.STREAM_DELETE, name)
        if answer.status == Status.NO_QUEUE:
            raise errors.NoSuchStream.of(name, f"in namespace {self.namespace!r} of {self.url}")
        self._check_stream(answer, name)

    def summarize_streams(self) -> list[api.StreamSummary]:
        answer = self._connection.call(
            lambda wire: wire.request(Type.STREAM_LIST, False, b""), again=True
        )
        self._check(answer)
        return STREAMS.unpack(answer)

    def _stream_exists(self, name: str, wanted: StreamOptions) -> errors.ShmqError:
        try:
            differences = wanted.differences(self.open_stream(name).options)
        except errors.ShmqError:
            differences = {}
        return errors.StreamExists.of(name, differences)

    def _check_stream(self, answer: _core.Answer, name: str) -> None:
        if answer.status == Status.NO_QUEUE:  # no right to create: the answer tells no more
            raise errors.NoSuchStream(
                f"stream {name!r} does not exist for this token in namespace {self.namespace!r} of "
                f"{self.url}, and it may make none of that name"
            )
        if answer.status != Status.OK:
            raise error_of(answer, f"stream {name!r} of {self.url}")

    # ---- schemas ----

    def add_schema(self, name: str, schema: dict[str, Any], rule: str | None) -> int:
        return self._schema(name, SchemaRequest("set", schema, rule)).version or 0

    def test_schema(self, name: str, schema: dict[str, Any], rule: str | None) -> None:
        self._schema(name, SchemaRequest("check", schema, rule))

    def find_schemas(self, name: str) -> list[api.SchemaVersion]:
        return self._schema(name, SchemaRequest("get")).versions or []

    def _schema(self, name: str, asked: SchemaRequest) -> SchemaAnswer:
        """The answer. Raises SchemaError if the server refuses the schema."""
        answer = self._ask(Type.SCHEMA, name, asked.pack(), again=True)
        if answer.status == Status.NO_QUEUE:
            raise errors.NoSuchQueue(
                f"neither a queue nor a stream {name!r} exists in namespace {self.namespace!r} of "
                f"{self.url}: create it first"
            )
        self._check(answer, name)
        found = SchemaAnswer.unpack(answer, name)
        if found.refused is not None:
            raise errors.SchemaError(found.refused, name, found.field)
        return found

    # ---- exchanges ----

    def make_exchange(
        self, name: str, kind: api.ExchangeKind, alternate: str | None, exact: bool
    ) -> RemoteExchange:
        while True:
            if not exact:
                with contextlib.suppress(errors.NoSuchExchange):
                    return self.open_exchange(name)
            try:
                return self._open_exchange(name, "create", kind=kind, alternate=alternate)
            except errors.ExchangeExists:
                if exact:
                    raise  # otherwise another client was faster

    def open_exchange(self, name: str) -> RemoteExchange:
        return self._open_exchange(name, "look")

    def _open_exchange(self, name: str, action: str, **arguments: Any) -> RemoteExchange:
        answer = exchange.ask(self._connection, name, action, **arguments)
        return RemoteExchange(self, self._connection, name, Shown.unpack(answer))

    def remove_exchange(self, name: str) -> None:
        exchange.ask(self._connection, name, "delete")

    def summarize_exchanges(self) -> list[api.ExchangeSummary]:
        return exchange.summaries(self._connection)

    # ---- tables ----

    def make_table(
        self, name: str, durability: TableDurability, max_bytes: int | None
    ) -> RemoteTable:
        try:
            return self.open_table(name)
        except errors.NoSuchTable:
            return self._open_table(name, "make", durability=durability, max_bytes=max_bytes)

    def open_table(self, name: str) -> RemoteTable:
        return self._open_table(name, "look")

    def _open_table(self, name: str, action: str, **options: Any) -> RemoteTable:
        answer = table.ask(self._connection, name, TableRequest(action, options))
        return RemoteTable(self, self._connection, name, TableInfo.unpack(answer))

    def remove_table(self, name: str) -> None:
        table.ask(self._connection, name, TableRequest("drop"))

    def find_table_names(self) -> list[str]:
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

    def _check_open(self) -> None:
        if self._closed:
            raise self._connection.closed_error()

    def disconnect(self) -> None:
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


def _plain_options(wanted: Options, given: Mapping[str, Any]) -> dict[str, Any]:
    """The given options as plain numbers, which the check of all options has ensured."""
    return {key: getattr(wanted, key) for key in given}
