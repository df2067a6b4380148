"""The iterators over the messages and the bodies of a network transport."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Any

from shmq import api
from shmq.client.ports.queue import PrefetchPort
from shmq.client.ports.steps import arun, run
from shmq.errors import LeaseExpired


class Consumer(PrefetchPort, api.Consumer):
    """Implements :class:`shmq.api.Consumer`. For one thread at a time."""

    def __iter__(self) -> Consumer:
        return self

    def __next__(self) -> api.Message:
        if self.ended:
            raise StopIteration
        message: api.Message | None = self.quickly() or run(self.find_next())
        if message is None:
            self.close()
            raise StopIteration
        return message

    def flush(self) -> None:
        if not self.ended:
            run(self.confirm_acks())

    def close(self) -> None:
        if not self.ended:
            run(self.end())

    def __repr__(self) -> str:
        what = "closed" if self.ended else f"{self.leased_ahead} leased ahead"
        return f"<Consumer of {self.name!r}: {what}>"


class AsyncConsumer(api.AsyncConsumer):
    """Implements :class:`shmq.api.AsyncConsumer`. For one task at a time."""

    def __init__(self, ahead: PrefetchPort, prefetch: int) -> None:
        self._ahead = ahead
        self._prefetch = prefetch
        self._in_a_row = 0

    def __aiter__(self) -> AsyncConsumer:
        return self

    async def __anext__(self) -> api.Message:
        if self._in_a_row == self._prefetch:
            # Before a message is taken: a task cancelled here has none.
            self._in_a_row = 0
            await asyncio.sleep(0)
        self._in_a_row += 1
        message: api.Message | None = self._ahead.quickly()
        if message is None:
            self._in_a_row = 0
            message = await arun(self._ahead.find_next())
        if message is None:
            await self.aclose()
            raise StopAsyncIteration
        return message

    def flush(self) -> None:
        self._ahead.send_acks()

    async def aclose(self) -> None:
        if not self._ahead.ended:
            await arun(self._ahead.end())


class Bodies(api.Bodies):
    """Implements :class:`shmq.api.Bodies`. For one thread at a time."""

    def __init__(self, consumer: api.Consumer) -> None:
        self._consumer = consumer
        self._message: api.Message | None = None

    def __iter__(self) -> Bodies:
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
