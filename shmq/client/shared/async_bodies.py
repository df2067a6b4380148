"""The asynchronous iterator over bodies, over that of messages."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Any

from shmq import api
from shmq.errors import LeaseExpired
from shmq.native import _core


class AsyncBodies(api.AsyncBodies):
    """Implements :class:`shmq.api.AsyncBodies`."""

    def __init__(self, consumer: api.AsyncConsumer) -> None:
        self._consumer = consumer
        self._message: api.Message | None = None  # in hand

    def __aiter__(self) -> AsyncBodies:
        return self

    async def __anext__(self) -> Any:
        self._ack()
        message = await self._consumer.__anext__()
        try:
            body = message.body
        except BaseException:
            _core.drop_in_hand(message)
            raise
        self._message = message
        return body

    def _ack(self) -> None:
        if self._message is not None:
            message, self._message = self._message, None
            message.ack()

    def flush(self) -> None:
        self._consumer.flush()

    async def aclose(self) -> None:
        message, self._message = self._message, None
        if message is not None:
            with contextlib.suppress(LeaseExpired):
                message.nack()
        await self._consumer.aclose()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._ack()
        finally:
            await self.aclose()

    def __del__(self) -> None:
        if getattr(self, "_message", None) is not None:
            _core.drop_in_hand(self._message)
