"""Iterating over a queue of a cluster: messages are prefetched, acknowledgements not waited for."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from functools import partial
from typing import Any, Final

from shmq.client.handles.consumer import Consumer
from shmq.client.ports.steps import Steps
from shmq.errors import ConnectionLost, LeaseExpired, ShmqError
from shmq.extras.nats.client.flight import Flight
from shmq.extras.nats.client.lease import Lease
from shmq.extras.nats.client.message import NatsMessage
from shmq.native import _clock as time

#: The most acknowledgements on their way; one more waits for half of them.
_MOST_ACKS: Final = 256


class NatsConsumer(Consumer):
    """Implements the messages ahead: its coroutines run in the loop."""

    def __init__(self, queue: Any, prefetch: int, timeout: float | None) -> None:
        self.queue = queue
        self.name = queue.name
        self._prefetch = prefetch
        self._timeout = timeout
        self.ahead: collections.deque[NatsMessage] = collections.deque()
        self._acks = Flight()
        self.ended = False
        self._taking: asyncio.Future[list[NatsMessage]] | None = None

    def quickly(self) -> NatsMessage | None:
        # For any thread.
        try:
            message = self.ahead.popleft()
        except IndexError:
            return None
        lease = message.lease
        if self.ended or lease is None or not lease.is_good or lease.is_old:
            self.ahead.appendleft(message)
            return None
        message.consumer = self
        message.in_hand = True
        return message

    def find_next(self) -> Steps[NatsMessage | None]:
        messages: list[NatsMessage] = yield self.queue.step(self._fetch_next)
        message = messages.pop() if messages else None
        if message is not None:
            message.in_hand = True
        return message

    async def _fetch_next(self) -> list[NatsMessage]:
        """The next message; none if none came in time.

        It is taken out of the list: the loop may still have the list afterwards.
        """
        until = None if self._timeout is None else time.monotonic() + self._timeout
        while not self.ended:
            if not self.ahead:
                came = await self._take(until)
                if not came:
                    return []
                self.ahead.extend(came)
                came.clear()
            message = self.ahead.popleft()
            lease = message.lease
            if lease is not None and lease.is_good and lease.is_old:
                with contextlib.suppress(LeaseExpired):
                    await lease.restart()
            if lease is None or not await self.queue.settlements.current([message]):
                continue  # it is back in the queue
            message.consumer = self
            return [message]
        return []

    async def _take(self, until: float | None) -> list[NatsMessage]:
        """The next messages; none if it is closed in the meantime."""
        taking: asyncio.Future[list[NatsMessage]] = asyncio.ensure_future(
            self.queue.take_messages(self._prefetch, until, waits=self._timeout != 0)
        )
        self._taking = taking
        try:
            return await taking
        except asyncio.CancelledError:
            if not self.ended:
                taking.cancel()
                raise
            return []
        finally:
            self._taking = None  # it would keep the messages

    def ack(self, lease: Lease) -> None:
        """Acknowledge without waiting for the answer, unless many are on their way."""
        self.queue.check_open()
        lease.claim(self.queue.name)
        self._acks.begin(partial(self.queue.settlements.begin_acked, lease))
        if self._acks.open >= _MOST_ACKS:
            self._acks.wait(_MOST_ACKS // 2)

    @property
    def leased_ahead(self) -> int:  # type: ignore[override]
        """How many messages were not delivered."""
        return len(self.ahead)

    def confirm_acks(self) -> Steps[None]:
        yield self.queue.step(self._drain)

    async def _drain(self) -> None:
        """Return once all acknowledgements are confirmed. Raises ConnectionLost."""
        await self._acks.drain()
        refused = self._acks.take_errors()
        if refused:
            raise ConnectionLost(
                f"queue {self.queue.name!r}: {len(refused)} acknowledgements were not confirmed: "
                f"their messages may be delivered again"
            )

    def end(self) -> Steps[None]:
        yield (lambda: self.queue.finish(self._close()), lambda: self.queue.arun(self._close()))

    async def _close(self) -> None:
        if self.ended:
            return
        self.ended = True
        if self._taking is not None:
            self._taking.cancel()
        rest, self.ahead = list(self.ahead), collections.deque()
        with contextlib.suppress(ShmqError):
            await self.queue.return_all(rest)
        with contextlib.suppress(ConnectionLost):
            await self._drain()
