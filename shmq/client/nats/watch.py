"""A key of a KV bucket whose changes are told as they pass by, on the subject of the key.

A notice may be lost with its connection, and a removal gives none: so what is known of a key is
asked for again after `STALE` seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from typing import Any, Final

import nats.errors
from nats.aio.msg import Msg

from shmq.client.nats.connection import ClusterConnection
from shmq.client.nats.definitions import EXPECTED

__all__ = ["STALE", "Watch"]

#: How old what is known of a key may be where no change was told, in seconds.
STALE: Final = 1.0


class Watch:
    """The changes of one key. Its methods run in the process's loop."""

    def __init__(self, connection: ClusterConnection, subject: str) -> None:
        self._connection = connection
        self._subject = subject
        self._client: Any = None
        #: The least revision that there is once the change is stored, and when it was told.
        self._least = 0
        self._told_at = 0.0
        self._came = asyncio.Event()

    async def start(self) -> None:
        """Listen, unless it does; what was asked for before that may be old."""
        client = await self._connection.client()
        if self._client is client:
            return
        self._client = client
        self._tell(1 << 62)
        mine = weakref.ref(self)
        subscription: Any = None

        async def take(message: Msg) -> None:
            watch = mine()
            if watch is not None and watch._client is client:
                expected = (message.headers or {}).get(EXPECTED, "")
                watch._tell(int(expected) + 1 if expected.isdigit() else 1 << 62)
            elif subscription is not None:
                with contextlib.suppress(nats.errors.Error, OSError):
                    await subscription.unsubscribe()

        subscription = await client.subscribe(self._subject, cb=take)

    def _tell(self, least: int) -> None:
        self._least = max(self._least, least) if self.is_told() else least
        self._told_at = time.monotonic()
        self._came.set()

    def is_told(self) -> bool:
        """Whether a change was told a moment ago."""
        return time.monotonic() - self._told_at < STALE

    def is_old(self, revision: int, fetched_at: float) -> bool:
        """Whether what was fetched then (monotonic) must be fetched again."""
        if time.monotonic() - fetched_at > STALE:
            return True
        return revision < self._least and (self._told_at > fetched_at or self.is_told())

    async def changed(self, revision: int, timeout: float) -> None:
        """Return once there is another revision, or after that time."""
        await self.start()
        until = time.monotonic() + min(timeout, STALE)
        while not (self.is_told() and revision < self._least):
            self._came.clear()
            try:
                async with asyncio.timeout_at(
                    asyncio.get_running_loop().time() + max(0.0, until - time.monotonic())
                ):
                    await self._came.wait()
            except TimeoutError:
                return
