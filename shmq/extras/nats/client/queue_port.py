"""The port of a queue of a cluster."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, Literal, NoReturn, TypeVar

from shmq import api, errors
from shmq.client.ports.queue import Item, QueuePort, Settlement
from shmq.client.ports.steps import Step, Steps, blocking
from shmq.extras.nats.client.batch_window import NatsFlight
from shmq.extras.nats.client.claim import Claims
from shmq.extras.nats.client.connection import ClusterConnection
from shmq.extras.nats.client.consumer import NatsConsumer
from shmq.extras.nats.client.definitions import Definitions
from shmq.extras.nats.client.flight import Flight
from shmq.extras.nats.client.inbox import Arrival, Inbox
from shmq.extras.nats.client.lease import Lease
from shmq.extras.nats.client.loop_thread import Begun, LoopThread
from shmq.extras.nats.client.message import NatsMessage
from shmq.extras.nats.client.pull import Pulls
from shmq.extras.nats.client.put import Puts
from shmq.extras.nats.client.queue_layout import QueueLayout, check_synced, options_of
from shmq.extras.nats.client.queue_state import QueueState
from shmq.extras.nats.client.redrive import move_to, redrive
from shmq.extras.nats.client.settlement import Leases, Settlements
from shmq.extras.nats.client.turns import Turns
from shmq.model.codec.codecs import unpack_properties
from shmq.model.expression.parse import Where
from shmq.native import _clock as time
from shmq.native import _core

_T = TypeVar("_T")


class NatsQueuePort(QueuePort):
    """Implements `QueuePort`: its coroutines run in the process's loop."""

    #: The handle, which its messages keep: its broker closes it, and returns them.
    handle: Any = None

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
        self.name, self.options = self.layout.name, self.layout.options
        self.puts = Puts(self.layout, definitions)
        self._identity = int(definition["identity"])
        self.claims = Claims(definitions, name)
        self.held = Leases(connection, self.claims, self.layout, self._identity)
        self.settlements = Settlements(self, self.puts, definitions, self.claims)
        self.pulls = Pulls(self.layout, self.settlements.give_back)
        self.state = QueueState(self, self.layout, self.pulls)
        self.definitions = definitions
        self._owns_connection = owns_connection
        self.url, self.key = connection.url, self.puts.key
        self.closed = False

    # ---- the loop ----

    def begin(self, begin: Callable[[Begun[_T]], None]) -> _T:
        """Begin something in the process's loop, and wait for its end."""
        self.check_open()
        return self.connection.begin(begin)

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run it in the process's loop, and wait for it."""
        if self.closed:
            coroutine.close()
            self.check_open()
        return self.connection.run(coroutine)

    async def arun(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """``run`` for a task of any loop."""
        if self.closed:
            coroutine.close()
            self.check_open()
        return await self.connection.arun(coroutine)

    def finish(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """``run`` for what ends a handle: a lost cluster is not an error then."""
        if self.connection.closed:
            coroutine.close()
            return
        with contextlib.suppress(errors.ConnectionLost, errors.QueueDeleted):
            self.connection.run(coroutine)

    def step(self, make: Callable[[], Coroutine[Any, Any, Any]]) -> Step:
        """The step that runs a coroutine in the process's loop."""
        return (lambda: self.run(make()), lambda: self.arun(make()))

    def refuse(self, what: str, why: str) -> NoReturn:
        """Raise Unsupported."""
        self.check_open()
        raise errors.Unsupported(f"queue {self.name!r}: {what} is not possible on a cluster: {why}")

    # ---- puts ----

    def check_durable(self) -> None:
        check_synced(self.connection, f"queue {self.name!r}")

    def check_bytes(self, size: int, meta: bytes | None) -> None:
        self.puts.check_bytes(size, meta)

    def put(
        self, item: Item, waits: bool, timeout: float | None, known: bool, durable: bool
    ) -> Steps[api.Put]:
        del known, durable  # the item says the one, and the cluster's servers do the other
        packed, until = self.puts.pack(*item), _compute_deadline(timeout)
        put: api.Put = yield (
            lambda: self.begin(partial(self.puts.begin, packed, waits, until)),
            lambda: self.arun(self.puts.put(packed, waits, until)),
        )
        return put

    def put_many(self, items: list[Item], waits: bool, timeout: float | None, durable: bool) -> int:
        del durable
        packed = [self.puts.pack(*item) for item in items]
        return self.run(self.puts.put_many(packed, waits, _compute_deadline(timeout)))

    def check_room(self) -> None:
        if self.run(self.state.is_full()):
            raise self.puts.full()

    def flight(self, window: int) -> NatsFlight:
        return NatsFlight(self, window)

    # ---- gets ----

    def check_where(self, where: str) -> None:
        del where
        self.refuse("where=", "its servers choose by subject, not by expressions")

    def take(self, limit: int, timeout: float | None, where: str | None) -> Steps[list[Any]]:
        del where
        handoff, until, waits = Handoff(self), _compute_deadline(timeout), timeout != 0
        try:
            while True:
                took: list[NatsMessage] = yield (
                    lambda: self.begin(partial(self._begin_take, handoff, limit, until, waits)),
                    lambda: self.arun(handoff.run(self.take_messages(limit, until, waits=waits))),
                )
                if all(message.is_leased for message in took):
                    return took
                current: list[NatsMessage] = yield self.step(
                    partial(self.settlements.current, took)
                )
                if current:
                    return current
        except BaseException:
            handoff.drop()
            raise

    async def take_messages(
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
            try:
                messages = await self.settlements.sift(came)
            except BaseException:  # the caller is gone, or the cluster: nobody gets them
                await self.settlements.give_back(came)
                raise
            self._hold(messages)
            if messages:
                return messages

    def _hold(self, messages: list[NatsMessage]) -> None:
        for message in messages:
            if message.lease is not None:
                self.held.add(message.lease)

    def _begin_take(
        self,
        handoff: Handoff,
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
                take = self.take_messages(most, until, waits=waits, started=started)
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

    def prefetch(
        self, handle: Any, limit: int, timeout: float | None, where: str | None
    ) -> NatsConsumer:
        del handle, where  # this port refers to the handle
        return NatsConsumer(self, limit, timeout)

    def current(self, messages: list[NatsMessage]) -> list[NatsMessage]:
        return self.run(self.settlements.current(messages))

    def is_old(self, message: NatsMessage) -> bool:
        return message.lease is not None and message.lease.is_old

    # ---- settlements ----

    def settle(
        self, kind: Settlement, receipts: list[int], ms: int | None, error: bytes | None = None
    ) -> list[int]:
        def begin(lease: Lease, call: Begun[None]) -> None:
            if kind == "ack":
                self.settlements.begin_ack(lease, call)
            else:
                call.go_on(self._settle(kind, lease, ms, None, error, turns))

        self.check_open()
        flight, turns = Flight(), Turns()
        leases = [self.held.of(receipt) for receipt in receipts]
        numbers = [None if one is None else flight.begin(partial(begin, one)) for one in leases]
        flight.wait()
        problems = flight.take_errors()
        for problem in problems.values():
            if not isinstance(problem, errors.LeaseExpired):
                raise problem
        pairs = zip(receipts, numbers, strict=True)
        return [receipt for receipt, number in pairs if number is None or number in problems]

    async def _settle(
        self,
        kind: Settlement,
        lease: Lease,
        ms: int | None,
        message: NatsMessage | None,
        error: bytes | None,
        turns: Turns,
    ) -> None:
        seconds = None if ms is None else ms / 1000
        kept = b"" if error is None else _core.fit_error(error, self.options.error_bytes)
        failed = unpack_properties(kept) if kept else None
        with turns.enter() as turn:
            if kind == "reject":
                await self.settlements.reject(lease, message, failed)
            elif kind == "extend":
                await self.settlements.extend(lease, seconds or 0.0, turn)
            else:
                await self.settlements.nack(lease, seconds, kind == "nack", message, failed, turn)

    def have_acked(self, messages: list[Any], refused: set[int]) -> None:
        for message in messages:
            if isinstance(message, NatsMessage) and message.receipt not in refused:
                message.was_settled("ack")

    def ack_lease(self, lease: Lease, consumer: NatsConsumer | None) -> None:
        """Acknowledge a delivery; a consumer's is not waited for."""
        if consumer is not None and not consumer.ended:
            consumer.ack(lease)
        elif self.connection.target.wait_for_acks:
            self.begin(partial(self.settlements.begin_ack, lease))
        else:
            lease.claim(self.name)
            self.run(lease.send_ack())

    def settle_lease(
        self,
        kind: Settlement,
        lease: Lease,
        ms: int | None,
        message: NatsMessage,
        error: bytes | None = None,
    ) -> None:
        """Settle a delivery. Raises LeaseExpired."""
        self.run(self._settle(kind, lease, ms, message, error, Turns()))

    def keep_lease(self, message: NatsMessage) -> Steps[None]:
        """Extend its lease until it is settled, or return it. Raises LeaseExpired."""
        assert message.lease is not None
        try:
            yield self.step(partial(self.settlements.extend, message.lease, math.inf))
        except BaseException:
            LoopThread.get().start(self.return_all([message]))
            raise

    # ---- what the queue has ----

    def peek(self, limit: int, where: Where | None) -> list[api.Message]:
        # What was delivered and came back may be missing.
        return self.run(self.state.peek(limit, where))

    def purge(self) -> int:
        return self.run(self.state.purge())

    def redrive(self, limit: int | None, where: Where | None) -> int:
        return self.run(redrive(self, limit, where))

    def move_to(self, target: str, limit: int | None, where: Where | None) -> Steps[int]:
        moved: int = yield blocking(lambda: self.run(move_to(self, target, limit, where)))
        return moved

    def describe(self, what: Literal["identity", "stats", "attachments"]) -> Any:
        if what == "attachments":
            self.refuse("attachments()", "its servers do not know processes")
        if what == "stats":  # totals other than of puts and removals are 0
            return self.run(self.state.stats())
        self.run(self.puts.check_there())
        return self._identity

    def leases(self, limit: int, after: int) -> list[api.Lease]:
        del limit, after
        self.refuse("leases()", "its servers do not tell who holds what")

    # ---- the end ----

    def close(self) -> None:
        if self.closed:
            return
        open_ = self.held.open()
        if open_:
            self.finish(self._give_up(open_))
        self.closed = True
        if self._owns_connection:
            self.connection.close()

    async def _give_up(self, leases: list[Lease]) -> None:
        turns = Turns()

        async def give_up(lease: Lease) -> None:
            with turns.enter() as turn:
                await lease.nack(0, self.puts.check_there, turn=turn)

        for lease in leases:
            lease.settled = True
            lease.drop()
        await asyncio.gather(
            *map(give_up, leases), return_exceptions=True
        )  # where no server leads the queue, they come back when their leases end


def _compute_deadline(timeout: float | None) -> float | None:
    return None if timeout is None else time.monotonic() + timeout


class Handoff:
    """Takes messages to a caller who may be gone when they come; then they are returned."""

    def __init__(self, port: NatsQueuePort) -> None:
        self._port = port
        self._messages: list[NatsMessage] = []
        self._is_dropped = False

    async def run(self, take: Coroutine[Any, Any, list[NatsMessage]]) -> list[NatsMessage]:
        """`give` what it takes."""
        return self.give(await take)

    def give(self, messages: list[NatsMessage]) -> list[NatsMessage]:
        """The messages, or none if the caller is gone: then they are returned."""
        if self._is_dropped:
            LoopThread.get().start(self._port.return_all(messages))
            return []
        self._messages = messages
        return messages

    def drop(self) -> None:
        """The caller is gone."""
        self._is_dropped = True
        messages, self._messages = self._messages, []
        if messages:
            LoopThread.get().start(self._port.return_all(messages))
