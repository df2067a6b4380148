"""A leased message, or a batch of them, as FastStream's handlers see it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from faststream.message import StreamMessage

import shmq
from shmq.client.shared.blocking_calls import run_blocking


class ShmqMessage(StreamMessage[shmq.Message]):
    """One message; ``raw_message`` is shmq's own. Settling a second time does nothing."""

    #: Whether a settlement waits for a server, and so must not run on the event loop.
    waits = False

    async def ack(self) -> None:
        """Acknowledge it. Raises :class:`~shmq.LeaseExpired`, and so do the others."""
        await self._settle(self.raw_message.ack)
        await super().ack()

    async def nack(self, delay: float | None = None) -> None:
        """Return it to the queue after ``delay`` seconds; None: the queue's back-off.

        It keeps the exception that is being handled, as it does when it is rejected.
        """
        error = sys.exception()
        await self._settle(lambda: self.raw_message.nack(delay, error=error))
        await super().nack()

    async def reject(self) -> None:
        """Make it a dead letter."""
        error = sys.exception()
        await self._settle(lambda: self.raw_message.reject(error))
        await super().reject()

    async def extend(self, seconds: float) -> None:
        """Let its lease end so many seconds from now."""
        await settle(lambda: self.raw_message.extend(seconds), self.waits)

    async def _settle(self, deed: Callable[[], None]) -> None:
        if self.committed is None and not self.raw_message.settled:
            await settle(deed, self.waits)


class ShmqBatchMessage(StreamMessage[list[shmq.Message]]):
    """Messages that are handled together, and settled together."""

    waits = False

    async def ack(self) -> None:
        """Acknowledge all of them."""
        await self._settle(lambda message: message.ack())
        await super().ack()

    async def nack(self, delay: float | None = None) -> None:
        """Return all of them after ``delay`` seconds."""
        error = sys.exception()
        await self._settle(lambda message: message.nack(delay, error=error))
        await super().nack()

    async def reject(self) -> None:
        """Make all of them dead letters."""
        error = sys.exception()
        await self._settle(lambda message: message.reject(error))
        await super().reject()

    async def _settle(self, deed: Callable[[Any], None]) -> None:
        if self.committed is None:
            await settle(lambda: self._settle_each(deed), self.waits)

    def _settle_each(self, deed: Callable[[Any], None]) -> None:
        """Settle every one, whatever becomes of the others. Raises the first refusal."""
        refused = None
        for message in self.raw_message:
            try:
                if not message.settled:
                    deed(message)
            except shmq.LeaseExpired as error:
                refused = refused or error
        if refused is not None:
            raise refused


async def settle(deed: Callable[[], None], waits: bool) -> None:
    """Do it; in a thread, if it ``waits`` for a server."""
    if waits:
        await run_blocking(deed)
    else:
        deed()
