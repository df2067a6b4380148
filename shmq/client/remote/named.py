"""The queues, streams, exchanges and tables of a server's namespace: made, found and deleted."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, ClassVar

from shmq import api, errors
from shmq.api.options import QueueOptions, checked_values
from shmq.api.stream_options import MAX_RING, StreamOptions
from shmq.client.ports.broker import CollectionPort, Kind
from shmq.client.ports.steps import run
from shmq.client.remote import exchange, table
from shmq.client.remote import stream as streams
from shmq.client.remote.connection import Connection
from shmq.client.remote.exchange import RemoteExchange
from shmq.client.remote.queue import RemoteQueue, attach, make_exclusive
from shmq.client.remote.stream import RemoteStream
from shmq.client.remote.table import RemoteTable
from shmq.native import _core
from shmq.protocol.messages.exchange import EXCHANGES, Exchanges, Shown
from shmq.protocol.messages.payload import pack_map, pack_name
from shmq.protocol.messages.queue import QUEUES, Create, Greeting, List, unpack_queue_options
from shmq.protocol.messages.stream import STREAMS, StreamCreate, unpack_stream_options
from shmq.protocol.messages.table import TableInfo, TableRequest
from shmq.protocol.opcodes import Status, Type
from shmq.protocol.status import error_of


class Collection(CollectionPort):
    """What the collections have in common. ``broker`` keeps the ``connection`` open."""

    KIND: ClassVar[Kind]
    MISSING: ClassVar[type[errors.NotFound]]

    def __init__(self, broker: Any, connection: Connection) -> None:
        self._broker = broker
        self._connection = connection

    @property
    def _greeting(self) -> Greeting:
        greeting = self._connection.greeting
        assert greeting is not None
        return greeting

    def _ask(
        self, kind: Type, name: str, rest: bytes = b"", *, again: bool | None = None
    ) -> _core.Answer:
        return self._connection.ask(kind, pack_name(name) + rest, again=again)

    def _ask_all(self, kind: Type, rest: bytes = b"") -> _core.Answer:
        answer = self._connection.ask(kind, rest)
        if answer.status != Status.OK:
            raise error_of(answer, self._connection.url)
        return answer

    def _check_made(self, answer: _core.Answer, name: str) -> None:
        if answer.status == Status.NO_QUEUE:  # no right to create: the answer tells no more
            raise self.MISSING(
                f"{self.KIND} {name!r} does not exist for this token {self._connection.where}, and "
                f"it may make none of that name"
            )
        self._check(answer, name)

    def _check_free(self, answer: _core.Answer, taken: type[errors.AlreadyExists]) -> None:
        """Raise ``taken`` if the server refused the name as that of the other kind."""
        if answer.status == Status.QUEUE_EXISTS:
            raise taken(str(error_of(answer, self._connection.url)))

    def _remove(self, kind: Type, name: str, rest: bytes = b"") -> None:
        answer = self._ask(kind, name, rest)
        if answer.status == Status.NO_QUEUE:
            raise self.MISSING.of(name, self._connection.where)
        self._check(answer, name)

    def _check(self, answer: _core.Answer, name: str) -> None:
        if answer.status != Status.OK:
            raise error_of(answer, f"{self.KIND} {name!r} of {self._connection.url}")


class QueueCollection(Collection):
    """The queues; ``owned`` are the handles of the exclusive ones that the broker has made."""

    KIND, MISSING = "queue", errors.NoSuchQueue

    def __init__(self, broker: Any, connection: Connection, owned: dict[str, RemoteQueue]) -> None:
        super().__init__(broker, connection)
        self._owned = owned

    def make(
        self, name: str, wanted: QueueOptions, given: Mapping[str, Any], exact: bool
    ) -> RemoteQueue:
        queue = self._mine(name)
        if not exact:
            with contextlib.suppress(errors.NoSuchQueue):
                queue = self.open(name)
                if queue.options.expires is not None:  # which starts again
                    options = queue.options
                    again = Create(checked_values(options, options.as_dict()))
                    self._ask(Type.CREATE, name, again.pack(), again=True)
        if queue is None:
            create = Create(checked_values(wanted, given))
            if wanted.exclusive:
                return self._make_exclusive(name, create)
            answer = self._ask(Type.CREATE, name, create.pack(), again=True)
            if answer.status == Status.QUEUE_EXISTS and exact:
                raise self._exists(name, wanted, answer)
            if answer.status != Status.QUEUE_EXISTS:
                self._check_made(answer, name)
            try:
                return attach(self._connection.target, name, self._greeting.namespace)
            except errors.NoSuchQueue:
                self._check_free(answer, errors.StreamExists)
                raise
        if exact and (differences := wanted.differences(queue.options)):
            raise errors.QueueExists.of(name, differences)
        return queue

    def _make_exclusive(self, name: str, create: Create) -> RemoteQueue:
        """Create a queue that belongs to the connection of its handle."""
        made = make_exclusive(self._connection.target, name, self._greeting.namespace, create)
        self._owned[name] = made
        return made

    def _mine(self, name: str) -> RemoteQueue | None:
        """The handle of an exclusive queue that this broker has made."""
        found = self._owned.get(name)
        if found is None or (not found.closed and found.is_owner()):
            return found
        found.close()
        successor = self._owned.get(name)
        if successor is not found:  # another thread has made it again
            return successor
        self._owned.pop(name, None)
        return None

    def _exists(self, name: str, wanted: QueueOptions, answer: _core.Answer) -> errors.ShmqError:
        try:
            differences = wanted.differences(self.open(name).options)
        except errors.NoSuchQueue:
            self._check_free(answer, errors.StreamExists)
            differences = {}
        except errors.ShmqError:
            differences = {}
        if not differences:
            return error_of(answer, f"queue {name!r}")
        return errors.QueueExists.of(name, differences)

    def open(self, name: str, to_put: bool = False) -> RemoteQueue:
        mine = self._mine(name)
        if mine is not None:
            return mine
        queue = attach(self._connection.target, name, self._greeting.namespace)
        if queue.exclusive_to is not None and not to_put:
            queue.close()
            raise errors.Forbidden(queue.exclusive_to)
        return queue

    def alter(self, name: str, given: Mapping[str, Any]) -> QueueOptions:
        mine = self._mine(name)
        queue = mine or self.open(name)
        try:
            wanted = queue.options.altered(name, given)
            packed = pack_map(checked_values(wanted, given))
            options = unpack_queue_options(queue.port.ask(Type.ALTER, packed))
        finally:
            if mine is None:
                queue.close()
        for handle in self._broker.handles_of(name):
            if isinstance(handle, RemoteQueue):
                handle.port.options = options
        return options

    def delete(self, name: str) -> None:
        self._remove(Type.DELETE, name, b"\1" if self._greeting.extended else b"")

    def names(self) -> list[str]:
        if not self._greeting.extended:
            return super().names()
        return List.unpack_names(self._ask_all(Type.LIST, List(only_names=True).pack()))

    def summaries(self) -> list[api.QueueSummary]:
        return QUEUES.unpack(self._ask_all(Type.LIST, List().pack()))


class StreamCollection(Collection):
    """The streams."""

    KIND, MISSING = "stream", errors.NoSuchStream

    def make(
        self, name: str, wanted: StreamOptions, given: Mapping[str, Any], exact: bool
    ) -> RemoteStream:
        wanted.check_of_host(name)
        if not exact:
            with contextlib.suppress(errors.NoSuchStream):
                return self.open(name)
        create = StreamCreate(checked_values(wanted, given)).pack()
        answer = self._ask(Type.STREAM_CREATE, name, create)
        if answer.status == Status.QUEUE_EXISTS and exact:
            raise self._stream_exists(name, wanted, answer)
        if answer.status != Status.QUEUE_EXISTS:
            self._check_made(answer, name)
        try:
            return self.open(name)
        except errors.NoSuchStream:
            self._check_free(answer, errors.QueueExists)
            raise

    def open(self, name: str, to_put: bool = False) -> RemoteStream:
        del to_put
        return streams.attach(self._connection.target, name, self._greeting.namespace)

    def alter(self, name: str, given: Mapping[str, Any]) -> StreamOptions:
        with self.open(name) as stream:
            wanted = stream.options.altered(name, given, MAX_RING)  # the server knows its limit
            answer = stream.ask(Type.STREAM_ALTER, pack_map(checked_values(wanted, given)))
        options = unpack_stream_options(answer)
        for handle in self._broker.handles_of(name):
            if isinstance(handle, RemoteStream):
                handle.take_options(options)
        return options

    def delete(self, name: str) -> None:
        self._remove(Type.STREAM_DELETE, name)

    def summaries(self) -> list[api.StreamSummary]:
        return STREAMS.unpack(self._ask_all(Type.STREAM_LIST))

    def _stream_exists(
        self, name: str, wanted: StreamOptions, answer: _core.Answer
    ) -> errors.ShmqError:
        try:
            differences = wanted.differences(self.open(name).options)
        except errors.NoSuchStream:
            self._check_free(answer, errors.QueueExists)
            differences = {}
        except errors.ShmqError:
            differences = {}
        return errors.StreamExists.of(name, differences)


class ExchangeCollection(Collection):
    """The exchanges."""

    def make(
        self, name: str, wanted: Mapping[str, Any], given: Mapping[str, Any], exact: bool
    ) -> RemoteExchange:
        del given
        while True:
            if not exact:
                with contextlib.suppress(errors.NoSuchExchange):
                    return self.open(name)
            try:
                return self._open(name, "create", **wanted)
            except errors.ExchangeExists:
                if exact:
                    raise  # otherwise another client was faster

    def open(self, name: str, to_put: bool = False) -> RemoteExchange:
        del to_put
        return self._open(name, "look")

    def _open(self, name: str, action: str, **arguments: Any) -> RemoteExchange:
        answer = exchange.ask(self._connection, name, action, **arguments)
        return RemoteExchange(self._broker, self._connection, name, Shown.unpack(answer))

    def delete(self, name: str) -> None:
        exchange.ask(self._connection, name, "delete")

    def summaries(self) -> list[api.ExchangeSummary]:
        return EXCHANGES.unpack(self._ask_all(Type.EXCHANGES, Exchanges().pack()))


class TableCollection(Collection):
    """The tables."""

    def make(
        self, name: str, wanted: Mapping[str, Any], given: Mapping[str, Any], exact: bool
    ) -> RemoteTable:
        del given, exact
        try:
            return self.open(name)
        except errors.NoSuchTable:
            return self._open(name, "make", wanted)

    def open(self, name: str, to_put: bool = False) -> RemoteTable:
        del to_put
        return self._open(name, "look", {})

    def _open(self, name: str, action: str, options: Mapping[str, Any]) -> RemoteTable:
        answer = run(table.ask(self._connection, name, TableRequest(action, dict(options))))
        return RemoteTable(self._broker, self._connection, name, TableInfo.unpack(answer))

    def delete(self, name: str) -> None:
        run(table.ask(self._connection, name, TableRequest("drop")))

    def summaries(self) -> list[str]:
        return List.unpack_names(self._ask_all(Type.LIST, List(tables=True).pack()))
