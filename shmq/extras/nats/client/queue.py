"""A queue of a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, NoReturn, TypeVar

from shmq import api, errors
from shmq.api.options import Confirm, QueueOptions, check_whole
from shmq.client.handles.put import check_many
from shmq.client.shared.async_bodies import AsyncBodies
from shmq.client.shared.buffered_loan import QueueLoan
from shmq.extras.nats.client.address import ClusterTarget
from shmq.extras.nats.client.batch_window import NatsPipeline
from shmq.extras.nats.client.connection import ClusterConnection
from shmq.extras.nats.client.consumer import NatsAsyncConsumer, NatsBodies, NatsConsumer, Prefetched
from shmq.extras.nats.client.definitions import Definitions
from shmq.extras.nats.client.flight import Flight
from shmq.extras.nats.client.inbox import Arrival, Inbox
from shmq.extras.nats.client.lease import Lease
from shmq.extras.nats.client.loop_thread import Begun, LoopThread
from shmq.extras.nats.client.message import NatsBatch, NatsMessage, NatsPacked, records_of
from shmq.extras.nats.client.names import kv_key
from shmq.extras.nats.client.pull import Pulls
from shmq.extras.nats.client.put import Item, Puts
from shmq.extras.nats.client.queue_layout import QueueLayout, options_of
from shmq.extras.nats.client.queue_state import QueueState
from shmq.extras.nats.client.redrive import redrive
from shmq.extras.nats.client.settlement import Leases, Settlements, as_receipt
from shmq.model.expression.parse import Where
from shmq.native import _clock as time
from shmq.native import _core

_T = TypeVar("_T")

#: The most messages that one get_packed leases at once.
_MOST_PACKED = 256


class NatsQueue(api.Queue):
    """A queue of a cluster. Threads, tasks and the children of forks may use a handle."""

    def __init__(
        self,
        connection: ClusterConnection,
        definitions: Definitions,
        name: str,
        definition: Mapping[str, Any],
        *,
        owns_connection: bool = False,
    ) -> None:
        self.connection = connection
        self.layout = QueueLayout(connection, name, options_of(definition))
        self.puts = Puts(self.layout, definitions)
        self._identity = int(definition["identity"])
        self.held = Leases(connection, self.layout, self._identity)
        self.settlements = Settlements(self, self.puts, definitions)
        self.pulls = Pulls(self.layout, self.settlements.give_back)
        self.state = QueueState(self, self.layout, self.pulls)
        self.definitions = definitions
        self._owns_connection = owns_connection
        self._closed = False
        self._consumers: weakref.WeakSet[NatsConsumer | NatsBodies] = weakref.WeakSet()

    @property
    def name(self) -> str:
        return self.layout.name

    @property
    def options(self) -> QueueOptions:
        return self.layout.options

    @property
    def identity(self) -> int:
        self.run(self.puts.check_there())
        return self._identity

    @property
    def closed(self) -> bool:
        """Whether the handle is closed."""
        return self._closed

    # ---- the loop ----

    def check_open(self) -> None:
        """Raise ShmqError once the handle is closed."""
        if self._closed:
            raise errors.ShmqError(f"this handle of queue {self.name!r} is closed")

    def begin(self, begin: Callable[[Begun[_T]], None]) -> _T:
        """Begin something in the process's loop, and wait for its end."""
        self.check_open()
        return self.connection.begin(begin)

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run it in the process's loop, and wait for it."""
        if self._closed:
            coroutine.close()
            self.check_open()
        return self.connection.run(coroutine)

    async def arun(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """``run`` for a task of any loop."""
        if self._closed:
            coroutine.close()
            self.check_open()
        return await self.connection.arun(coroutine)

    def finish(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """``run`` for what ends a handle: a lost cluster is no error then."""
        if self.connection.closed:
            coroutine.close()
            return
        with contextlib.suppress(errors.ConnectionLost, errors.QueueDeleted):
            self.connection.run(coroutine)

    def _unsupported(self, what: str, why: str) -> NoReturn:
        self.check_open()
        raise errors.Unsupported(f"queue {self.name!r}: {what} is not possible on a cluster: {why}")

    def _refuse_where(self, where: str | None) -> None:
        if where is not None:
            self._unsupported("where=", "its servers choose by subject, not by expressions")

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
        properties = {
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
        }
        waits, until = self._patience(block, timeout, confirm)
        item = self.puts.item(body, properties)
        put: api.Put = self.begin(partial(self.puts.begin, item, waits, until))
        return put

    def _patience(
        self, block: bool | None, timeout: float | None, confirm: Confirm | None
    ) -> tuple[bool, float | None]:
        """Whether a put waits for room, and until when."""
        _core.check_timeout(timeout)
        self.puts.check_confirm(confirm)
        until = None if timeout is None else time.monotonic() + timeout
        return self.puts.waits(block, timeout), until

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
        waits, until = self._patience(block, timeout, confirm)
        check_many(bodies)
        properties = {
            "codec": codec,
            "priority": priority,
            "group": group,
            "headers": headers,
            "delay": delay,
            "ttl": ttl,
        }
        items = [self.puts.item(body, properties) for body in bodies]
        return self.run(self.puts.put_many(items, waits, until))

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
        waits, until = self._patience(block, timeout, confirm)
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
        return self.run(self.puts.put(self.puts.item(body, properties, True), waits, until))

    def loan(self, size: int, **properties: Any) -> api.Loan:
        # The space is memory of this process.
        self.check_open()
        size = check_whole("size", size, 0, None)
        block, timeout = properties.pop("block", None), properties.pop("timeout", None)
        waits, until = self._patience(block, timeout, properties.pop("confirm", None))
        self.puts.item(b"", properties, True)
        self.puts.check_bytes(size, None)
        if not waits and self.options.overflow != "drop-oldest" and self.full():
            raise self.puts.full()

        def commit(body: memoryview) -> api.Put:
            return self.run(self.puts.put(self.puts.item(body, properties, True), waits, until))

        return QueueLoan(size, commit)

    def pipeline(self, window: int = 64, *, confirm: Confirm | None = None) -> api.Pipeline:
        self.puts.check_confirm(confirm)
        return NatsPipeline(self, check_whole("window", window, 1), confirm)

    def bulk(self) -> api.BulkQueue:
        self._unsupported("bulk()", "its servers keep messages, not columns of them")

    def staged_publisher(self, publisher: str) -> api.StagedPublisher:
        self._unsupported(
            f"staged_publisher({publisher!r})", "a batch there has at most 1,000 messages"
        )

    # ---- get ----

    async def take(
        self,
        most: int,
        until: float | None,
        *,
        waits: bool,
        started: Inbox | list[Arrival] | None = None,
    ) -> list[NatsMessage]:
        """Up to ``most`` messages, in the process's loop. ``started``: see `Pulls.begin`."""
        while True:
            came = await self.pulls.take(most, until, waits=waits, started=started)
            if not came:
                return []
            started = None
            messages = await self.settlements.sift(came)
            self._hold(messages)
            if messages:
                return messages

    def _hold(self, messages: list[NatsMessage]) -> None:
        for message in messages:
            if message.lease is not None:
                self.held.add(message.lease)

    def _begin_take(
        self,
        handoff: _Handoff,
        most: int,
        until: float | None,
        waits: bool,
        call: Begun[list[NatsMessage]],
    ) -> None:
        """Begin `take`: without a task, if all that is wanted is there and new."""

        def go_on(started: Inbox | list[Arrival] | None) -> None:
            if call.is_over:  # the caller was interrupted
                LoopThread.get().start(self.pulls.give_up(started))
                return
            messages = self.settlements.fresh(started) if isinstance(started, list) else None
            if messages is None:
                take = self.take(most, until, waits=waits, started=started)
                call.go_on(handoff.run(take))
            else:
                self._hold(messages)
                call.end(handoff.give(messages))

        self.pulls.begin(most, partial(call.then, go_on))

    async def return_all(self, messages: Iterable[NatsMessage]) -> None:
        """Return messages uncounted, in the process's loop."""
        for message in messages:
            if message.lease is not None and message.lease.is_good:
                await self.settlements.return_uncounted(message.lease)

    def _taken(
        self, most: int, block: bool, timeout: float | None, where: str | None = None
    ) -> list[NatsMessage]:
        self._refuse_where(where)
        _core.check_timeout(timeout)
        handoff = _Handoff(self)
        until = None if timeout is None else time.monotonic() + timeout
        waits = block and timeout != 0
        most = min(most, self.options.capacity)
        try:
            while True:
                took: list[NatsMessage] = self.begin(
                    partial(self._begin_take, handoff, most, until, waits)
                )
                if all(map(_is_current, took)):
                    return took
                if current := self.run(self.settlements.current(took)):
                    return current
        except BaseException:
            handoff.drop()
            raise

    def get(
        self, block: bool = True, timeout: float | None = None, *, where: str | None = None
    ) -> api.Message:
        messages = self._taken(1, block, timeout, where)
        if not messages:
            raise self._empty(block, timeout)
        return _handed_out(messages)[0]

    def _empty(self, block: bool, timeout: float | None) -> errors.Empty:
        if block and timeout is not None:
            return errors.Empty(f"no message came to queue {self.name!r} within {timeout} s")
        return errors.Empty(f"no message is visible in queue {self.name!r}")

    def get_many(
        self,
        max: int,
        timeout: float | None = None,
        *,
        block: bool = True,
        where: str | None = None,
    ) -> list[api.Message]:
        messages = self._taken(check_whole("max", max, 1, None), block, timeout, where)
        return list(_handed_out(messages))

    def get_batch(self, max: int, timeout: float | None = None, *, block: bool = True) -> api.Batch:
        messages = self._taken(check_whole("max", max, 1, None), block, timeout)
        bodies = []
        for message in messages:
            try:
                bodies.append(message.body)
            except errors.ShmqError as error:
                rest = [one for one in messages if one is not message]
                self.run(self.return_all(rest))
                raise errors.ShmqError(
                    f"message {message.sequence} of queue {self.name!r} cannot be in a batch: "
                    f"{error}; reject its receipt {message.receipt}, or take it by get; the rest "
                    f"of the batch is in the queue again"
                ) from error
        return NatsBatch(self, bodies, messages)

    def get_packed(
        self, max: int = 65536, timeout: float | None = None, *, block: bool = True
    ) -> api.Packed:
        wanted = check_whole("max", max, 1, None)
        messages = self._taken(1, block, timeout)
        records = sum(len(records_of(message)) for message in messages)
        while messages and records < wanted and not _is_old(messages[0]):
            # One packed batch may hold all records that are wanted, so few are leased at a time.
            alone = records == len(messages)
            more = self._taken(min(wanted - records, _MOST_PACKED) if alone else 1, False, None)
            if not more:
                break
            for at, message in enumerate(more):
                if records >= wanted:
                    self.run(self.return_all(more[at:]))
                    break
                messages.append(message)
                records += len(records_of(message))
        return NatsPacked(self, self.run(self.settlements.current(messages)))

    def _prefetched(
        self, prefetch: int, timeout: float | None, block: bool, where: str | None
    ) -> Prefetched:
        self.check_open()
        self._refuse_where(where)
        prefetch = min(check_whole("prefetch", prefetch, 1, 1 << 20), self.options.capacity)
        _core.check_timeout(timeout)
        return Prefetched(self, prefetch, timeout, block and timeout != 0)

    def consume(
        self,
        prefetch: int = 64,
        timeout: float | None = None,
        *,
        block: bool = True,
        where: str | None = None,
    ) -> api.Consumer:
        consumer = NatsConsumer(self._prefetched(prefetch, timeout, block, where))
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
        bodies = NatsBodies(NatsConsumer(self._prefetched(prefetch, timeout, block, where)))
        self._consumers.add(bodies)
        return bodies

    # ---- settle ----

    def ack_lease(self, lease: Lease, consumer: Prefetched | None) -> None:
        """Acknowledge a delivery; a consumer's is not waited for."""
        if consumer is not None and not consumer.ended:
            consumer.ack(lease)
        elif self.connection.target.wait_for_acks:
            self.begin(partial(self.settlements.begin_ack, lease))
        else:
            lease.claim(self.name)
            self.run(lease.send_ack())

    def nack_lease(
        self, lease: Lease, delay: float | None, counted: bool, message: NatsMessage | None
    ) -> None:
        """Return a delivery after ``delay`` seconds."""
        if delay is not None:
            _core.milliseconds("delay", delay)
        self.run(self.settlements.nack(lease, delay, counted, message))

    def reject_lease(self, lease: Lease, message: NatsMessage | None) -> None:
        """Make a delivery a dead letter."""
        self.run(self.settlements.reject(lease, message))

    def extend_lease(self, lease: Lease, seconds: float) -> None:
        """Set the end of a lease."""
        _core.milliseconds("seconds", seconds)
        self.run(self.settlements.extend(lease, seconds))

    def _lease(self, receipt: int) -> Lease:
        self.check_open()
        number = as_receipt(receipt)
        lease = self.held.of(number)
        if lease is None:
            raise errors.LeaseExpired(
                f"receipt {number} is none of queue {self.name!r}; nothing was changed"
            )
        return lease

    def ack(self, receipt: int) -> None:
        self.begin(partial(self.settlements.begin_ack, self._lease(receipt)))

    def nack(self, receipt: int, delay: float | None = None, *, counted: bool = True) -> None:
        self.nack_lease(self._lease(receipt), delay, counted, None)

    def reject(self, receipt: int) -> None:
        self.reject_lease(self._lease(receipt), None)

    def extend(self, receipt: int, seconds: float) -> None:
        self.extend_lease(self._lease(receipt), seconds)

    def ack_many(self, messages: Iterable[api.Message | int]) -> list[int]:
        some = list(messages)
        leases = [self._lease_of(message) for message in some]
        self.check_open()
        refused = _refused(leases, self.settlements.begin_ack)
        return [as_receipt(one) for one, bad in zip(some, refused, strict=True) if bad]

    def _lease_of(self, message: api.Message | int) -> Lease | None:
        """The lease of a message or of a receipt; None if it is none of this queue."""
        if isinstance(message, NatsMessage) and message.is_of(self) and message.lease is not None:
            return message.lease
        return self.held.of(as_receipt(message))

    def return_many(
        self, messages: list[NatsMessage], delay: float | None, counted: bool
    ) -> list[int]:
        """Return the messages; gives the receipts that were refused."""
        if delay is not None:
            _core.milliseconds("delay", delay)
        self.check_open()

        def nack(lease: Lease, one: Begun[None]) -> None:
            one.go_on(self.settlements.nack(lease, delay, counted, None))

        refused = _refused([message.lease for message in messages], nack)
        return [one.receipt for one, bad in zip(messages, refused, strict=True) if bad]

    # ---- asyncio ----

    async def aget(self, timeout: float | None = None, *, where: str | None = None) -> api.Message:
        self._refuse_where(where)
        _core.check_timeout(timeout)
        until = None if timeout is None else time.monotonic() + timeout
        handoff = _Handoff(self)
        try:
            while True:
                messages = await self.arun(handoff.run(self.take(1, until, waits=timeout != 0)))
                if all(map(_is_current, messages)):
                    break
                await self.arun(self.settlements.current(messages))
        except BaseException:
            handoff.drop()
            raise
        if not messages:
            raise self._empty(True, timeout)
        return _handed_out(messages)[0]

    async def aput(
        self,
        body: api.Body,
        timeout: float | None = None,
        *,
        block: bool | None = None,
        confirm: Confirm | None = None,
        **properties: Any,
    ) -> api.Put:
        waits, until = self._patience(block, timeout, confirm)
        item: Item = self.puts.item(body, properties)
        return await self.arun(self.puts.put(item, waits, until))

    def aconsume(
        self, prefetch: int = 64, timeout: float | None = None, *, where: str | None = None
    ) -> api.AsyncConsumer:
        return NatsAsyncConsumer(self._prefetched(prefetch, timeout, True, where))

    def abodies(
        self, prefetch: int = 64, timeout: float | None = None, *, where: str | None = None
    ) -> api.AsyncBodies:
        return AsyncBodies(self.aconsume(prefetch, timeout, where=where))

    def fileno(self) -> int:
        self._unsupported("fileno()", "its servers tell of a message by handing it out: use aget")

    # ---- looking ----

    def peek(self, limit: int = 10, *, where: str | None = None) -> list[api.Message]:
        # What was delivered and came back may be missing.
        limit = min(check_whole("limit", limit, 1, None), self.options.capacity)
        return self.run(self.state.peek(limit, None if where is None else Where(where)))

    def purge(self) -> int:
        return self.run(self.state.purge())

    def redrive(self, limit: int | None = None, *, where: str | None = None) -> int:
        if limit is not None:
            check_whole("limit", limit, 1, None)
        return self.run(redrive(self, limit, None if where is None else Where(where)))

    def stats(self) -> api.QueueStats:
        # Totals other than of puts and removals are 0.
        return self.run(self.state.stats())

    def attachments(self) -> list[api.Attachment]:
        self._unsupported("attachments()", "its servers do not know processes")

    def leases(self, limit: int = 100, *, after: int = 0) -> list[api.Lease]:
        check_whole("limit", limit, 1, None)
        check_whole("after", after, 0, (1 << 64) - 1)
        self._unsupported("leases()", "its servers do not tell who holds what")

    def qsize(self) -> int:
        return self.run(self.state.counts())[0]

    def full(self) -> bool:
        return self.run(self.state.is_full())

    # ---- the end ----

    def close(self) -> None:
        if self._closed:
            return
        for consumer in list(self._consumers):
            consumer.close()
        open_ = self.held.open()
        if open_:
            self.finish(self._give_up(open_))
        self._closed = True
        if self._owns_connection:
            self.connection.close()

    async def _give_up(self, leases: list[Lease]) -> None:
        for lease in leases:
            lease.settled = True
            lease.drop()
        await asyncio.gather(
            *(lease.nack(0, self.puts.check_there) for lease in leases), return_exceptions=True
        )  # where no server leads the queue, they come back when their leases end

    def __reduce__(self) -> tuple[Any, ...]:
        return attach, (self.connection.target, self.name)

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ""
        return f"<NatsQueue {self.name!r} of {self.connection.url}{state}>"


def _handed_out(messages: list[NatsMessage]) -> list[NatsMessage]:
    """The messages, each in hand. They are taken out of the list, which the loop may still have.

    So a message that is dropped is dropped by its holder, who is told in which line.
    """
    found = messages.copy()
    messages.clear()
    for message in found:
        message.in_hand = True
    return found


def _is_current(message: NatsMessage) -> bool:
    """Whether the lease has not ended on the way from the loop to the caller."""
    return message.lease is not None and message.lease.is_good


def _is_old(message: NatsMessage) -> bool:
    return message.lease is not None and message.lease.is_old


class _Handoff:
    """Takes messages to a caller who may be gone when they come; then they are returned."""

    def __init__(self, queue: NatsQueue) -> None:
        self._queue = queue
        self._messages: list[NatsMessage] = []
        self._is_dropped = False

    async def run(self, take: Coroutine[Any, Any, list[NatsMessage]]) -> list[NatsMessage]:
        return self.give(await take)

    def give(self, messages: list[NatsMessage]) -> list[NatsMessage]:
        """The messages, or none if the caller is gone: then they are returned."""
        if self._is_dropped:
            LoopThread.get().start(self._queue.return_all(messages))
            return []
        self._messages = messages
        return messages

    def drop(self) -> None:
        """The caller is gone."""
        self._is_dropped = True
        messages, self._messages = self._messages, []
        if messages:
            LoopThread.get().start(self._queue.return_all(messages))


def _refused(leases: list[Lease | None], begin: Callable[[Lease, Begun[None]], None]) -> list[bool]:
    """Settle all of them; whether each was refused. Raises any other error, once all have ended."""
    flight = Flight()
    numbers = [None if one is None else flight.begin(partial(begin, one)) for one in leases]
    flight.wait()
    problems = flight.take_errors()
    for problem in problems.values():
        if not isinstance(problem, errors.LeaseExpired):
            raise problem
    return [number is None or number in problems for number in numbers]


def attach(target: ClusterTarget, name: str) -> NatsQueue:
    """Attach to an existing queue with a connection of its own. Raises NoSuchQueue."""
    connection = ClusterConnection(target)
    try:
        definitions = Definitions(connection)
        found = connection.run(definitions.get(kv_key("queue", name)))
        if found is None:
            raise errors.NoSuchQueue(
                f"there is no queue {name!r} in {connection.url}: create it first"
            )
        return NatsQueue(connection, definitions, name, found.value, owns_connection=True)
    except BaseException:
        connection.close()
        raise
