"""Settling the messages of a queue of a cluster: acknowledged, returned, made dead letters."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import os
import random
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from nats.aio.msg import Msg

from shmq.api.options import QueueOptions
from shmq.errors import AlreadyExists, Full, LeaseExpired, QueueDeleted, ServerError, ShmqError
from shmq.extras.nats.client import names
from shmq.extras.nats.client.claim import Claims
from shmq.extras.nats.client.client import is_unheard
from shmq.extras.nats.client.connection import ApiError, ClusterConnection
from shmq.extras.nats.client.definitions import Definitions
from shmq.extras.nats.client.inbox import Arrival
from shmq.extras.nats.client.jetstream import NO_MESSAGE, delete_stream
from shmq.extras.nats.client.lease import Lease, lease_of, parse_reply
from shmq.extras.nats.client.loop_thread import Begun
from shmq.extras.nats.client.message import NatsMessage, packed, priority_of, ttl_of, unpacked
from shmq.extras.nats.client.put import Item, Puts
from shmq.extras.nats.client.queue_layout import QueueLayout, new_definition, options_of
from shmq.extras.nats.client.turns import Turn, Turns
from shmq.native import _clock as time

log = logging.getLogger("shmq")

#: How long a message rests whose dead-letter queue is full, in seconds.
_REST: Final = 1.0
_FEW: Final = 1024


class Leases:
    """The leases of this process by what a receipt tells of them, over all handles of a cluster."""

    _of_process: ClassVar[dict[tuple[str, str, str, int, int], Lease]] = {}
    _most = _FEW

    def __init__(
        self, connection: ClusterConnection, claims: Claims, layout: QueueLayout, identity: int
    ) -> None:
        self._connection = connection
        self._claims = claims
        self._identity = identity
        self._where = f"{connection.url} {identity}"
        self._stream = layout.stream
        self._wait = layout.options.visibility_timeout
        #: In the order of their delivery, in which they are given back.
        self._mine: dict[Lease, None] = {}
        self._most_mine = _FEW
        self._process = os.getpid()

    def _make_key(self, lease: Lease) -> tuple[str, str, str, int, int]:
        return (self._where, self._stream, *lease.key)

    def add(self, lease: Lease) -> None:
        """Remember a delivery to this handle."""
        self._forget_after_fork()
        if len(self._mine) >= self._most_mine:
            self._mine = {one: None for one in self._mine if one.is_good}
            self._most_mine = max(_FEW, 2 * len(self._mine))
        self._mine[lease] = None

    def receipt_of(self, lease: Lease) -> int:
        """The receipt of a lease; from now on it is known by it."""
        known = Leases._of_process
        if len(known) >= Leases._most:
            for key in [key for key, one in list(known.items()) if not one.is_good]:
                known.pop(key, None)
            Leases._most = max(_FEW, 2 * len(known))
        known[self._make_key(lease)] = lease
        return lease.receipt_of(self._identity)

    def of(self, receipt: int) -> Lease | None:
        """The lease of a receipt, of this process or another; None if no such receipt exists."""
        if receipt <= 0:
            return None
        found = lease_of(
            self._connection, self._claims, self._stream, self._identity, receipt, self._wait
        )
        return None if found is None else Leases._of_process.get(self._make_key(found), found)

    def is_own(self, lease: Lease) -> bool:
        """Whether this process was given the message."""
        return lease in self._mine or Leases._of_process.get(self._make_key(lease)) is lease

    def open(self) -> list[Lease]:
        """Those of this handle that are not settled, in the order of their delivery."""
        self._forget_after_fork()
        mine, self._mine = self._mine, {}
        return [one for one in mine if one.is_good]

    def _forget_after_fork(self) -> None:
        """The child of a fork returns nothing that its parent holds."""
        if self._process != os.getpid():
            self._mine, self._process = {}, os.getpid()


class Settlements:
    """The settlements of one queue. Its methods run in the process's loop."""

    def __init__(self, queue: Any, puts: Puts, definitions: Definitions, claims: Claims) -> None:
        self._queue = queue
        self._puts = puts
        self._claims = claims
        self._definitions = definitions
        self._layout = puts.layout
        self._connection = puts.connection
        self._options = puts.options
        #: Dead letters are copied one at a time, in the order in which their leases are settled.
        self._copies = asyncio.Lock()

    # ---- what was delivered ----

    def lease_of(self, arrival: Arrival) -> Lease | None:
        """The lease of a delivery; None if it is not one."""
        reply = arrival.message.reply
        delivery = parse_reply(reply)
        if delivery is None:
            return None
        wait = self._options.visibility_timeout
        return Lease.new(self._connection, self._claims, delivery, wait, reply, arrival.asked_at)

    def message_of(self, arrival: Arrival) -> NatsMessage | None:
        """The message of a delivery, with its lease."""
        lease = self.lease_of(arrival)
        if lease is None:
            return None
        came = arrival.message
        properties = unpacked(came.headers)
        priority = priority_of(properties, self._options)
        sequence = lease.delivery.sequence
        return NatsMessage(self._queue, came.data, properties, sequence, priority, lease)

    def fresh(self, came: Sequence[Arrival]) -> list[NatsMessage] | None:
        """The messages, if each is delivered for the first time, soon, and has not ended."""
        found = [self.message_of(one) for one in came]
        fresh = [one for one in found if one is not None and self._is_fresh(one)]
        return fresh if len(fresh) == len(came) else None

    def _is_fresh(self, message: NatsMessage) -> bool:
        lease = message.lease
        is_new = lease is not None and lease.is_new and not lease.is_old
        return is_new and self._end_of(message) is None

    async def sift(self, came: Iterable[Arrival]) -> list[NatsMessage]:
        """The messages to deliver: those that have ended become dead letters.

        They are acquired first where another holder may have them, or get them too early.
        """
        messages = [one for one in map(self.message_of, came) if one is not None]
        await asyncio.gather(*(self.acquire(one.lease) for one in messages if one.lease))
        kept = []
        for message in messages:
            assert message.lease is not None
            message.recount(message.lease.uncounted)
            reason = self._end_of(message) if message.lease.is_good else None
            if reason is None:
                kept.append(message)
                continue
            message.lease.settled = True
            await self._dead_letter(message.lease, reason, message, message.delivery_count - 1)
        if len(kept) < len(messages):  # which has taken time
            await asyncio.gather(
                *(self._renew(one.lease) for one in kept if one.lease and one.lease.is_old)
            )
        return await self.current(kept)

    async def acquire(self, lease: Lease) -> None:
        """Have a quorum confirm the lease of a message that is not new; else it has ended."""
        if not lease.is_new or lease.is_old:
            with contextlib.suppress(LeaseExpired):
                await lease.acquire()

    async def _renew(self, lease: Lease) -> None:
        """Renew a lease before its message is delivered, unless it has ended."""
        with contextlib.suppress(LeaseExpired):
            await lease.restart()

    async def current(self, messages: Sequence[NatsMessage]) -> list[NatsMessage]:
        """Those whose leases have not ended; of the others the delivery is not counted."""
        ended = [one.lease for one in messages if one.lease is not None and not one.lease.is_good]
        if not ended:
            return list(messages)
        notes = asyncio.gather(*map(self.return_uncounted, ended))
        kept = [one for one in messages if one.lease not in ended]
        if not kept:  # otherwise their leases run
            await notes
        else:
            notes.add_done_callback(self._log_notes)
        return kept

    def _log_notes(self, notes: asyncio.Future[Any]) -> None:
        if not notes.cancelled() and (error := notes.exception()) is not None:
            log.debug("queue %s: a delivery is counted: %s", self._layout.name, error)

    def _end_of(self, message: NatsMessage) -> str | None:
        """Why it is delivered no more; None: it is."""
        assert message.lease is not None
        limit = self._options.max_deliveries
        if limit is not None and message.delivery_count > limit:
            return "max_deliveries"
        ttl = ttl_of(message.properties, self._options)
        # A delayed message is stored again when it is due; its ttl counts from the put.
        put_at = message.lease.delivery.stored_at - message.all_properties.get("delay", 0) / 1000
        if ttl is not None and time.time() >= put_at + ttl:
            return "expired"
        return None

    # ---- settling ----

    async def acked(self, lease: Lease) -> None:
        """Have the server confirm the acknowledgement. Raises QueueDeleted, ConnectionLost."""
        await lease.ack(self._puts.check_there)

    def begin_acked(self, lease: Lease, ack: Begun[None]) -> None:
        """Begin `acked`: without a task, unless the first answer does not confirm it."""
        client = self._connection.connected

        def on_answer(answer: Msg | None) -> None:
            if answer is None or is_unheard(answer):
                ack.go_on(self.acked(lease))
            else:
                ack.end(None)

        if client is None:
            on_answer(None)
        else:
            client.ask(lease.reply, b"+ACK", None, partial(ack.then, on_answer), ack.is_alone)

    async def _return_message(
        self,
        lease: Lease,
        delay: float,
        error: dict[str, Any] | None = None,
        turn: Turn | None = None,
    ) -> None:
        """Return it; without a leader it comes back when its lease ends. Raises QueueDeleted."""
        await lease.nack(delay, self._puts.check_there, error=error, turn=turn)

    async def ack(self, lease: Lease) -> None:
        """Acknowledge it. Raises LeaseExpired."""
        await self._check_foreign(lease)
        lease.claim(self._layout.name)
        await self.acked(lease)

    def begin_ack(self, lease: Lease, ack: Begun[None]) -> None:
        """Begin `ack`: without a task, if this process was given the message."""
        if self._queue.held.is_own(lease):
            lease.claim(self._layout.name)
            self.begin_acked(lease, ack)
        else:
            ack.go_on(self.ack(lease))

    async def _check_foreign(self, lease: Lease) -> None:
        """Raise LeaseExpired if another process's message is gone."""
        if lease.is_good and not self._queue.held.is_own(lease):
            await self._fetch_raw(lease)
            await lease.load()

    async def _fetch_raw(self, lease: Lease) -> dict[str, Any]:
        asked = {"seq": lease.delivery.sequence}
        try:
            found = await self._connection.api(f"STREAM.MSG.GET.{self._layout.stream}", asked)
        except ApiError as error:
            if error.number == NO_MESSAGE:
                lease.settled = True
                lease.claim(self._layout.name)
            raise
        message: dict[str, Any] = found["message"]
        return message

    async def nack(
        self,
        lease: Lease,
        delay: float | None,
        counted: bool,
        message: NatsMessage | None,
        error: dict[str, Any] | None,
        turn: Turn,
    ) -> None:
        """Return it in its turn, or make it a dead letter if its deliveries are used up."""
        await self._check_foreign(lease)
        lease.claim(self._layout.name)
        count = lease.delivery.deliveries - lease.uncounted
        if not counted:
            await self.return_uncounted(lease, delay or 0.0, turn)
            return
        limit = self._options.max_deliveries
        if limit is not None and count >= limit:
            turn.end()
            await self._dead_letter(lease, "max_deliveries", message, count, error)
            return
        wait = self._compute_backoff(count) if delay is None else delay
        await self._return_message(lease, wait, error, turn)

    def _compute_backoff(self, count: int) -> float:
        o = self._options
        whole = min(o.retry_delay_max, o.retry_delay * 2.0 ** min(count - 1, 60))
        return whole * random.uniform(0.5, 1.0)

    async def return_uncounted(
        self, lease: Lease, delay: float = 0.0, turn: Turn | None = None
    ) -> None:
        """Return it as if it had not been delivered, unless another holder may have it."""
        lease.settled = True
        lease.drop()
        await lease.nack(delay, self._puts.check_there, counted=False, turn=turn)

    async def give_back(self, arrivals: Iterable[Arrival], turns: Turns | None = None) -> None:
        """Return deliveries that no caller waits for any more, in their order.

        ``turns`` has those that are being returned before them.
        """
        turns = turns or Turns()

        async def give_back(lease: Lease) -> None:
            with turns.enter() as turn:
                try:
                    await self.return_uncounted(lease, turn=turn)
                except ShmqError as error:
                    log.debug("queue %s: a message comes back late: %s", self._layout.name, error)

        leases = map(self.lease_of, arrivals)
        await asyncio.gather(*(give_back(lease) for lease in leases if lease is not None))

    async def reject(
        self, lease: Lease, message: NatsMessage | None, error: dict[str, Any] | None
    ) -> None:
        """Make it a dead letter."""
        await self._check_foreign(lease)
        lease.claim(self._layout.name)
        count = lease.delivery.deliveries - lease.uncounted
        await self._dead_letter(lease, "rejected", message, count, error)

    async def extend(self, lease: Lease, seconds: float, turn: Turn | None = None) -> None:
        """Set the end of its lease; one of 0 returns it in its turn."""
        await self._check_foreign(lease)
        if not lease.is_good:
            lease.claim(self._layout.name)
        if seconds <= 0:
            lease.claim(self._layout.name)
            await self._return_message(lease, 0, turn=turn)
            return
        await lease.extend(seconds)

    # ---- dead letters ----

    async def _dead_letter(
        self,
        lease: Lease,
        reason: str,
        message: NatsMessage | None,
        count: int,
        error: dict[str, Any] | None = None,
    ) -> None:
        """Copy it to the dead-letter queue, once, and acknowledge it."""
        drops = reason == "expired" and self._options.on_expired == "drop"
        target = self._options.dead_letter
        try:
            async with self._copies:
                if message is None:
                    message = await self._fetch_message(lease)
                if target is not None and not drops and "dead" not in message.properties:
                    await self._copy(message, target, reason, count, error or lease.error)
        except Full as full:
            log.warning("queue %s: dead letters wait, %s", self._layout.name, full)
            await self._return_message(lease, _REST)
            return
        await self.acked(lease)

    async def _fetch_message(self, lease: Lease) -> NatsMessage:
        """The message of a receipt that another process was given."""
        raw = await self._fetch_raw(lease)
        headers: dict[str, str] = {}
        for line in base64.b64decode(raw.get("hdrs") or "").decode(errors="replace").split("\r\n"):
            key, colon, value = line.partition(":")
            if colon:
                headers[key] = value.strip()
        properties = unpacked(headers)
        data = base64.b64decode(raw.get("data") or "")
        priority = priority_of(properties, self._options)
        return NatsMessage(self._queue, data, properties, int(raw["seq"]), priority, lease)

    async def _copy(
        self,
        message: NatsMessage,
        target: str,
        reason: str,
        count: int,
        error: dict[str, Any] | None,
    ) -> None:
        layout = await self._dead_letter_layout(target)
        properties = dict(message.all_properties)
        ttl = self._options.dead_letter_ttl
        properties["dead"] = {
            "reason": reason,
            "queue": self._layout.name,
            "deliveries": count,
            "at": int(time.time() * 1000),
            **({} if ttl is None else {"ttl": int(ttl * 1000)}),
            **({} if error is None else {"error": error}),
        }
        headers = packed(properties)
        headers["Nats-Msg-Id"] = f"dead:{self._layout.stream}:{message.sequence}"
        if ttl is not None:
            headers["Nats-TTL"] = f"{max(1, int(ttl + 0.999))}s"
        priority = min(message.priority, layout.options.priorities - 1)
        item = Item(message.raw, headers, layout.subject(priority, None), True, False, False)
        await Puts(layout, self._definitions).put(item, False, None)

    async def _dead_letter_layout(self, name: str) -> QueueLayout:
        """The dead-letter queue, recreated if it was deleted."""
        return await _ensure_queue_layout(
            self._connection, self._definitions, name, self._options.for_dead_letters()
        )


async def _ensure_dead_letters(
    connection: ClusterConnection,
    definitions: Definitions,
    name: str,
    options: QueueOptions,
    alone: bool,
) -> None:
    """Make the dead-letter queue of the queue ``name``. Raises InvalidOption."""
    target = options.dead_letter
    if target is None:
        return
    made = options.for_dead_letters()
    found = (await _ensure_queue_layout(connection, definitions, target, made, alone)).options
    options.check_dead_letters(name, found)


async def ensure_queue(
    connection: ClusterConnection,
    definitions: Definitions,
    name: str,
    options: QueueOptions,
    alone: bool = False,
) -> Mapping[str, Any]:
    """The definition of the queue, which is made with its dead-letter queue if there is none.

    The definition that counts is the first one. Raises InvalidOption, QueueDeleted, and
    AlreadyExists if it is to be made ``alone`` and a stream has the name.
    """
    key = names.kv_key("queue", name)
    found = await definitions.get(key)
    if found is None:
        if alone:
            await definitions.check_alone("queue", name)
        await _ensure_dead_letters(connection, definitions, name, options, alone)
        layout = QueueLayout(connection, name, options)
        await layout.make()
        made = new_definition(options)
        revision = await definitions.put(key, made, 0)
        if revision is not None:
            try:
                if alone:
                    await definitions.check_alone("queue", name, revision)
            except AlreadyExists:
                await definitions.remove(key)
                await delete_stream(connection, layout.stream)
                raise
            return made
        found = await definitions.get(key)
    if found is None:
        raise QueueDeleted(f"queue {name!r} was deleted while it was made")
    return found.value


async def _ensure_queue_layout(
    connection: ClusterConnection,
    definitions: Definitions,
    name: str,
    options: QueueOptions,
    alone: bool = False,
) -> QueueLayout:
    """The queue of that name; it is made with these options if there is none."""
    definition = await ensure_queue(connection, definitions, name, options, alone)
    try:
        return QueueLayout(connection, name, options_of(definition))
    except (KeyError, TypeError) as error:
        raise ServerError(
            f"the definition of queue {name!r} of {connection.url} cannot be read: {error}"
        ) from error
