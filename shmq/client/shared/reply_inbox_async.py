"""The reply queue of an event loop."""

from __future__ import annotations

import asyncio
import time

from shmq import api
from shmq.client.shared.reply_inbox import Replies, Ticket
from shmq.errors import Empty

__all__ = ["LoopReplies"]


class LoopReplies(Replies):
    """Replies that the tasks of one event loop wait for."""

    async def wait(self, ticket: Ticket, until: float | None) -> api.Message | None:
        """The reply, or None if it has not come by ``until`` (monotonic)."""
        while ticket.message is None:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return None
            if self._is_read:
                await self._sleep(ticket, left)
                continue
            self._is_read = True
            try:
                await self._read(ticket, until)
            finally:
                self._is_read = False
                self._call_next()
        return ticket.message

    def forget(self, ticket: Ticket) -> None:
        """End the wait for the reply."""
        self._open.pop(ticket.correlation, None)
        self._asleep.pop(ticket, None)
        self._call_next()

    async def _sleep(self, ticket: Ticket, left: float | None) -> None:
        ticket.alarm = asyncio.get_running_loop().create_future()
        self._asleep[ticket] = None
        try:
            await asyncio.wait([ticket.alarm], timeout=left)
        finally:
            del self._asleep[ticket]

    def _call_next(self) -> None:
        if not self._is_read:
            for ticket in self._asleep:
                self._wake(ticket)
                return

    @staticmethod
    def _wake(ticket: Ticket) -> None:
        if isinstance(ticket.alarm, asyncio.Future) and not ticket.alarm.done():
            ticket.alarm.set_result(None)

    async def _read(self, ticket: Ticket, until: float | None) -> None:
        """Read until the reply has come, or the time is over."""
        while ticket.message is None:
            left = None if until is None else max(0.0, until - time.monotonic())
            try:
                message = await self.queue.aget(left)
            except Empty:
                return
            message.ack()
            found = self._hand_out(message)
            if found is not None:
                self._wake(found)
