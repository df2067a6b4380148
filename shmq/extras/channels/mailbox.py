"""The messages that a process has taken from its inbox, by channel, and the tasks that wait.

In each event loop at most one task, the leader, waits for the inbox, and the others wait for it: a
message goes into the mailbox of its channel first, so a task that is cancelled has taken none.
Every method is called with the inbox's lock, from any thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from shmq.native import _clock as time


class Mailbox:
    """Messages by channel, at most ``capacity(channel)`` each; they expire after ``expiry`` s."""

    def __init__(self, capacity: Callable[[str], int], expiry: float) -> None:
        self._capacity = capacity
        self._expiry = expiry
        self._sweep_at = 0.0
        #: Each message with when it expires, in seconds of the monotonic clock; none is empty.
        self._messages: dict[str, deque[tuple[float, bytes]]] = {}
        #: The futures of tasks that wait, by channel; none is empty.
        self._waiters: dict[str, deque[asyncio.Future[None]]] = {}
        #: The loops that have a leader.
        self._leaders: set[asyncio.AbstractEventLoop] = set()

    # ---- messages ----

    def add(self, channel: str, payload: bytes) -> bool:
        """Store a message and wake a task that waits for it; False if the channel is full."""
        now = time.monotonic()
        self._sweep(now)
        stored = self._messages.setdefault(channel, deque())
        _drop_expired(stored, now)
        if len(stored) >= self._capacity(channel):
            return False
        stored.append((now + self._expiry, payload))
        self._wake_receiver(channel)
        return True

    def take(self, channel: str) -> bytes | None:
        """The next message of the channel; None if there is none."""
        stored = self._messages.get(channel)
        if stored is None:
            return None
        _drop_expired(stored, time.monotonic())
        payload = stored.popleft()[1] if stored else None
        if not stored:
            del self._messages[channel]
        return payload

    def _sweep(self, now: float) -> None:
        """Drop what has expired in channels that no task receives from any more."""
        if now < self._sweep_at:
            return
        self._sweep_at = now + self._expiry
        for channel, stored in list(self._messages.items()):
            _drop_expired(stored, now)
            if not stored:
                del self._messages[channel]

    def clear(self) -> None:
        """Drop all messages."""
        self._messages.clear()

    # ---- tasks ----

    def lead(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Make the caller the leader of its loop, unless there is one."""
        if loop in self._leaders:
            return False
        self._leaders = {each for each in self._leaders if not each.is_closed()} | {loop}
        return True

    def resign(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the leader's term."""
        self._leaders.discard(loop)

    def wait(self, channel: str, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """A future that is done once the channel may have a message, or the loop no leader.

        It is done already if the channel has a message.
        """
        future = loop.create_future()
        if channel in self._messages:
            future.set_result(None)
            return future
        self._waiters.setdefault(channel, deque()).append(future)
        return future

    def leave(
        self, channel: str, loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None]
    ) -> None:
        """Forget a waiter; what it was woken for and has not done, another one does."""
        waiting = self._waiters.get(channel)
        if waiting is not None and waiter in waiting:
            waiting.remove(waiter)
            if not waiting:
                del self._waiters[channel]
        elif channel in self._messages:
            self._wake_receiver(channel)
        self.find_leader(loop)

    def find_leader(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake a task of the loop that becomes its leader, if there is none."""
        if loop in self._leaders:
            return
        for channel, waiting in list(self._waiters.items()):
            if any(each.get_loop() is loop for each in waiting):
                self._wake_receiver(channel, loop)
                return

    def wake_all(self) -> None:
        """Wake every task, so that it looks for the inbox again."""
        for channel in list(self._waiters):
            while channel in self._waiters:
                self._wake_receiver(channel)

    def _wake_receiver(self, channel: str, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Wake the first waiter of the channel, of this loop if one is given."""
        waiting = self._waiters.get(channel, ())
        for waiter in list(waiting):
            if loop is not None and waiter.get_loop() is not loop:
                continue
            self._waiters[channel].remove(waiter)
            if _wake(waiter):
                break
        if channel in self._waiters and not self._waiters[channel]:
            del self._waiters[channel]


def _drop_expired(stored: deque[tuple[float, bytes]], now: float) -> None:
    while stored and stored[0][0] <= now:
        stored.popleft()


def set_done(future: asyncio.Future[None]) -> None:
    """Set the future's result, unless it is done."""
    if not future.done():
        future.set_result(None)


def _wake(future: asyncio.Future[None]) -> bool:
    """Whether the future will be done: its loop may have been closed without its tasks."""
    loop = future.get_loop()
    if future.done() or loop.is_closed():
        return False
    try:
        if loop is _find_running_loop():
            future.set_result(None)
        else:
            loop.call_soon_threadsafe(set_done, future)
    except RuntimeError:  # closed since
        return False
    return True


def _find_running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
