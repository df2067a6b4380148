"""A channel of AMQP: declarations, publishing and consuming, on queues and exchanges of shmq."""

from __future__ import annotations

import itertools
import os
import sys
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from queue import Empty
from typing import Any, ClassVar, Final

from kombu.exceptions import ChannelError, DecodeError, EncodeError, OperationalError
from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments
from kombu.transport.virtual.base import NotEquivalentError, queue_declare_ok_t
from kombu.utils.uuid import uuid

import shmq
from shmq.client.shared.name_texts import with_texts
from shmq.extras.celery.declaration import QueueSettings, read_declaration
from shmq.extras.celery.envelope import Raw, pack, properties_of, unpack
from shmq.extras.celery.qos import Lease, QoS
from shmq.extras.celery.session import Session


class Message(virtual.Message):
    """A delivered message.

    Celery's worker acknowledges a body that it cannot decode, and reports it only in its log:
    the failure of the task is reported then.
    """

    #: Why its task has failed, for the message that is rejected or returned.
    failure: shmq.Failure | None = None

    def _decode(self) -> Any:
        try:
            return super()._decode()
        except DecodeError:
            self.errors.append(sys.exc_info())  # as kombu stores that of a decompression
            raise

    def ack(self, multiple: bool = False) -> None:
        """Acknowledge the message."""
        super().ack(multiple)
        if self.errors:
            self.channel.connection.task_failed(self, self.errors[0][1])


#: The exchange that AMQP has of each type, and that need not be declared.
_STANDARD: Final = "amq."

_tags = itertools.count(1)


def _make_not_found(what: str, name: str, method: str) -> ChannelError:
    return ChannelError(f"NOT_FOUND - no {what} {name!r}", (50, 10), f"Channel.{method}", "404")


def _make_in_use(name: str, why: str) -> ChannelError:
    text = f"PRECONDITION_FAILED - queue {name!r} {why}"
    return ChannelError(text, (50, 40), "Channel.queue_delete", "406")


class Channel(virtual.Channel):
    """A channel whose exchanges, bindings and queues are shmq's, shared by all processes."""

    Message = Message
    QoS = QoS
    body_encoding = None
    supports_fanout = True
    from_transport_options: ClassVar = ("deadletter_queue", "native_eta", "put_timeout")

    #: How long a publish waits for room in a full queue, in seconds.
    put_timeout: float = 10.0
    #: Whether the broker delays tasks with a time (``countdown``, ``eta``); if not, workers do.
    native_eta: bool = True

    def __init__(self, connection: Any, **more: Any) -> None:
        super().__init__(connection, **more)
        given = connection.client.transport_options
        fields = QueueSettings.__dataclass_fields__
        #: The queues whose messages need no acknowledgement.
        self.unacknowledged: set[str] = set()
        #: Leases of a consumer's messages that were not delivered yet, by queue.
        self._ahead: defaultdict[str, deque[Lease]] = defaultdict(deque)
        self._settings = QueueSettings(**{key: given[key] for key in fields if key in given})

    @property
    def session(self) -> Session:
        """The broker and its handles, of this process."""
        session: Session = self.connection.session
        return session

    # ---- queues ----

    def prepare_queue_arguments(
        self, arguments: Mapping[str, Any], **options: Any
    ) -> Mapping[str, Any]:
        """Options of kombu's Queue, such as ``expires``, as arguments of a declaration."""
        prepared: Mapping[str, Any] = to_rabbitmq_queue_arguments(arguments or {}, **options)
        return prepared

    def queue_declare(self, queue: str = "", passive: bool = False, **how: Any) -> Any:
        """Create the queue, or find it; with ``passive`` only find it.

        Raises :class:`NotEquivalentError` if it exists with other options, and ChannelError (404).
        """
        queue = queue or f"amq.gen-{uuid()}"
        if passive:
            return queue_declare_ok_t(queue, self._size(queue), 0)
        self._new_queue(queue, **how)
        return queue_declare_ok_t(queue, self._size(queue), 0)

    def _new_queue(
        self,
        queue: str,
        *,
        exclusive: bool = False,
        auto_delete: bool = False,
        durable: bool = True,
        arguments: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> shmq.Queue:
        how = {"exclusive": exclusive, "auto_delete": auto_delete, "durable": durable}
        asked = read_declaration(queue, self._settings, **how, arguments=arguments)
        name = shmq.escape_name(queue)
        handle = self.session.broker.ensure_queue(name, if_different="accept", **asked.options)
        found = handle.options.as_dict()
        differences = [
            f"{name}={found[name]!r}, not {asked.options[name]!r}"
            for name in sorted(asked.compared)
            if found[name] != asked.options[name]
        ]
        if differences:
            handle.close()
            raise NotEquivalentError(
                f"PRECONDITION_FAILED - the queue {queue!r} exists with {'; '.join(differences)}: "
                f"declare it with the same options, or delete it first "
                f"(shmq delete {shmq.escape_name(queue)})"
            )
        self.session.keep_queue(queue, handle)
        self.session.declared[queue] = {**how, "arguments": arguments}
        return handle

    def _has_queue(self, queue: str, **_: Any) -> bool:
        try:
            self.session.queue(queue)
        except shmq.NoSuchQueue:
            return False
        return True

    def _with_queue(self, queue: str, method: str, use: Callable[[shmq.Queue], int]) -> int:
        try:
            return self.session.with_queue(queue, use)
        except shmq.NoSuchQueue as error:
            raise _make_not_found("queue", queue, method) from error

    def _size(self, queue: str) -> int:
        return self._with_queue(queue, "queue_declare", lambda handle: handle.qsize())

    def _purge(self, queue: str) -> int:
        return self._with_queue(queue, "queue_purge", lambda handle: handle.purge())

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **_: Any
    ) -> None:
        """Delete the queue; deleting one that does not exist does nothing.

        Raises ChannelError (406) with ``if_empty`` if it has messages, with ``if_unused`` if any
        are in work or a consumer of this connection has it.
        """
        self.session.declared.pop(queue, None)
        try:
            stats = self.session.with_queue(queue, lambda handle: handle.stats())
            if if_empty and stats.depth + stats.delayed + stats.in_flight:
                raise _make_in_use(queue, "is not empty")
            if if_unused and (stats.in_flight or self.connection.consumes(queue)):
                raise _make_in_use(queue, "is in use")
            self.session.forget_queue(queue)
            self.session.broker.delete_queue(shmq.escape_name(queue))
        except shmq.NoSuchQueue:
            return

    # ---- exchanges: shmq's own, so all processes share their bindings ----

    def exchange_declare(
        self,
        exchange: str = "",
        type: str = "direct",
        durable: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
        nowait: bool = False,
        passive: bool = False,
    ) -> None:
        """Create the exchange, or find it; with ``passive`` only find it.

        Raises :class:`NotEquivalentError` if it is of another type or has another alternate
        exchange, and ChannelError (404). An exchange stays until it is deleted.
        """
        kind: Any = type or "direct"
        exchange = exchange or f"{_STANDARD}{kind}"
        if passive:
            self._exchange(exchange, "exchange_declare")
            return
        alternate = (arguments or {}).get("alternate-exchange")
        try:
            made = self.session.broker.create_exchange(
                shmq.escape_name(exchange), kind, shmq.escape_name(alternate) if alternate else None
            )
        except shmq.ExchangeExists as error:
            raise NotEquivalentError(f"PRECONDITION_FAILED - {error}") from error
        self.session.keep_exchange(exchange, made)

    def exchange_delete(self, exchange: str, if_unused: bool = False, nowait: bool = False) -> None:
        """Delete the exchange with its bindings; the queues stay."""
        try:
            handle = self.session.exchange(exchange)
            if if_unused and handle.bindings():
                return
            self.session.forget_exchange(exchange)
            self.session.broker.delete_exchange(shmq.escape_name(exchange))
        except shmq.NoSuchExchange:
            return

    def _exchange(self, exchange: str, method: str) -> shmq.Exchange:
        try:
            return self.session.exchange(exchange)
        except shmq.NoSuchExchange as error:
            if exchange.startswith(_STANDARD):
                self.exchange_declare(exchange, exchange.removeprefix(_STANDARD))
                return self.session.exchange(exchange)
            raise _make_not_found("exchange", exchange, method) from error

    def queue_bind(
        self,
        queue: str,
        exchange: str = "",
        routing_key: str = "",
        arguments: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Bind the queue. Raises ChannelError (404)."""
        handle = self._exchange(exchange or "amq.direct", "queue_bind")
        try:
            handle.bind(
                shmq.escape_name(queue), **_binding_arguments(handle, routing_key, arguments)
            )
        except shmq.NoSuchQueue as error:
            raise _make_not_found("queue", queue, "queue_bind") from error

    def queue_unbind(
        self,
        queue: str,
        exchange: str = "",
        routing_key: str = "",
        arguments: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Remove a binding; if there is none, nothing happens."""
        try:
            handle = self.session.exchange(exchange or "amq.direct")
        except shmq.NoSuchExchange:
            return
        handle.unbind(shmq.escape_name(queue), **_binding_arguments(handle, routing_key, arguments))

    def exchange_bind(
        self,
        destination: str,
        source: str = "",
        routing_key: str = "",
        nowait: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Pass messages of the exchange ``source`` on to ``destination``."""
        handle = self._exchange(source, "exchange_bind")
        self._exchange(destination, "exchange_bind")
        found = _binding_arguments(handle, routing_key, arguments)
        handle.bind(shmq.escape_name(destination), kind="exchange", **found)

    def exchange_unbind(
        self,
        destination: str,
        source: str = "",
        routing_key: str = "",
        nowait: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Remove a binding of an exchange."""
        handle = self._exchange(source, "exchange_unbind")
        found = _binding_arguments(handle, routing_key, arguments)
        handle.unbind(shmq.escape_name(destination), kind="exchange", **found)

    def get_exchanges(self) -> list[str]:
        """The names of all exchanges."""
        exchanges = self.session.broker.list_exchanges()
        return [shmq.unescape_name(exchange.name) for exchange in exchanges]

    def get_table(self, exchange: str) -> list[tuple[str, None, str]]:
        """The bindings of an exchange: key, no pattern, queue."""
        bindings = self._exchange(exchange, "get_table").bindings()
        with_texts(self.session.broker, bindings, "target")
        return [(one.key, None, shmq.unescape_name(one.target)) for one in bindings]

    def list_bindings(self) -> Iterator[tuple[str, str, str]]:
        """All bindings: queue, exchange, key."""
        for exchange in self.get_exchanges():
            for key, _, queue in self.get_table(exchange):
                yield queue, exchange, key

    # ---- publish ----

    def basic_publish(self, message: Raw, exchange: str, routing_key: str, **_: Any) -> None:
        """Put the message where the exchange routes it; a message without a route is dropped.

        Raises OperationalError if there was no room within ``put_timeout`` seconds, ChannelError
        (404) for an exchange that does not exist, and EncodeError for a message that cannot be put:
        it is too large, or has a header, routing key or expiration that is not allowed.
        """
        info = message["properties"].setdefault("delivery_info", {})
        info.update(exchange=exchange, routing_key=routing_key)
        put = {
            "timeout": self.put_timeout,
            "priority": self._get_message_priority(message),
            **properties_of(message, native_eta=self.native_eta),
        }
        try:
            try:
                self._publish(message, exchange, routing_key, {**put, "headers": pack(message)})
            except (TypeError, shmq.InvalidOption):  # a header is a date or the like
                headers = pack(message, checked=True)
                self._publish(message, exchange, routing_key, {**put, "headers": headers})
        except (shmq.Full, shmq.NoSpace, shmq.PublishRefused, shmq.NotConfirmed) as error:
            raise OperationalError(str(error)) from error
        except (shmq.MessageTooLarge, shmq.InvalidName, shmq.InvalidOption) as error:
            raise EncodeError(str(error)) from error  # no second attempt can succeed

    def _publish(self, message: Raw, exchange: str, routing_key: str, put: dict[str, Any]) -> None:
        body = message["body"]
        if not exchange:
            self._put_to(routing_key, body, put)
            return
        try:
            target = self._exchange(exchange, "basic_publish")
            target.publish(body, routing_key or "", mandatory=True, **put)
        except shmq.NoSuchExchange as error:
            self.session.forget_exchange(exchange)
            raise _make_not_found("exchange", exchange, "basic_publish") from error
        except shmq.Unroutable:
            if self.deadletter_queue is not None:
                self._new_queue(self.deadletter_queue)
                self._put_to(self.deadletter_queue, body, put)

    def _put_to(self, queue: str, body: Any, put: dict[str, Any]) -> None:
        """Put into a queue; one that this connection declared and that is gone is recreated."""
        try:
            self.session.with_queue(queue, lambda handle: handle.put(body, **put))
        except shmq.NoSuchQueue:
            declared = self.session.declared.get(queue)
            if declared is not None:
                self._new_queue(queue, **declared).put(body, **put)

    def _put(self, queue: str, message: Raw, **more: Any) -> None:
        self.basic_publish(message, "", queue, **more)

    # ---- consume ----

    def _get(self, queue: str, timeout: float | None = None) -> Raw:
        """Lease the next message of the queue. Raises Empty."""
        handle = self.session.queue(queue)
        try:
            message = handle.get_nowait()
        except shmq.LockTimeout as error:
            raise Empty from error
        lease = Lease(next(_tags), handle, message, os.getpid())
        self.qos.hold(lease)
        return _unpack(lease)

    def fetch(self, queue: str, most: int) -> int:
        """Lease up to ``most`` messages for the consumer of the queue; returns how many."""
        handle = self.session.queue(queue)
        try:
            messages = handle.get_many(most, block=False)
        except shmq.LockTimeout:
            return 0
        ahead, pid = self._ahead[queue], os.getpid()
        for message in messages:
            lease = Lease(next(_tags), handle, message, pid)
            self.qos.hold(lease)
            ahead.append(lease)
        return len(messages)

    def has_fetched(self, queue: str) -> bool:
        """Whether a message that `fetch` leased is not delivered yet."""
        return bool(self._ahead.get(queue))

    def pop_fetched(self, queue: str) -> Raw | None:
        """The next message that `fetch` leased, to be delivered now; None: there is no other."""
        ahead = self._ahead.get(queue)
        while ahead:
            lease = ahead.popleft()
            if lease.pid == os.getpid():  # else the parent of this forked child delivers it
                return _unpack(lease)
        return None

    def basic_get(self, queue: str, no_ack: bool = False, **_: Any) -> Any:
        """Take one message; None if there is none. Raises ChannelError (404)."""
        try:
            raw = self._get(queue)
        except Empty:
            return None
        except shmq.NoSuchQueue as error:
            raise _make_not_found("queue", queue, "basic_get") from error
        message = self.Message(raw, channel=self)
        if no_ack:
            self.qos.ack(message.delivery_tag)
        else:
            self.qos.append(message, message.delivery_tag)
        return message

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **more: Any
    ) -> None:
        """Deliver the queue's messages to ``callback``; with ``no_ack`` they are acknowledged."""
        super().basic_consume(queue, no_ack, callback, consumer_tag, **more)
        self.unacknowledged.discard(queue)
        if no_ack:
            self.unacknowledged.add(queue)
            deliver = self.connection._callbacks[queue]

            def settle_and_deliver(raw: Raw) -> Any:
                self.qos.ack(raw["properties"]["delivery_tag"])
                return deliver(raw)

            self.connection._callbacks[queue] = settle_and_deliver

    def basic_cancel(self, consumer_tag: str) -> None:
        """End the consumer; messages that were not delivered to it return to their places."""
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        failed: shmq.ShmqError | None = None
        for lease in self._ahead.pop(queue, ()):
            try:
                self.qos.give_back(lease.tag)
            except shmq.ShmqError as error:  # its lock is not to be had: so may others be
                failed = error
        if failed is not None:
            raise failed


def _unpack(lease: Lease) -> Raw:
    raw = unpack(lease.message)
    raw["properties"]["delivery_tag"] = lease.tag
    return raw


def _binding_arguments(
    exchange: shmq.Exchange, routing_key: str, arguments: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The arguments of a binding: AMQP ignores a key where shmq has none."""
    if exchange.kind == "headers":
        headers = {key: value for key, value in (arguments or {}).items() if key != "x-match"}
        return {"headers": headers, "match": (arguments or {}).get("x-match", "all")}
    return {} if exchange.kind == "fanout" else {"key": routing_key or ""}
