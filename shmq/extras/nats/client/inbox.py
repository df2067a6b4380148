"""Subjects to which pulls are answered; one whose pulls are all answered serves again."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import nats.errors
from nats.aio.msg import Msg

from shmq.extras.nats.client.client import Client
from shmq.extras.nats.client.connection import ClusterConnection
from shmq.extras.nats.client.turns import Turns
from shmq.native import _clock as time

#: How many inboxes of a connection are kept for the next pulls.
_MOST_SPARE: Final = 8


class Arrival(NamedTuple):
    """What has arrived in an inbox, and the earliest time at which it can have been sent."""

    message: Msg
    #: When the oldest pull was sent that it may answer (monotonic): no server delivered it earlier.
    asked_at: float


#: Returns what comes too late, in the order of the turns.
Orphan = Callable[[Arrival, Turns], Awaitable[Any]]


class Inbox:
    """A subscription to which pulls are answered; it is of one caller at a time."""

    def __init__(self, connection: ClusterConnection, client: Client) -> None:
        self._connection = connection
        self._client = client
        self._subject = client.new_inbox()
        self._came: collections.deque[Arrival] = collections.deque()
        #: Of the caller that waits for the next answer.
        self._waiter: asyncio.Future[None] | None = None
        #: Takes what comes after the end; None: nobody has the inbox.
        self._orphan: Orphan | None = None
        #: In which that returns them.
        self._turns = Turns()
        self._ended = False
        #: Pulls that are not answered to their end.
        self._open = 0
        #: When the oldest of those was sent (monotonic).
        self._asked_at = 0.0
        #: Whether the first pull of its caller is sent already.
        self.is_asked = False
        #: Called with each message that arrives.
        self._watcher: Callable[[], None] | None = None
        self._subscription: Any = None
        self._listening: Any = None

    @classmethod
    async def of(cls, connection: ClusterConnection, orphan: Orphan) -> Inbox:
        """An inbox of the connection; ``orphan`` returns what comes too late."""
        spare = cls.spare(connection, orphan)
        if spare is not None:
            return spare
        client = await connection.client()
        inbox = cls(connection, client)
        inbox._subscription = await client.take(inbox._subject, inbox._take)
        inbox._orphan = orphan
        return inbox

    @classmethod
    def spare(cls, connection: ClusterConnection, orphan: Orphan) -> Inbox | None:
        """One that nobody uses now; None if there is none."""
        client = connection.connected
        if client is None or not client.spare_inboxes:
            return None
        inbox: Inbox = client.spare_inboxes.pop()
        inbox._orphan = orphan
        return inbox

    async def listen(self, subject: str) -> None:
        """Hear what is published on the subject, too."""
        self._listening = await self._client.take(subject, self._take)

    def _take(self, message: Msg) -> None:
        arrival = Arrival(message, self._asked_at)
        if not self._ended:
            self._came.append(arrival)
            self._wake()
        elif self._orphan is not None:
            _run_in_background(self._orphan(arrival, self._turns))

    def _wake(self) -> None:
        if self._watcher is not None:
            self._watcher()
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def ask(self, stream: str, consumer: str, **wanted: Any) -> None:
        """Send a pull."""
        await self._connection.client()  # raises if it is closed
        self._note_pull()
        await self._client.publish(*_encode_pull(stream, consumer, wanted), reply=self._subject)

    def ask_at_once(self, stream: str, consumer: str, **wanted: Any) -> bool:
        """Send a pull at once; False: it cannot be sent now."""
        self._note_pull()
        self.is_asked = self._client.pull(*_encode_pull(stream, consumer, wanted), self._subject)
        self._open -= not self.is_asked
        return self.is_asked

    def _note_pull(self) -> None:
        """Count a pull before it is sent."""
        if not self._open:
            self._asked_at = time.monotonic()
        self._open += 1

    def watch(self, wanted: int, patience: float, callback: Callable[[bool], None]) -> None:
        """Report once whether as many messages have arrived, and nothing else in that time."""

        def look() -> None:
            if len(self._came) >= wanted or not self._came[-1].message.reply:
                end()

        def end() -> None:
            self._watcher = None
            timer.cancel()
            callback(len(self._came) == wanted and all(one.message.reply for one in self._came))

        timer = asyncio.get_running_loop().call_later(patience, end)
        self._watcher = look

    def take_all(self) -> list[Arrival]:
        """All that have come, which end a pull."""
        came = list(self._came)
        self._came.clear()
        self.answered()
        self.is_asked = False
        return came

    def answered(self) -> None:
        """One of the pulls is answered to its end."""
        self._open -= 1

    async def next(self, timeout: float) -> Arrival | None:
        """The next answer; None if none came in time."""
        if not self._came and timeout > 0:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = loop.call_later(timeout, self._wake)
            try:
                await self._waiter
            finally:
                self._waiter = None
                timer.cancel()
        return self._came.popleft() if self._came else None

    async def close(self) -> None:
        """End it, or keep it for the next caller; what is still on its way is returned."""
        if not self.keep():
            await asyncio.shield(self._end())

    def close_soon(self) -> None:
        """`close`, without waiting for that."""
        _run_in_background(self.close())

    def keep(self) -> bool:
        """Keep it for the next caller; False: something is on its way to it."""
        if not self._is_clean() or len(self._client.spare_inboxes) >= _MOST_SPARE:
            return False
        self._orphan = None  # which keeps its queue
        self._client.spare_inboxes.append(self)
        return True

    def _is_clean(self) -> bool:
        """Whether nothing is on its way to it."""
        return self._open == 0 and not self._came and self._listening is None

    async def _end(self) -> None:
        self._ended = True
        while self._came and self._orphan is not None:
            await self._orphan(self._came.popleft(), self._turns)
        with contextlib.suppress(nats.errors.Error, OSError):
            if self._listening is not None:
                await self._listening.unsubscribe()
            if self._open == 0:
                await self._subscription.unsubscribe()
            else:
                _run_in_background(self._drain())

    async def _drain(self) -> None:
        with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
            await self._subscription.drain()


#: A task without a reference may vanish.
_tasks: set[asyncio.Future[None]] = set()


def _run_in_background(work: Awaitable[None]) -> None:
    task = asyncio.ensure_future(work)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


def _encode_pull(stream: str, consumer: str, wanted: dict[str, Any]) -> tuple[str, bytes]:
    """The subject and the body of a pull."""
    return f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", json.dumps(wanted).encode()
