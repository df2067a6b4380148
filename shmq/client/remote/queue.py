"""A queue of a server."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from shmq import api, errors
from shmq.api.names import check_name
from shmq.api.options import Confirm, QueueOptions, check_whole
from shmq.client.remote.ack_flusher import new_acks
from shmq.client.remote.address import Target
from shmq.client.remote.batch_window import RemotePipeline
from shmq.client.remote.bulk import RemoteBulkQueue
from shmq.client.remote.connection import Attempt, Connection, RemoteHandle
from shmq.client.remote.consumer import RemoteAsyncConsumer, RemoteConsumer
from shmq.client.remote.durable_wait import aconfirmed, is_durable
from shmq.client.remote.get import RemoteBatch, RemoteGet, RemotePacked, first_wait, nack_of
from shmq.client.remote.put import (
    Item,
    RemotePuts,
    check_many,
    encode,
    waiting_put,
    waiting_puts,
    with_id,
)
from shmq.client.remote.ready_watch import RemoteReadyWatch
from shmq.client.remote.staged_publish import RemoteStagedPublisher
from shmq.client.shared import loop_timer
from shmq.client.shared.async_bodies import AsyncBodies
from shmq.client.shared.backoff import RoomBackoff
from shmq.client.shared.buffered_loan import QueueLoan
from shmq.client.shared.policy import compile_filter
from shmq.client.shared.ready_event import ReadyEvent, descriptor_of
from shmq.model.expression.parse import Where
from shmq.native import _clock as time
from shmq.native import _core
from shmq.protocol.messages.queue import Create, Leases, LeasesState, QueueState, Select
from shmq.protocol.opcodes import FOREVER, Status, Type
from shmq.protocol.status import error_of

api.Message.register(_core.RemoteMessage)
api.Bodies.register(_core.RemoteBodies)

log = logging.getLogger("shmq")

_MOST_RECEIPTS = 1 << 16
#: The most acknowledgements that wait for a next request; one more sends them.
_MOST_RIDING = 64
#: The most messages that one get_packed leases at once.
_MOST_PACKED = 4096


class RemoteQueue(RemoteHandle, api.Queue):
    """A queue of a server, with a connection of its own. Threads may share a handle.

    A handle used in the child of a fork reconnects, and so does one that is unpickled.
    """

    READY_WATCH = RemoteReadyWatch

    def __init__(
        self, connection: Connection, namespace: str, create: Create | None = None
    ) -> None:
        super().__init__(connection, namespace)
        #: Of `fileno`; None: it was not called.
        self.ready_event: ReadyEvent | None = None
        self._consumers: weakref.WeakSet[api.Consumer | api.Bodies] = weakref.WeakSet()
        connection.set_queue(weakref.ref(self))
        if create is not None:
            self._make(create)
        answer = connection.call(lambda wire: wire.request(Type.STATS, True, b""), again=True)
        if answer.status == Status.NO_QUEUE:
            raise errors.NoSuchQueue(
                f"queue {self._name!r} does not exist in namespace {namespace!r} of "
                f"{connection.url}: create it first, or see `shmq list`"
            )
        if answer.status != Status.OK:
            raise error_of(answer, f"queue {self._name!r} of {connection.url}")
        state = QueueState.unpack(answer)
        self._options = state.options
        #: To whom the queue is exclusive; None: this handle may be used for all.
        self.exclusive_to = state.exclusive_to
        #: Its puts. They hold no reference to the queue: it is detached as soon as it is dropped.
        self.puts = RemotePuts(connection, namespace, self._options)
        self._put = self.puts.put
        self._lease = self._options.visibility_timeout
        self._patience = connection.target.request_timeout
        self._confirms = self._options.confirm == "disk"
        #: The acknowledgements that ride with the next request; None: each waits for its answer.
        self.acks: _core.Acks | None = None
        if not connection.target.wait_for_acks:
            self.acks = new_acks(_MOST_RIDING, functools.partial(_report_refused, self._name))

    def _make(self, create: Create) -> None:
        """Create the queue, exclusive to the connection: the server removes both."""
        packed = create.pack()
        answer = self._connection.call(lambda wire: wire.request(Type.CREATE, True, packed))
        if create.own and answer.status in (Status.NO_QUEUE, Status.FORBIDDEN):
            raise errors.Forbidden(
                f"the token may make no queue {self._name!r} at {self._connection.url}, which "
                f"replies need: give it admin and consume rights to 'reply.*'"
            )
        if answer.status != Status.OK:
            raise error_of(answer, f"queue {self._name!r} of {self._connection.url}")

    @property
    def options(self) -> QueueOptions:
        return self._options

    def is_owner(self) -> bool:
        """Whether the queue is there, and exclusive to this handle's connection."""
        try:
            state = self.puts.state()
        except (errors.QueueDeleted, errors.NoSuchQueue):
            return False
        return state.options.exclusive and state.exclusive_to is None

    # ---- refusals ----

    def error(self, answer: _core.Answer) -> errors.ShmqError:
        """The error that a refusal means."""
        return self.puts.error(answer)

    def _check(self, answer: _core.Answer) -> None:
        if answer.status != Status.OK:
            raise self.puts.error(answer)

    def _stale(self, receipt: int) -> errors.LeaseExpired:
        return errors.LeaseExpired(
            f"receipt {receipt} of queue {self._name!r} has expired: its lease ended, "
            f"or the message was settled; nothing was changed"
        )

    # ---- put ----

    def put(
        self,
        body: api.Body,
        block: bool | None = None,
        timeout: float | None = None,
        *,
        priority: int | None = None,
        group: str | None = None,
        headers: Mapping[str, Any] | None = None,
        delay: float | None = None,
        deliver_at: float | None = None,
        ttl: float | None = None,
        dedupe_id: str | None = None,
        codec: str | None = None,
        reply_to: str | None = None,
        correlation: str | None = None,
        confirm: Confirm | None = None,
    ) -> api.Put:
        if timeout is not None:
            _core.check_timeout(timeout)
        durable = (confirm is not None or self._confirms) and is_durable(self, confirm)
        if (
            type(body) is bytes
            and priority is None
            and group is None
            and headers is None
            and delay is None
            and deliver_at is None
            and ttl is None
            and dedupe_id is None
            and codec is None
            and reply_to is None
            and correlation is None
        ):
            meta = None
        else:
            meta, body = encode(
                body,
                self._options.priorities,
                {
                    "codec": codec,
                    "priority": priority,
                    "group": group,
                    "headers": headers,
                    "delay": delay,
                    "deliver_at": deliver_at,
                    "ttl": ttl,
                    "dedupe_id": dedupe_id,
                    "reply_to": reply_to,
                    "correlation": correlation,
                },
            )
        return self._put(meta, body, block, timeout, dedupe_id is not None, durable)

    def put_many(
        self,
        bodies: Iterable[api.Body],
        block: bool | None = None,
        timeout: float | None = None,
        *,
        priority: int | None = None,
        group: str | None = None,
        headers: Mapping[str, Any] | None = None,
        delay: float | None = None,
        ttl: float | None = None,
        codec: str | None = None,
        confirm: Confirm | None = None,
    ) -> int:
        _core.check_timeout(timeout)
        durable = is_durable(self, confirm)
        check_many(bodies)
        properties = {
            "codec": codec,
            "priority": priority,
            "group": group,
            "headers": headers,
            "delay": delay,
            "ttl": ttl,
        }
        plain = all(value is None for value in properties.values())
        items: list[Item] = list(bodies)
        small = min(self._options.max_message_bytes, self.puts.frame() - 512)
        if not (plain and not self.puts.identified and _core.are_bytes(items, small)):
            items = [self.puts.item(body, properties) for body in items]
        return self.puts.put_items(items, self.puts.waits(block, timeout), timeout, durable)

    def put_packed(
        self,
        data: api.Body,
        lengths: int | Iterable[int],
        block: bool | None = None,
        timeout: float | None = None,
        *,
        priority: int | None = None,
        group: str | None = None,
        headers: Mapping[str, Any] | None = None,
        delay: float | None = None,
        ttl: float | None = None,
        dedupe_id: str | None = None,
        confirm: Confirm | None = None,
    ) -> api.Put:
        _core.check_timeout(timeout)
        durable = is_durable(self, confirm)
        properties = {
            "codec": "packed",
            "priority": priority,
            "group": group,
            "headers": headers,
            "delay": delay,
            "ttl": ttl,
            "dedupe_id": dedupe_id,
        }
        view = memoryview(data)
        if not view.c_contiguous:
            raise BufferError("data must be one contiguous buffer")
        trailer = _core.packed_trailer(view.nbytes, lengths)
        body = b"".join((view.cast("B") if view.nbytes else b"", trailer))
        meta, body = encode(body, self._options.priorities, properties, encoded=True)
        return self._put(meta, body, block, timeout, dedupe_id is not None, durable)

    def loan(self, size: int, **properties: Any) -> api.Loan:
        # The space is memory of this process: room in the queue is checked now, and decided by
        # the commit.
        size = check_whole("size", size, 0, None)
        block, timeout = properties.pop("block", None), properties.pop("timeout", None)
        _core.check_timeout(timeout)
        durable = is_durable(self, properties.pop("confirm", None))
        known = properties.get("dedupe_id") is not None
        meta, _ = encode(b"", self._options.priorities, properties, encoded=True)
        self.puts.check_bytes(size, meta)
        self.puts.wait_for_room(block, timeout)
        return QueueLoan(size, lambda body: self._put(meta, body, block, timeout, known, durable))

    def pipeline(self, window: int = 64, *, confirm: Confirm | None = None) -> api.Pipeline:
        is_durable(self, confirm)
        return RemotePipeline(self, check_whole("window", window, 1), confirm)

    # ---- very many messages at once ----

    def bulk(self) -> api.BulkQueue:
        return RemoteBulkQueue(self)

    def staged_publisher(self, publisher: str) -> api.StagedPublisher:
        return RemoteStagedPublisher(self, publisher)

    # ---- get ----

    def get(
        self, block: bool = True, timeout: float | None = None, *, where: str | None = None
    ) -> api.Message:
        if timeout is not None:
            _core.check_timeout(timeout)
        first = None
        wire = self._connection.wire
        if where is None and wire is not None and wire.is_usable:
            # The usual case, without the repetitions and the longer waits of RemoteGet.
            began = time.monotonic()
            wait = first_wait(block, timeout)
            found = wire.get(wait, self._lease, self.acks, self._patience + wait / 1000)
            if type(found) is _core.RemoteMessage:
                return cast("api.Message", found)
            first = Attempt(wire, found, began)
        getting = RemoteGet(self, 1, self._asked(where))
        messages: list[api.Message] = getting.run(block, timeout, first)
        if messages:
            _core.hand_over(messages)
            return messages[0]
        raise self._empty(block, timeout, where)

    def _empty(self, block: bool, timeout: float | None, where: str | None = None) -> errors.Empty:
        what = "no message" if where is None else "no message that `where` means"
        if block and timeout is not None:
            return errors.Empty(f"{what} came to queue {self._name!r} within {timeout} s")
        return errors.Empty(f"{what} is visible in queue {self._name!r}")

    def _asked(self, where: str | None) -> bytes | None:
        """The expression in wire format. Raises InvalidOption and TypeError."""
        if where is None:
            return None
        compile_filter(where)
        return where.encode()

    def _many(self, max: int, block: bool, timeout: float | None, most: int = 0) -> list[Any]:
        wanted = check_whole("max", max, 1, None)
        _core.check_timeout(timeout)
        most = min(wanted, most or wanted, self._options.capacity)
        return RemoteGet(self, most).run(block, timeout)

    def get_many(
        self,
        max: int,
        timeout: float | None = None,
        *,
        block: bool = True,
        where: str | None = None,
    ) -> list[api.Message]:
        if where is None:
            return _core.hand_over(self._many(max, block, timeout))
        most = min(check_whole("max", max, 1, None), self._options.capacity)
        _core.check_timeout(timeout)
        return _core.hand_over(RemoteGet(self, most, self._asked(where)).run(block, timeout))

    def get_batch(self, max: int, timeout: float | None = None, *, block: bool = True) -> api.Batch:
        messages = self._many(max, block, timeout)
        try:
            bodies = _core.bodies_of(messages)
        except errors.ShmqError:
            self._refuse_batch(messages)
            raise
        return RemoteBatch(self, bodies, messages)

    def _refuse_batch(self, messages: list[Any]) -> None:
        """Return the batch, except the message whose body its codec cannot decode."""
        for message in messages:
            try:
                _ = message.body
            except errors.ShmqError as error:
                others = [other.receipt for other in messages if other is not message]
                self.settle(Type.NACK, others, 0)
                raise errors.ShmqError(
                    f"message {message.sequence} of queue {self._name!r} cannot be in a batch: "
                    f"{error}; reject its receipt {message.receipt}, or take it by get; the rest "
                    f"of the batch is in the queue again"
                ) from error

    def get_packed(
        self, max: int = 65536, timeout: float | None = None, *, block: bool = True
    ) -> api.Packed:
        wanted = check_whole("max", max, 1, None)
        messages = self._many(1, block, timeout, 1)
        records = _core.records_in(messages)
        while messages and records < wanted and len(messages) < _MOST_PACKED:
            # One packed batch may hold all records that are wanted, so few are leased at a time.
            alone = records == len(messages)
            most = min(wanted - records, _MOST_PACKED - len(messages)) if alone else 1
            more = RemoteGet(self, min(most, 64)).run(False, None)
            if not more:
                break
            messages += self._no_more_than(more, wanted - records)
            records = _core.records_in(messages)
        return RemotePacked(self, messages)

    def _no_more_than(self, messages: list[Any], most: int) -> list[Any]:
        """The first messages that hold ``most`` records; the others are returned."""
        records = kept = 0
        while kept < len(messages) and records < most:
            records += _core.records_in([messages[kept]])
            kept += 1
        if kept < len(messages):
            self.settle(Type.RETURN, _core.receipts_of(messages[kept:]))
        return messages[:kept]

    def consume(
        self,
        prefetch: int = 64,
        timeout: float | None = None,
        *,
        block: bool = True,
        where: str | None = None,
    ) -> api.Consumer:
        prefetch = check_whole("prefetch", prefetch, 1, 1 << 20)
        _core.check_timeout(timeout)
        subscribes = block and timeout != 0
        consumer = RemoteConsumer(self, prefetch, timeout, subscribes, self._asked(where))
        self._consumers.add(consumer)
        return consumer

    def bodies(
        self,
        prefetch: int = 64,
        timeout: float | None = None,
        *,
        block: bool = True,
        where: str | None = None,
    ) -> api.Bodies:
        consumer = self.consume(prefetch, timeout, block=block, where=where)
        bodies = cast("api.Bodies", _core.RemoteBodies(cast("RemoteConsumer", consumer)))
        self._consumers.add(bodies)
        return bodies

    # ---- settle ----

    def settle(
        self,
        kind: int,
        receipts: list[int],
        argument: int | None = None,
        *,
        first: Attempt | None = None,
    ) -> list[int]:
        """Settle receipts; returns those that were refused.

        ``first`` is an attempt for all of them that the caller has made.
        """
        refused: list[int] = []
        for start in range(0, len(receipts), _MOST_RECEIPTS):
            some = receipts[start : start + _MOST_RECEIPTS]
            write = functools.partial(_settlement, kind, some, argument)
            answer = self._connection.call(write, again=kind == Type.EXTEND, first=first)
            if answer.status == Status.LEASE_EXPIRED:
                refused += answer.refused
            else:
                self._check(answer)
        return refused

    def ack_many(self, messages: Iterable[api.Message | int]) -> list[int]:
        receipts = [_core.receipt_of(message) for message in messages]
        possible = [receipt for receipt in receipts if _can_be(receipt)]
        if not possible:
            self._check_open()
        refused = iter(self.settle(Type.ACK, possible) if possible else ())
        rejected, next_refused = [], next(refused, 0)
        for receipt in receipts:
            if not _can_be(receipt):
                rejected.append(receipt)
            elif receipt == next_refused:
                rejected.append(receipt)
                next_refused = next(refused, 0)
        return rejected

    def ack(self, receipt: int) -> None:
        wire = self._connection.wire
        if type(receipt) is not int or not _can_be(receipt) or wire is None or not wire.is_usable:
            self._settle_one(Type.ACK, receipt, None)
            return
        # The usual case, without the repetitions of Connection.call.
        began = time.monotonic()
        answer = wire.ack(receipt, self._patience)
        if answer is None:
            return
        if self.settle(Type.ACK, [receipt], first=Attempt(wire, answer, began)):
            raise self._stale(receipt)

    def nack(self, receipt: int, delay: float | None = None, *, counted: bool = True) -> None:
        kind, ms = nack_of(delay, counted)
        self._settle_one(kind, receipt, ms)

    def reject(self, receipt: int) -> None:
        self._settle_one(Type.REJECT, receipt, None)

    def extend(self, receipt: int, seconds: float) -> None:
        self._settle_one(Type.EXTEND, receipt, _core.milliseconds("seconds", seconds))

    def _settle_one(self, kind: int, receipt: int, argument: int | None) -> None:
        number = _core.receipt_of(receipt)
        if not _can_be(number) or self.settle(kind, [number], argument):
            raise self._stale(receipt)

    # ---- asyncio ----

    async def aget(self, timeout: float | None = None, *, where: str | None = None) -> api.Message:
        if timeout is not None:
            _core.check_timeout(timeout)
        getting = RemoteGet(self, 1, self._asked(where))
        messages: list[api.Message] = await getting.arun(timeout)
        if messages:
            _core.hand_over(messages)
            return messages[0]
        raise self._empty(True, timeout, where)

    async def aput(
        self,
        body: api.Body,
        timeout: float | None = None,
        *,
        block: bool | None = None,
        confirm: Confirm | None = None,
        **properties: Any,
    ) -> api.Put:
        if timeout is not None:
            _core.check_timeout(timeout)
        durable = is_durable(self, confirm)
        meta, buffer = encode(body, self._options.priorities, properties)
        self.puts.check_size(buffer, meta)
        known = properties.get("dedupe_id") is not None
        if self.puts.identified and not known:
            meta = with_id(meta)
        waits = self.puts.waits(block, timeout)
        until = None if timeout is None else time.monotonic() + timeout
        backoff = RoomBackoff()

        async def wait(wire: _core.Wire, answer: _core.Answer) -> None:
            await aconfirmed(self, wire, answer, until)

        while True:
            answer = await self._connection.acall(
                lambda wire: wire.produce(meta, buffer, durable),
                again=self.puts.identified,
                within=self._options.dedupe_window,
                await_=wait if durable else None,
            )
            if answer.status == Status.DUPLICATE:
                return _core.new_put(answer.number, known or not self.puts.identified)
            if answer.status != Status.QUEUE_FULL:
                self._check(answer)
                return _core.new_put(answer.number, False)
            left = None if until is None else until - time.monotonic()
            if not waits or (left is not None and left <= 0):
                raise self.puts.full(await self.puts.awhy_unwritten())
            with waiting_put(self.puts.key):
                await loop_timer.sleep(backoff.pause(left))

    def aconsume(
        self, prefetch: int = 64, timeout: float | None = None, *, where: str | None = None
    ) -> api.AsyncConsumer:
        prefetch = check_whole("prefetch", prefetch, 1, 1 << 20)
        _core.check_timeout(timeout)
        consumer = RemoteConsumer(self, prefetch, timeout, timeout != 0, self._asked(where))
        self._consumers.add(consumer)
        return RemoteAsyncConsumer(consumer, prefetch)

    def abodies(
        self, prefetch: int = 64, timeout: float | None = None, *, where: str | None = None
    ) -> api.AsyncBodies:
        return AsyncBodies(self.aconsume(prefetch, timeout, where=where))

    def fileno(self) -> int:
        self._check_open()
        return descriptor_of(self)

    def found_nothing(self) -> None:
        """A get has found nothing: the descriptor, if there is one, ends to be readable."""
        if self.ready_event is not None:
            self.ready_event.clear()

    # ---- looking ----

    def ask(self, kind: int, rest: bytes = b"", *, again: bool = False) -> _core.Answer:
        """Send a request other than a put, get or settlement. Raises the error of a refusal."""
        answer = self._connection.call(lambda wire: wire.request(kind, True, rest), again=again)
        if answer.status != Status.OK:
            raise self.puts.error(answer, described=kind == Type.STAGE)
        return answer

    def peek(self, limit: int = 10, *, where: str | None = None) -> list[api.Message]:
        limit = min(check_whole("limit", limit, 1, None), self._options.capacity)
        asked = b"" if where is None else Where(where).text.encode()
        answer = self._connection.call(lambda wire: wire.peek(limit, asked), again=True)
        if answer.status == Status.QUEUE_EMPTY:
            return []
        self._check(answer)
        return list(answer.messages or ())

    def purge(self) -> int:
        return self.ask(Type.PURGE).number

    def redrive(self, limit: int | None = None, *, where: str | None = None) -> int:
        most = FOREVER if limit is None else min(check_whole("limit", limit, 1, None), FOREVER - 1)
        text = None if where is None else Where(where).text
        return self.ask(Type.REDRIVE, Select(most, text).pack()).number

    @property
    def identity(self) -> int:
        found = self.puts.state().identity
        if type(found) is not int:
            raise errors.Unsupported(
                f"the server of queue {self.name!r} does not say which queue it is"
            )
        return found

    def stats(self) -> api.QueueStats:
        # ``waiting_put`` includes the waiting puts of this process: a remote put waits by
        # retrying.
        found = self.puts.state().stats
        return dataclasses.replace(
            found, waiting_put=found.waiting_put + waiting_puts(self.puts.key)
        )

    def attachments(self) -> list[api.Attachment]:
        # A server's process stands for all its clients.
        return self.puts.state().attachments

    def leases(self, limit: int = 100, *, after: int = 0) -> list[api.Lease]:
        # A server's process stands for all its clients.
        limit = min(check_whole("limit", limit, 1, None), self._options.capacity)
        after = check_whole("after", after, 0, (1 << 64) - 1)
        found: list[api.Lease] = []
        more = True
        while more and len(found) < limit:
            asked = Leases(after=found[-1].sequence if found else after, limit=limit - len(found))
            answer = LeasesState.unpack(self.ask(Type.LEASES, asked.pack(), again=True))
            found += answer.leases
            more = answer.more and bool(answer.leases)
        return found

    def qsize(self) -> int:
        return self.puts.state().stats.depth

    def full(self) -> bool:
        return self.puts.is_full()

    # ---- the end ----

    def _check_open(self) -> None:
        if self._connection.closed:
            raise self._connection.closed_error()

    def close(self) -> None:
        if self._connection.closed:
            return
        for consumer in list(self._consumers):
            consumer.close()  # with the acknowledgements that it has collected
        if self.ready_event is not None:
            self.ready_event.close()
        self._send_acks()
        self._connection.close()

    def _send_acks(self) -> None:
        if self.acks is not None:
            with contextlib.suppress(errors.ShmqError):
                self.acks.send()

    def __del__(self) -> None:
        if getattr(self, "acks", None) is not None:
            self._send_acks()
        super().__del__()

    def __reduce__(self) -> tuple[Any, ...]:
        return attach, (self._connection.target, self._name, self._namespace)

    def __rich_repr__(self) -> Iterator[tuple[str, object]]:
        yield "name", self._name
        yield "url", self._connection.url
        yield "closed", self.closed

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"<RemoteQueue {self._name!r} of {self._connection.url}{state}>"


def attach(target: Target, name: str, namespace: str) -> RemoteQueue:
    """Attach to an existing queue. Raises NoSuchQueue, ConnectionLost."""
    return RemoteQueue(Connection(target, check_name(name)), namespace)


def make_exclusive(target: Target, name: str, namespace: str, create: Create) -> RemoteQueue:
    """Create a queue that the server removes once its connection has ended, and attach to it.

    Raises :class:`~shmq.QueueExists`, :class:`~shmq.Forbidden`, :class:`~shmq.NoSpace`,
    :class:`~shmq.ConnectionLost`.
    """
    return RemoteQueue(Connection(target, check_name(name)), namespace, create)


def _settlement(
    kind: int, receipts: list[int], argument: int | None, wire: _core.Wire
) -> _core.Answer:
    return wire.settle(kind, receipts, argument)


def _can_be(receipt: int) -> bool:
    """Whether such a receipt can exist."""
    return 0 < receipt < 1 << 64


def _report_refused(name: str, answer: _core.Answer) -> None:
    """Log that the server refused acknowledgements after `ack` had returned."""
    refused = answer.refused
    why = f"status {answer.status}" if not refused else f"receipts {refused[:10]}"
    log.warning(
        "queue %s: acknowledgements were refused after ack() had returned (%s): the messages are "
        "delivered again, or the queue was deleted",
        name,
        why,
    )
