"""The leases that this process holds of messages of a cluster: receipts, deadlines, settlement."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import nats.errors

from shmq.errors import ConnectionLost, LeaseExpired, ShmqError
from shmq.extras.nats.client.claim import Claim, Claims
from shmq.extras.nats.client.connection import ApiError, CheckThere, ClusterConnection
from shmq.extras.nats.client.jetstream import FULL, NO_ROOM
from shmq.extras.nats.client.turns import Turn
from shmq.native import _clock as time

#: The part of a lease in which it is no longer relied upon, and the most, in seconds. An
#: acknowledgement takes time to reach the server, which would accept it even when another consumer
#: has the message; and a server that restarts knows the time of a delivery by whole seconds,
#: rounded down (nats-server, store.go, encodeConsumerState).
_MARGIN: Final = 0.1
_MOST_MARGIN: Final = 1.5
#: The part of that for which a message may have waited until its lease is renewed on delivery.
_FRESH: Final = 0.25
#: The part of a lease after which it is renewed before its message is delivered.
_OLD: Final = 0.25
#: How long a message may take to be returned, in seconds; then it comes back with its lease's end.
_RETURN: Final = 2.0
#: The pause before a claim is set again that has not changed, in seconds.
_PAUSE: Final = 0.1
_ACK: Final = "$JS.ACK"
_PREFIX: Final = f"{_ACK}."
_PLAIN_TOKENS: Final = 9
_GROUPED: Final = 64

#: The widths of the numbers in a receipt: queue, consumer, deliveries, sequences, deadline in ms.
_WIDTHS: Final = (32, 8, 16, 48, 48, 48)


class Delivery(NamedTuple):
    """What the subject tells on which a delivery is acknowledged."""

    stream: str
    consumer: str
    deliveries: int
    sequence: int
    number: int
    #: When the message was stored, in seconds since 1970.
    stored_at: float


def parse_reply(reply: str) -> Delivery | None:
    """What the subject tells; None if it is not one of a delivery."""
    tokens = reply.split(".")
    if not reply.startswith(_PREFIX) or len(tokens) < _PLAIN_TOKENS:
        return None
    start = 2 if len(tokens) == _PLAIN_TOKENS else 4  # behind a domain and an account's hash
    stream, consumer, *numbers = tokens[start : start + 6]
    if len(numbers) != 4 or not all(map(str.isdecimal, numbers)):
        return None
    count, sequence, number, stored = map(int, numbers)
    return Delivery(stream, consumer, count, sequence, number, stored / 1e9)


class Lease:
    """One delivery that is to be settled once."""

    def __init__(
        self,
        connection: ClusterConnection,
        claims: Claims,
        delivery: Delivery,
        wait: float,
        until: float,
        reply: str = "",
    ) -> None:
        self.connection = connection
        self._claims = claims
        #: As far as this process knows.
        self._claim = Claim()
        self.delivery = delivery
        d = delivery
        #: The subject on which it is settled.
        self.reply = reply or (
            f"{_ACK}.{d.stream}.{d.consumer}.{d.deliveries}.{d.sequence}.{d.number}.0.0"
        )
        #: How long the server keeps it without a sign of life, in seconds.
        self.wait = wait
        #: The end that the holder asked for, and the end that the server is known to keep to.
        self.until = until
        self.held_until = until
        self.settled = False
        self._keeper: asyncio.Task[None] | None = None
        self._receipt = 0

    @classmethod
    def new(
        cls,
        connection: ClusterConnection,
        claims: Claims,
        delivery: Delivery,
        wait: float,
        reply: str,
        asked_at: float,
    ) -> Lease:
        """The lease of a delivery, counted from its pull: the server counts from a later time."""
        until = asked_at + wait - margin_of(wait)
        return cls(connection, claims, delivery, wait, until, reply)

    def receipt_of(self, queue: int) -> int:
        """The number by which any process settles it; ``queue`` is a number of its queue."""
        if not self._receipt:
            d = self.delivery
            consumer = int(d.consumer[1:]) + (_GROUPED if d.consumer.startswith("g") else 0)
            ends = time.time() + min(self.until, self.held_until) - time.monotonic()
            parts = queue, consumer, d.deliveries, d.sequence, d.number, int(ends * 1000)
            for width, part in zip(_WIDTHS, parts, strict=True):
                self._receipt = self._receipt << width | part & (1 << width) - 1
        return self._receipt

    @property
    def key(self) -> tuple[str, int, int]:
        """What it is known by in this process."""
        return self.delivery.consumer, self.delivery.sequence, self.delivery.number

    @property
    def is_good(self) -> bool:
        """Whether the message is this holder's, as far as its own clock tells."""
        return not self.settled and self.is_current

    @property
    def is_current(self) -> bool:
        """Whether no other holder can have the message, as far as its own clock tells."""
        return time.monotonic() < min(self.until, self.held_until)

    @property
    def is_old(self) -> bool:
        """Whether it must be renewed before its message is delivered."""
        return self.held_until - time.monotonic() < self.wait * (1 - _OLD)

    @property
    def is_new(self) -> bool:
        """Whether no server delivers the message again before the lease ends, without a claim.

        Servers replicate a delivery with the time at which its message was stored, and only keep
        the time of the delivery in the leader's memory (nats-server, consumer.go, deliverMsg). The
        next leader counts the lease from the former; a renewal replicates its own time.
        """
        age = abs(time.time() - self.delivery.stored_at)
        return self.delivery.deliveries == 1 and age <= margin_of(self.wait) * _FRESH

    @property
    def uncounted(self) -> int:
        """How many deliveries were returned uncounted."""
        count = self._claim.uncounted
        return count if 0 <= count < self.delivery.deliveries else 0

    @property
    def error(self) -> dict[str, Any] | None:
        """The error of the message's last failed delivery, as its map."""
        return self._claim.error

    def claim(self, name: str) -> None:
        """Mark it as settled. Raises LeaseExpired if it is over."""
        if not self.is_good:
            raise LeaseExpired(
                f"message {self.delivery.sequence} of queue {name!r} has been delivered again: "
                f"its lease ended, or it was settled; nothing was changed"
            )
        self.settled = True
        if self._keeper is not None:
            self._keeper.cancel()

    async def ack(self, check_there: CheckThere | None = None) -> None:
        """Acknowledge it, until the server has confirmed that; a repeated one changes nothing.

        Raises ConnectionLost, and what ``check_there`` raises if the consumer is deleted.
        """
        await self.connection.request(self.reply, b"+ACK", attempt=2.0, check_there=check_there)

    async def send_ack(self) -> None:
        """Acknowledge it, and wait for nothing."""
        client = await self.connection.client()
        await client.publish(self.reply, b"+ACK")

    async def nack(
        self,
        delay: float,
        check_there: CheckThere | None = None,
        *,
        counted: bool = True,
        error: dict[str, Any] | None = None,
        turn: Turn | None = None,
    ) -> None:
        """Return it after ``delay`` seconds; raises what ``check_there`` raises, as in `ack`.

        The server is told in the ``turn``, if there is one: it redelivers messages in the order in
        which they were returned, and the claims of several may be confirmed in another.
        """
        if counted:
            with contextlib.suppress(ConnectionLost, ApiError, TimeoutError):
                async with asyncio.timeout(_RETURN):
                    await self._change(lambda claim: self._failed(claim, error))
        else:
            await self._change(lambda claim: self._returned(claim, 1))
        if turn is not None:
            await turn.wait()
        has_returned = self._claim[:2] == (self.delivery.number, 0)
        if not has_returned or time.monotonic() >= self.held_until:
            return  # another holder may have it
        more = f" {json.dumps({'delay': int(delay * 1e9)})}" if delay > 0 else ""
        if turn is not None:
            turn.end()  # the next task runs when this one waits for its answer
        # Once: a repeated one could return what another consumer has by then.
        with contextlib.suppress(ConnectionLost):
            await self.connection.request(
                self.reply,
                b"-NAK" + more.encode(),
                within=_RETURN,
                attempt=_RETURN,
                check_there=check_there,
            )

    async def renew(self) -> None:
        """Restart its time, once a quorum has it that the message is this delivery's until then.

        Raises LeaseExpired unless that is confirmed before the lease ends.
        """
        await self._renew(self._claimed)

    async def acquire(self) -> None:
        """`restart` before the message is delivered. Raises LeaseExpired if another has it."""

        def claim(found: Claim) -> Claim:
            if found.until > time.time() * 1000:
                raise self._lose()
            return self._claimed(found)

        await self._renew(claim, self.delivery.deliveries > 1)
        self.until = self.held_until

    async def restart(self) -> None:
        """Restart the lease, as for a message that is delivered. Raises LeaseExpired."""
        await self.renew()
        self.until = self.held_until

    async def _renew(self, change: Callable[[Claim], Claim], loads: bool = False) -> None:
        asked = time.monotonic()
        problem: BaseException | None = None
        try:
            async with asyncio.timeout(max(0.0, self.held_until - asked)):
                if loads:
                    await self.load()
                await self._change_if_room(change)
        except (ConnectionLost, TimeoutError) as error:
            problem = error
        if problem is not None or time.monotonic() >= self.held_until:
            raise LeaseExpired(
                f"the lease of message {self.delivery.sequence} ended before the cluster "
                f"{self.connection.url} confirmed its renewal; it will be delivered again"
            ) from problem
        self.held_until = asked + self.wait - margin_of(self.wait)
        with contextlib.suppress(ConnectionLost, nats.errors.Error, OSError):
            client = await self.connection.client()
            await client.publish(self.reply, b"+WPI")  # or it is delivered again, to no holder

    # ---- the claim ----

    async def load(self) -> None:
        """Learn the claim of the message."""
        self._claim = await self._claims.get(self.delivery.sequence)

    async def _change_if_room(self, change: Callable[[Claim], Claim]) -> None:
        """`_change`; on servers without room their leader's word counts: so they can be emptied."""
        try:
            await self._change(change)
        except ApiError as error:
            if error.number not in NO_ROOM | {FULL}:
                raise
            await self.connection.request(self.reply, b"+WPI", attempt=_RETURN)

    async def _change(self, change: Callable[[Claim], Claim]) -> None:
        """Replace the claim of the message by what ``change`` makes of it, which may raise."""
        while True:
            made = change(self._claim)
            revision = await self._claims.put(self.delivery.sequence, made, self.wait)
            if revision is not None:
                self._claim = made._replace(revision=revision)
                return
            await self.load()
            if self._claim[:4] == made[:4]:
                return  # an attempt without an answer has set it
            if self._claim.revision == made.revision:
                await asyncio.sleep(_PAUSE)  # one is under way, which has no quorum yet

    def _claimed(self, found: Claim) -> Claim:
        if self._is_taken(found):
            raise self._lose()
        until = time.time() + self.wait - margin_of(self.wait)
        return found._replace(delivery=self.delivery.number, until=int(until * 1000))

    def _returned(self, found: Claim, uncounted: int = 0) -> Claim:
        if uncounted:
            found = found._replace(uncounted=found.uncounted + uncounted)
        if self._is_taken(found) or time.monotonic() >= self.held_until:
            return found
        return found._replace(delivery=self.delivery.number, until=0)

    def _failed(self, found: Claim, error: dict[str, Any] | None) -> Claim:
        made = self._returned(found)
        return made if error is None or made is found else made._replace(error=error)

    def _is_taken(self, found: Claim) -> bool:
        """Whether another delivery has the message, or may have it as a new one, unclaimed."""
        d = self.delivery
        if not found.delivery and d.deliveries > 1:
            return time.time() < d.stored_at + self.wait - margin_of(self.wait) / 2
        return found.until > time.time() * 1000 and found.delivery != d.number

    def _lose(self) -> LeaseExpired:
        self.settled, self.held_until = True, 0.0
        return LeaseExpired(f"another holder has message {self.delivery.sequence}")

    async def extend(self, seconds: float) -> None:
        """Set its end to ``seconds`` from now; the loop renews it until then, and ends it."""
        if self._keeper is not None:
            self._keeper.cancel()
        self.until = time.monotonic() + seconds
        if self.until > self.held_until:
            await self.renew()
        self._keeper = asyncio.get_running_loop().create_task(self._keep())

    async def _keep(self) -> None:
        while not self.settled:
            left = self.until - time.monotonic()
            if left <= 0:
                self.settled = True
                with contextlib.suppress(ShmqError):  # the lease ends
                    await self.nack(0)
                return
            await asyncio.sleep(min(left, max(0.001, self.wait / 3)))
            while not self.settled and self.until > self.held_until:
                try:
                    await self.renew()
                    break
                except ShmqError:
                    if time.monotonic() >= self.held_until:
                        return  # the lease has ended
                    await asyncio.sleep(_PAUSE)

    def drop(self) -> None:
        """Renew it no more."""
        if self._keeper is not None:
            self._keeper.cancel()


def margin_of(wait: float) -> float:
    """How long before its end a lease of so many seconds is not relied upon."""
    return min(wait * _MARGIN, _MOST_MARGIN)


def lease_of(
    connection: ClusterConnection,
    claims: Claims,
    stream: str,
    queue: int,
    receipt: int,
    wait: float,
) -> Lease | None:
    """The lease of a receipt that another process may hold; None if the queue gave none such."""
    parts: list[int] = []
    rest = receipt
    for width in reversed(_WIDTHS):
        parts.insert(0, rest & (1 << width) - 1)
        rest >>= width
    whose, consumer, count, sequence, number, ends = parts
    if rest or whose != queue & 0xFFFFFFFF or not (count and sequence and number):
        return None
    name = f"g{consumer - _GROUPED}" if consumer >= _GROUPED else f"p{consumer}"
    until = time.monotonic() + ends / 1000 - time.time()
    delivery = Delivery(stream, name, count, sequence, number, 0.0)
    return Lease(connection, claims, delivery, wait, until)
