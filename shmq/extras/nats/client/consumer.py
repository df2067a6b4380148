"""Iterating over a queue of a cluster: messages are prefetched, acknowledgements not waited for."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from shmq import api
from shmq.errors import ConnectionLost, LeaseExpired, ShmqError
from shmq.extras.nats.client.flight import Flight
from shmq.extras.nats.client.lease import Lease
from shmq.extras.nats.client.message import NatsMessage
from shmq.native import _clock as time

#: The most acknowledgements on their way; one more waits for half of them.
_MOST_ACKS: Final = 256


class Prefetched:
    """The messages ahead of an iterator, and its acknowledgements. It runs in the loop."""

    def __init__(self, queue: Any, prefetch: int, timeout: float | None, waits: bool) -> None:
        self.queue = queue
        self._prefetch = prefetch
        self._timeout = timeout
        self._waits = waits
        self.ahead: collections.deque[NatsMessage] = collections.deque()
        self._acks = Flight()
        self.ended = False
        self._taking: asyncio.Future[list[NatsMessage]] | None = None

    def quickly(self) -> NatsMessage | None:
        """The next message, if it is here and its lease is young; for any thread."""
        try:
            message = self.ahead.popleft()
        except IndexError:
            return None
        lease = message.lease
        if self.ended or lease is None or not lease.is_good or lease.is_old:
            self.ahead.appendleft(message)
            return None
        message.consumer = self
        return message

    async def next(self) -> list[NatsMessage]:
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
        """The next messages; none if it is closed meanwhile."""
        taking: asyncio.Future[list[NatsMessage]] = asyncio.ensure_future(
            self.queue.take(self._prefetch, until, waits=self._waits)
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

    async def flush(self) -> None:
        """Return once all acknowledgements are confirmed. Raises ConnectionLost."""
        await self._acks.drain()
        refused = self._acks.take_errors()
        if refused:
            raise ConnectionLost(
                f"queue {self.queue.name!r}: {len(refused)} acknowledgements were not confirmed: "
                f"their messages may be delivered again"
            )

    async def close(self) -> None:
        """Flush, and return what was not handed out, uncounted."""
        if self.ended:
            return
        self.ended = True
        if self._taking is not None:
            self._taking.cancel()
        rest, self.ahead = list(self.ahead), collections.deque()
        with contextlib.suppress(ShmqError):
            await self.queue.return_all(rest)
        with contextlib.suppress(ConnectionLost):
            await self.flush()


def _only(messages: list[NatsMessage]) -> NatsMessage | None:
    return messages.pop() if messages else None


class NatsConsumer(api.Consumer):
    """Implements :class:`shmq.api.Consumer`. For one thread at a time."""

    def __init__(self, prefetched: Prefetched) -> None:
        self.prefetched = prefetched
        self._queue = prefetched.queue

    def __iter__(self) -> NatsConsumer:
        return self

    def __next__(self) -> api.Message:
        if self.prefetched.ended:
            raise StopIteration
        message = self.prefetched.quickly() or _only(self._queue.run(self.prefetched.next()))
        if message is None:
            self.close()
            raise StopIteration
        message.in_hand = True
        return message

    def flush(self) -> None:
        if not self.prefetched.ended:
            self._queue.run(self.prefetched.flush())

    def close(self) -> None:
        if not self.prefetched.ended:
            self._queue.finish(self.prefetched.close())

    def __repr__(self) -> str:
        ahead = len(self.prefetched.ahead)
        what = "closed" if self.prefetched.ended else f"{ahead} leased ahead"
        return f"<Consumer of {self._queue.name!r}: {what}>"


class NatsAsyncConsumer(api.AsyncConsumer):
    """Implements :class:`shmq.api.AsyncConsumer`. For one task at a time."""

    def __init__(self, prefetched: Prefetched) -> None:
        self.prefetched = prefetched
        self._queue = prefetched.queue

    def __aiter__(self) -> NatsAsyncConsumer:
        return self

    async def __anext__(self) -> api.Message:
        if self.prefetched.ended:
            raise StopAsyncIteration
        message = self.prefetched.quickly()
        message = message or _only(await self._queue.arun(self.prefetched.next()))
        if message is None:
            await self.aclose()
            raise StopAsyncIteration
        message.in_hand = True
        return message

    def flush(self) -> None:
        """Do nothing: acknowledgements are sent already."""

    async def aclose(self) -> None:
        if not self.prefetched.ended:
            await self._queue.arun(self.prefetched.close())


class NatsBodies(api.Bodies):
    """Implements :class:`shmq.api.Bodies`. For one thread at a time."""

    def __init__(self, consumer: NatsConsumer) -> None:
        self._consumer = consumer
        self._message: api.Message | None = None

    def __iter__(self) -> NatsBodies:
        return self

    def __next__(self) -> Any:
        self._ack()
        message = next(self._consumer)
        try:
            body = message.body
        except BaseException:
            message.nack()
            raise
        self._message = message
        return body

    def _ack(self) -> None:
        message, self._message = self._message, None
        if message is not None:
            message.ack()

    def flush(self) -> None:
        self._consumer.flush()

    def close(self) -> None:
        message, self._message = self._message, None
        if message is not None:
            with contextlib.suppress(LeaseExpired):
                message.nack()
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._ack()
        finally:
            self.close()

    def __repr__(self) -> str:
        return repr(self._consumer).replace("<Consumer", "<Bodies", 1)

    def __del__(self) -> None:
        message = getattr(self, "_message", None)
        if message is not None:
            with contextlib.suppress(Exception):
                message.nack()
