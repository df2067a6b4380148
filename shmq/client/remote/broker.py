"""The queues and streams of a server's namespace."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Literal

from shmq import api, errors
from shmq.api.names import reply_name
from shmq.client.handles.broker import BrokerHandle
from shmq.client.ports.broker import CollectionPort, Kind, make_neither_error
from shmq.client.remote.address import Target, Tls
from shmq.client.remote.connection import Connection
from shmq.client.remote.exchange import RemoteExchange
from shmq.client.remote.named import (
    ExchangeCollection,
    QueueCollection,
    StreamCollection,
    TableCollection,
)
from shmq.client.remote.queue import RemoteQueue, make_exclusive
from shmq.client.remote.stream import RemoteStream
from shmq.client.remote.table import RemoteTable
from shmq.client.shared.pickling import reduce
from shmq.client.shared.reconnects import limit_reconnects
from shmq.client.shared.rpc_client import REPLY_OPTIONS
from shmq.native import _clock as time
from shmq.native import _core
from shmq.protocol.messages.payload import pack_name
from shmq.protocol.messages.queue import Create, Greeting, SchemaAnswer, SchemaRequest
from shmq.protocol.opcodes import MAX_PING, Status, Type
from shmq.protocol.status import error_of


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
        timeout = _core.check_timeout(timeout)
        began = time.monotonic()
        patience = self._connection.target.request_timeout if timeout is None else timeout
        wire = self._connection.ready(began + patience)
        answer = wire.request(Type.PING, False, bytes(payload))
        self._connection.await_(wire, answer, patience)
        if answer.lost:
            raise self._connection.lost(wire)
        if answer.status != Status.OK:
            raise error_of(answer, self.url)
        return time.monotonic() - began

    # ---- what has a name ----

    def collection(self, kind: Kind) -> CollectionPort:
        # Not kept: exchanges and tables refer to the broker, which ends with its last reference.
        if kind == "queue":
            return QueueCollection(self, self._connection, self._owned)
        kinds = {"stream": StreamCollection, "exchange": ExchangeCollection}
        return kinds.get(kind, TableCollection)(self, self._connection)

    # ---- schemas ----

    def add_schema(
        self, name: str, schema: dict[str, Any], rule: str | None, *, only_check: bool = False
    ) -> int:
        action: Literal["set", "check"] = "check" if only_check else "set"
        return self._request_schema(name, SchemaRequest(action, schema, rule)).version or 0

    def find_schemas(self, name: str) -> list[api.SchemaVersion]:
        return self._request_schema(name, SchemaRequest("get")).versions or []

    def _request_schema(self, name: str, asked: SchemaRequest) -> SchemaAnswer:
        """The answer. Raises SchemaError if the server refuses the schema."""
        payload = pack_name(name) + asked.pack()
        answer = self._connection.ask(Type.SCHEMA, payload)
        if answer.status == Status.NO_QUEUE:
            raise make_neither_error(name, self._connection.where)
        if answer.status != Status.OK:
            raise error_of(answer, f"queue {name!r} of {self.url}")
        found = SchemaAnswer.unpack(answer, name)
        if found.refused is not None:
            raise errors.SchemaError(found.refused, name, found.field)
        return found

    # ---- the reply queues ----

    @property
    def _request_timeout(self) -> float:
        return self._connection.target.request_timeout

    def _make_reply_queue(self) -> api.Queue:
        if not self._greeting.extended:
            raise errors.Unsupported(f"{self.url} has no reply queues, which requests need")
        create = Create(REPLY_OPTIONS, own=True)
        queue = make_exclusive(self._connection.target, reply_name(), self.namespace, create)
        self._handles.add(queue)
        return queue

    def _remove_reply_queue(self, queue: api.Queue) -> None:
        # A server that is away has removed it with its connection.
        with contextlib.suppress(errors.ShmqError), limit_reconnects(0.0):
            self.collection("queue").delete(queue.name)
        queue.close()

    # ---- the connection ----

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
        return reduce(self, RemoteBroker, self._connection.target)

    def __rich_repr__(self) -> Iterator[tuple[str, object]]:
        yield "url", self.url

    def __repr__(self) -> str:
        return f"<RemoteBroker of {self.url}>"
