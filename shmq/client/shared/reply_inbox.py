"""The private reply queue of a client, and the requests that wait for replies."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING

from shmq import api
from shmq.errors import Empty
from shmq.lazy_imports import late_imports
from shmq.native import _clock as time

if TYPE_CHECKING:
    import asyncio

#: The most replies read at a time if more than one is expected.
_AT_ONCE = 64
#: A queue used within this time, in seconds, still exists: a server checks the connection at least
#: as often.
_FRESH = 1.0


class ReplyCounts:
    """The counts of a client over all its reply queues."""

    def __init__(self) -> None:
        #: Replies that came after their request had given up.
        self.late = 0


class Ticket:
    """A request that expects a reply, identified by its ``correlation``."""

    __slots__ = ("alarm", "correlation", "message")

    def __init__(self, correlation: str) -> None:
        self.correlation = correlation
        #: The reply, settled; None: it has not come.
        self.message: api.Message | None = None
        #: Wakes the sleeping waiter once the reply has come; None: no waiter has slept.
        self.alarm: threading.Event | asyncio.Future[None] | None = None


class Replies:
    """A reply queue, which only this client reads.

    One of the waiters reads for all of them: once its own reply has come, it passes the reading on
    to the next. So a single waiter always reads its own reply.
    """

    def __init__(self, queue: api.Queue, counts: ReplyCounts) -> None:
        self.queue = queue
        #: Whether the queue is known to be gone.
        self.is_lost = False
        self._counts = counts
        self._numbers = itertools.count(1)
        self._open: dict[str, Ticket] = {}
        self._asleep: dict[Ticket, None] = {}
        self._is_read = False
        self._used_at = time.monotonic()

    @property
    def name(self) -> str:
        """The queue's name."""
        return self.queue.name

    @property
    def is_stale(self) -> bool:
        """Whether the queue was unused for so long that its existence must be checked."""
        idle = not self._open and time.monotonic() - self._used_at > _FRESH
        return self.is_lost or idle

    def expect(self) -> Ticket:
        """A ticket for a request that is about to be put; `forget` must follow in any case."""
        ticket = Ticket(f"{next(self._numbers):x}")
        self._open[ticket.correlation] = ticket
        return ticket

    def _hand_out(self, message: api.Message) -> Ticket | None:
        """Give a settled reply to its ticket; None: the reply is late, and dropped."""
        self._used_at = time.monotonic()
        ticket = self._open.pop(message.correlation or "", None)
        if ticket is None:
            self._counts.late += 1
        else:
            ticket.message = message
        return ticket


class ThreadReplies(Replies):
    """Replies that threads wait for."""

    def __init__(self, queue: api.Queue, counts: ReplyCounts) -> None:
        super().__init__(queue, counts)
        self._lock = threading.Lock()

    def wait(self, ticket: Ticket, until: float | None) -> api.Message | None:
        """The reply, or None if it has not come by ``until`` (monotonic)."""
        while ticket.message is None:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return None
            if self._may_read(ticket):
                try:
                    self._read(ticket, until)
                finally:
                    self._pass_on()
            elif ticket.message is None:
                assert isinstance(ticket.alarm, threading.Event)
                ticket.alarm.wait(left)
        return ticket.message

    def forget(self, ticket: Ticket) -> None:
        """End the wait for the reply."""
        self._open.pop(ticket.correlation, None)
        if ticket.alarm is not None:
            with self._lock:
                self._asleep.pop(ticket, None)
                self._call_next()

    def _may_read(self, ticket: Ticket) -> bool:
        with self._lock:
            if not self._is_read:
                self._is_read = True
                self._asleep.pop(ticket, None)
                return True
            if not isinstance(ticket.alarm, threading.Event):
                ticket.alarm = threading.Event()
            ticket.alarm.clear()
            self._asleep[ticket] = None
            return False

    def _pass_on(self) -> None:
        with self._lock:
            self._is_read = False
            self._call_next()

    def _call_next(self) -> None:
        if not self._is_read:
            for ticket in self._asleep:
                assert isinstance(ticket.alarm, threading.Event)
                ticket.alarm.set()
                return

    def _read(self, ticket: Ticket, until: float | None) -> None:
        """Read until the reply has come, or the time has expired."""
        while ticket.message is None:
            left = None if until is None else max(0.0, until - time.monotonic())
            if len(self._open) > 1:
                messages = self.queue.get_many(_AT_ONCE, left)
                self.queue.ack_many(messages)
            else:
                try:
                    messages = [self.queue.get(True, left)]
                except Empty:
                    return
                messages[0].ack()
            for message in messages:
                found = self._hand_out(message)
                # The message is set before the alarm; a waiter checks for it after clearing the
                # alarm.
                if found is not None and isinstance(found.alarm, threading.Event):
                    found.alarm.set()
            if not messages:
                return


class LoopReplies(Replies):
    """Replies that the tasks of one event loop wait for."""

    async def wait(self, ticket: Ticket, until: float | None) -> api.Message | None:
        """See :meth:`ThreadReplies.wait`."""
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
        import asyncio  # noqa: PLC0415 - callers that await have it loaded

        with late_imports:
            from shmq.client.shared import loop_timer  # noqa: PLC0415

        ticket.alarm = asyncio.get_running_loop().create_future()
        self._asleep[ticket] = None
        try:
            await loop_timer.wait(ticket.alarm, left)
        finally:
            del self._asleep[ticket]

    def _call_next(self) -> None:
        if not self._is_read:
            for ticket in self._asleep:
                self._wake(ticket)
                return

    @staticmethod
    def _wake(ticket: Ticket) -> None:
        alarm = ticket.alarm
        if alarm is not None and not isinstance(alarm, threading.Event) and not alarm.done():
            alarm.set_result(None)

    async def _read(self, ticket: Ticket, until: float | None) -> None:
        """Read until the reply has come, or the time has expired."""
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
