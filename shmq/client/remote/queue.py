"""A queue of a server: the port over TCP, and the faster ways of its handle for one message."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, cast

from shmq import api, errors
from shmq.api.names import check_name
from shmq.api.options import check_whole
from shmq.client.handles.put import waits_for_room
from shmq.client.handles.queue import QueueHandle
from shmq.client.ports.queue import Settlement
from shmq.client.ports.steps import run
from shmq.client.remote.address import Target
from shmq.client.remote.bulk import RemoteBulkQueue
from shmq.client.remote.connection import Attempt, Connection, RemoteHandle
from shmq.client.remote.get import RemoteGet, first_wait
from shmq.client.remote.queue_port import RemoteQueuePort
from shmq.client.remote.ready_watch import RemoteReadyWatch
from shmq.client.remote.staged_publish import RemoteStagedPublisher
from shmq.client.shared.pickling import reduce
from shmq.native import _clock as time
from shmq.native import _core
from shmq.protocol.messages.queue import Create, QueueState
from shmq.protocol.opcodes import Status, Type
from shmq.protocol.status import error_of

api.Message.register(_core.RemoteMessage)
api.Bodies.register(_core.RemoteBodies)


class RemoteQueue(RemoteHandle, QueueHandle):
    """A queue of a server, with a connection of its own. Threads may share a handle.

    A handle used in the child of a fork reconnects, and so does one that is unpickled.
    """

    READY_WATCH = RemoteReadyWatch
    BODIES = _core.RemoteBodies

    port: RemoteQueuePort

    def __init__(
        self, connection: Connection, namespace: str, create: Create | None = None
    ) -> None:
        RemoteHandle.__init__(self, connection, namespace)
        connection.set_queue(weakref.ref(self))
        if create is not None:
            self._make(create)
        answer = connection.ask(Type.STATS, b"", named=True)
        if answer.status == Status.NO_QUEUE:
            if create is not None:
                raise self._outlived()
            raise errors.NoSuchQueue.of(self._name, connection.where)
        if answer.status != Status.OK:
            raise error_of(answer, f"queue {self._name!r} of {connection.url}")
        state = QueueState.unpack(answer)
        if create is not None and state.exclusive_to is not None:
            raise self._outlived()
        #: To whom the queue is exclusive; None: this handle may be used for all.
        self.exclusive_to = state.exclusive_to
        # The port has no reference to the queue: it is detached as soon as it is dropped.
        QueueHandle.__init__(self, RemoteQueuePort(connection, namespace, state.options))
        self._patience = connection.target.request_timeout

    def _make(self, create: Create) -> None:
        """Create the queue, exclusive to the connection: the server removes both."""
        packed = create.pack()
        answer = self._connection.ask(Type.CREATE, packed, named=True, again=False)
        if create.own and answer.status in (Status.NO_QUEUE, Status.FORBIDDEN):
            raise errors.Forbidden(
                f"the token may make no queue {self._name!r} at {self._connection.url}, which "
                f"replies need: give it admin and consume rights to 'reply.*'"
            )
        if answer.status != Status.OK:
            raise error_of(answer, f"queue {self._name!r} of {self._connection.url}")

    def _outlived(self) -> errors.ConnectionLost:
        """The error for a queue that is not this connection's, but the lost one's that made it."""
        return errors.ConnectionLost(
            f"the connection to {self._connection.url} was lost right after it made queue "
            f"{self._name!r}, which ends with it: repeat the call"
        )

    def is_owner(self) -> bool:
        """Whether the queue is there, and exclusive to this handle's connection."""
        try:
            state = self.port.state()
        except (errors.QueueDeleted, errors.NoSuchQueue):
            return False
        return state.options.exclusive and state.exclusive_to is None

    # ---- the usual cases, without the repetitions and the longer waits of the port ----

    def _put(
        self,
        meta: bytes | None,
        body: Any,
        block: bool | None,
        timeout: float | None,
        known: bool,
        durable: bool,
    ) -> api.Put:
        if durable:
            return super()._put(meta, body, block, timeout, known, durable)
        puts = self.port
        item = meta, body = puts.pack(meta, body, known)
        wire = self._connection.wire
        if wire is None or not wire.is_usable:
            now = time.monotonic()
            until = None if timeout is None else now + timeout
            wire = self._connection.ready(now + self._patience, until)
        began = time.monotonic()
        answer: Any = wire.put(meta, body, self._patience)
        if type(answer) is _core.Put:
            return answer
        first = Attempt(wire, answer, began)
        waits = waits_for_room(self.options, block, timeout)
        return run(puts.put(item, waits, timeout, known, durable, first))

    def _encode_many(self, bodies: list[Any], properties: Mapping[str, Any]) -> list[Any]:
        port = self.port
        small = min(port.options.max_message_bytes, port.frame() - 512)
        if not properties and not port.identified and _core.are_bytes(bodies, small):
            return bodies
        return super()._encode_many(bodies, properties)

    def get(
        self, block: bool = True, timeout: float | None = None, *, where: str | None = None
    ) -> api.Message:
        wire = self._connection.wire
        if where is not None or wire is None or not wire.is_usable:
            return super().get(block, timeout, where=where)
        if timeout is not None:
            timeout = _core.check_timeout(timeout)
        began = time.monotonic()
        wait = first_wait(timeout if block else 0)
        port = self.port
        lease = port.options.visibility_timeout
        found = wire.get(wait, lease, port.acks, self._patience + wait / 1000)
        if type(found) is _core.RemoteMessage:
            return cast("api.Message", found)
        first = Attempt(wire, found, began)
        messages = run(self.port.take(1, timeout if block else 0, None, first))
        return self._first(messages, block, timeout, None)

    def _many(
        self, max: int, block: bool, timeout: float | None, where: str | None = None
    ) -> list[Any]:
        limit = check_whole("max", max, 1, None)
        timeout = _core.check_timeout(timeout)
        port = self.port
        if where is not None:
            port.check_where(where)
        get = RemoteGet(port, min(limit, port.options.capacity), where)
        messages = get.take_now(timeout if block else 0.0)
        if not messages:
            self.found_nothing()
        return messages

    def ack(self, receipt: int) -> None:
        wire = self._connection.wire
        if type(receipt) is not int or not 0 < receipt < 1 << 64:
            return super().ack(receipt)
        if wire is None or not wire.is_usable:
            return super().ack(receipt)
        began = time.monotonic()
        answer = wire.ack(receipt, self._patience)
        if answer is not None:
            first = Attempt(wire, answer, began)
            if self.port.settle("ack", [receipt], None, first=first):
                raise self._make_stale_error(receipt)
        return None

    def _settle_given(
        self, kind: Settlement, given: list[int], ms: int | None, error: bytes | None = None
    ) -> list[int]:
        # Receipts that cannot exist are refused without a request.
        if min(given) > 0 and max(given) < 1 << 64:
            return self.port.settle(kind, given, ms, error)
        possible = [receipt for receipt in given if 0 < receipt < 1 << 64]
        refused = iter(self.port.settle(kind, possible, ms, error) if possible else ())
        found, following = [], next(refused, 0)
        for receipt in given:
            if not 0 < receipt < 1 << 64:
                found.append(receipt)
            elif receipt == following:
                found.append(receipt)
                following = next(refused, 0)
        return found

    # ---- very many messages at once ----

    def bulk(self) -> api.BulkQueue:
        return RemoteBulkQueue(self)

    def staged_publisher(self, publisher: str) -> api.StagedPublisher:
        return RemoteStagedPublisher(self, publisher)

    # ---- the end ----

    def __del__(self) -> None:
        if getattr(self, "port", None) is not None:
            self.port.send_acks()
        super().__del__()

    def __reduce__(self) -> tuple[Any, ...]:
        return reduce(self, attach, self._connection.target, self._name, self._namespace)


def attach(target: Target, name: str, namespace: str) -> RemoteQueue:
    """Attach to an existing queue. Raises NoSuchQueue, ConnectionLost."""
    return RemoteQueue(Connection(target, check_name(name)), namespace)


def make_exclusive(target: Target, name: str, namespace: str, create: Create) -> RemoteQueue:
    """Create a queue that the server removes once its connection has ended, and attach to it.

    Raises :class:`~shmq.QueueExists`, :class:`~shmq.Forbidden`, :class:`~shmq.NoSpace`,
    :class:`~shmq.ConnectionLost`.
    """
    return RemoteQueue(Connection(target, check_name(name)), namespace, create)
