"""A key of a KV bucket whose changes are reported as they pass by, on the subject of the key.

A notice may be lost with its connection, and a removal gives none: so what is known of a key is
asked for again after `STALE` seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from typing import Any, Final

import nats.errors
from nats.aio.msg import Msg

from shmq.extras.nats.client.connection import ClusterConnection
from shmq.extras.nats.client.definitions import EXPECTED
from shmq.native import _clock as time

#: How old what is known of a key may be where no change was reported, in seconds.
STALE: Final = 1.0


class Watch:
    """The changes of one key. Its methods run in the process's loop."""

    def __init__(self, connection: ClusterConnection, subject: str) -> None:
        self._connection = connection
        self._subject = subject
        self._client: Any = None
        #: When a change was reported (monotonic), and the least revision that exists once it is
        #: stored: it is reported a moment before.
        self._told_at = 0.0
        self._least = 0
        #: When a change to an unknown revision was reported.
        self._unknown_at = 0.0
        self._came = asyncio.Event()

    async def start(self) -> None:
        """Listen, unless it does; what was fetched before that may be old."""
        client = await self._connection.client()
        if self._client is client:
            return
        self._client = client
        mine = weakref.ref(self)
        subscription: Any = None

        async def take(message: Msg) -> None:
            watch = mine()
            if watch is not None and watch._client is client:
                watch._tell((message.headers or {}).get(EXPECTED, ""))
            elif subscription is not None:
                with contextlib.suppress(nats.errors.Error, OSError):
                    await subscription.unsubscribe()

        subscription = await client.subscribe(self._subject, cb=take)
        self._tell("")

    def _tell(self, expected: str) -> None:
        if expected.isdigit():
            self._told_at, self._least = time.monotonic(), max(self._least, int(expected) + 1)
        else:
            self._unknown_at = time.monotonic()
        self._came.set()

    def is_old(self, revision: int, fetched_at: float) -> bool:
        """Whether what was fetched then (monotonic) must be fetched again."""
        stale = time.monotonic() - fetched_at > STALE
        return stale or self._is_changed(revision, fetched_at)

    def _is_changed(self, revision: int, fetched_at: float) -> bool:
        if self._unknown_at > fetched_at:
            return True
        told_since = self._told_at > fetched_at or time.monotonic() - self._told_at < STALE
        return revision < self._least and told_since

    async def changed(self, revision: int, fetched_at: float, timeout: float) -> None:
        """Return once there is another revision than was fetched then, or after that time."""
        await self.start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(timeout, STALE)):
                while not self._is_changed(revision, fetched_at):
                    self._came.clear()
                    await self._came.wait()
