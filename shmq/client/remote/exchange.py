"""The exchanges of a server's namespace."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from shmq import api, errors
from shmq.client.handles.exchange import ExchangeHandle, no_target, published
from shmq.client.handles.put import encode, with_entry
from shmq.client.remote.connection import Connection
from shmq.client.shared.backoff import RoomBackoff
from shmq.model.codec.codecs import pack_properties
from shmq.native import _clock as time
from shmq.native import _core
from shmq.protocol.messages.exchange import (
    Bindings,
    Changed,
    ExchangeRequest,
    Route,
    Routed,
    Shown,
    Unsynced,
)
from shmq.protocol.messages.payload import pack_name, unpack_answer, unpack_fields
from shmq.protocol.opcodes import Status, Type
from shmq.protocol.status import error_of, error_of_status

#: The length prefix of a body in a ROUTE request.
_LENGTH_BYTES: Final = 4
#: The most bytes of a ROUTE beside its properties and bodies, without `only`.
_BESIDE: Final = 4096
#: The most priorities that a queue can have.
_PRIORITIES: Final = 16
#: The most bits of an int that every msgpack decoder takes.
_INT_BITS: Final = 63


def ask(connection: Connection, name: str, action: str, **arguments: Any) -> _core.Answer:
    """Send a request other than a publish. Raises the error of a refusal."""
    payload = pack_name(name) + ExchangeRequest(action, arguments).pack()
    answer = connection.ask(Type.EXCHANGE, payload, again=action != "delete")
    _check(connection, answer, name)
    return answer


def _check(connection: Connection, answer: _core.Answer, name: str) -> None:
    what = f"exchange {name!r} of {connection.url}"
    if answer.status == Status.OK:
        return
    if answer.status == Status.NO_QUEUE:
        raise errors.NoSuchExchange.of(name, connection.where)
    error = error_of(answer, what)
    if answer.status == Status.QUEUE_EXISTS:
        raise errors.ExchangeExists(str(error))
    raise error


class RemoteExchange(ExchangeHandle):
    """An exchange of a server. Threads may share it; it shares its broker's connection."""

    def __init__(self, broker: Any, connection: Connection, name: str, shown: Shown) -> None:
        super().__init__(name, shown.kind, shown.alternate)
        self._broker = broker
        self._connection = connection

    # ---- bindings ----

    def change_binding(
        self, action: Literal["bind", "unbind"], binding: list[Any], given: Mapping[str, Any]
    ) -> bool:
        del binding  # the server makes it of what was given
        done = Changed.unpack(ask(self._connection, self._name, action, **given))
        if done.missing is not None:
            where = f"at {self._connection.url}"
            raise no_target(done.missing, given["target"], where, self._name)
        return done.changed

    def bindings(self) -> list[api.Binding]:
        self._check_open()
        return Bindings.unpack(ask(self._connection, self._name, "bindings")).bindings

    def stats(self) -> api.ExchangeStats:
        self._check_open()
        answer = ask(self._connection, self._name, "stats")
        return unpack_fields(api.ExchangeStats, unpack_answer(answer))

    # ---- publishing ----

    def route(
        self,
        bodies: list[Any],
        key: str,
        block: bool | None,
        until: float | None,
        confirm: Any,
        mandatory: bool,
        properties: Mapping[str, Any],
    ) -> api.Published:
        # A publish larger than a frame is sent frame by frame, and ends with the first frame of
        # which something was refused.
        delivered = duplicates = 0
        for meta, some in self._frames(bodies, properties):
            routing = _Routing(self, Route(key, confirm, meta, some))
            routing.run(block, until)
            delivered += routing.delivered
            duplicates += routing.duplicates
            counts = routing.reached, delivered, duplicates
            published(self._name, mandatory, *counts, routing.refused)
        return api.Published(delivered, duplicates)

    def _frames(
        self, bodies: list[Any], properties: Mapping[str, Any]
    ) -> Iterator[tuple[bytes, list[Any]]]:
        """Properties and bodies, as many at once as fit into a frame."""
        properties, priority = _split_priority(properties)
        items = [encode(body, _PRIORITIES, properties, default=self.default) for body in bodies]
        if priority:
            items = [(_with_priority(own, priority), buffer) for own, buffer in items]
        most = self._largest()
        some: list[Any] = []
        meta, size = b"", 0
        for own, buffer in items:
            bytes_ = _LENGTH_BYTES + memoryview(buffer).nbytes
            if len(own or b"") + bytes_ > most:
                raise errors.MessageTooLarge(
                    f"a body of {bytes_ - _LENGTH_BYTES} bytes with {len(own or b'')} bytes of "
                    f"properties does not fit into a frame of the server of exchange "
                    f"{self._name!r}, which takes {most} bytes beside them"
                )
            if some and (size + bytes_ > most or meta != (own or b"")):
                yield meta, some
                some, size = [], 0
            meta = own or b""
            some.append(buffer)
            size += bytes_ + (len(meta) if not size else 0)
        if some or not items:
            yield meta, some

    def _largest(self) -> int:
        greeting = self._connection.greeting
        assert greeting is not None
        return greeting.max_frame - _BESIDE

    def ask_route(self, asked: Route) -> Routed:
        """Send one ROUTE request. Raises the error of a refusal.

        It is never repeated: a stream, or a queue without a `dedupe_window`, would take it twice.
        """
        whole = pack_name(self._name) + asked.pack()
        answer = self._connection.ask(Type.ROUTE, whole, again=False)
        _check(self._connection, answer, self._name)
        return Routed.unpack(answer)

    def unsynced(self, queues: Mapping[str, int]) -> dict[str, str | None]:
        """The queues that lack on disk what was put up to a number, each with its reason."""
        answer = ask(self._connection, self._name, "synced", queues=dict(queues))
        return Unsynced.unpack(answer).unsynced

    def _check_open(self) -> None:
        super()._check_open()
        if self._connection.closed:
            raise self._connection.closed_error()

    def __reduce__(self) -> tuple[Any, ...]:
        return _attach_by_name, (self._broker, self._name)

    def __repr__(self) -> str:
        return f"<RemoteExchange {self._name!r} ({self._kind}) of {self._connection.url}>"


def _split_priority(properties: Mapping[str, Any]) -> tuple[Mapping[str, Any], bytes]:
    """The properties without the priority, and a packed map of the priority alone, as passed.

    The server finds the level of each queue, and checks it. Raises what a put raises for any queue.
    """
    level = _core.plain_number(properties.get("priority"))
    if isinstance(level, str):
        encode(b"", _PRIORITIES, {"priority": level})  # raises InvalidOption for another name
    elif type(level) is not int or level.bit_length() > _INT_BITS:
        return properties, b""
    others = {name: value for name, value in properties.items() if name != "priority"}
    return others, pack_properties({"pri": level})


def _with_priority(meta: bytes | None, priority: bytes) -> bytes:
    return priority if meta is None else with_entry(meta, priority[1:])


def _attach_by_name(broker: Any, name: str) -> RemoteExchange:
    exchange: RemoteExchange = broker.exchange(name)
    return exchange


class _Routing:
    """One publish: a ROUTE request, then waiting for queues that are full or not on disk yet."""

    def __init__(self, exchange: RemoteExchange, asked: Route) -> None:
        self._exchange = exchange
        self._asked = asked
        self._backoff = RoomBackoff()
        self._unsynced: dict[str, int] = {}
        self.reached = 0
        self.delivered = 0
        self.duplicates = 0
        self.refused: dict[str, errors.ShmqError] = {}

    def run(self, block: bool | None, until: float | None) -> None:
        """Publish. Raises what a publish that puts nothing raises."""
        routed = self._route(self._asked)
        self.reached = routed.reached
        waits = until is not None if block is None else block
        while only := self._full(routed, block is None, waits):
            if not self._pause(until):
                break
            for name in only:
                del self.refused[name]
            routed = self._route(dataclasses.replace(self._asked, only=only))
        self._wait_for_disk(until)

    def _route(self, asked: Route) -> Routed:
        routed = self._exchange.ask_route(asked)
        self.delivered += routed.delivered
        self.duplicates += routed.duplicates
        self._unsynced |= routed.unsynced
        for name, (status, text, *_) in routed.refused.items():
            self.refused[name] = error_of_status(status, f"queue {name!r}", text)
        return routed

    def _full(self, routed: Routed, by_queue: bool, waits: bool) -> dict[str, int]:
        """The queues to wait for, and how many messages each has taken."""
        return {
            name: taken
            for name, (status, _, taken, blocks) in routed.refused.items()
            if status == Status.QUEUE_FULL and (waits or (by_queue and blocks))
        }

    def _pause(self, until: float | None) -> bool:
        """Pause; whether there is time for another attempt."""
        left = None if until is None else until - time.monotonic()
        if left is not None and left <= 0:
            return False
        time.sleep(self._backoff.pause(left))
        return True

    def _wait_for_disk(self, until: float | None) -> None:
        self._backoff = RoomBackoff()
        left, routed = self._unsynced, dict[str, str | None]()
        while left:
            routed = self._exchange.unsynced(left)
            left = {name: left[name] for name in routed}
            if not left or any(routed.values()) or not self._pause(until):
                break
        for name, sequence in left.items():
            why = routed[name] or "its journal did not have it in time"
            self.refused.setdefault(
                name,
                errors.NotConfirmed(
                    f"message {sequence} of queue {name!r} is in the queue, but not known to be "
                    f"on disk: {why}",
                    sequence,
                ),
            )
