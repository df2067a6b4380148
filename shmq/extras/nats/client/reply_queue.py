"""The replies to a client: published to a subject of its own, and kept in its memory."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from typing import Any

import nats.errors
from nats.aio.msg import Msg

from shmq import api, errors
from shmq.client.handles.put import encode
from shmq.extras.nats.client import names
from shmq.extras.nats.client.connection import ClusterConnection
from shmq.extras.nats.client.message import NatsMessage, packed, unpacked
from shmq.model.codec.codecs import Default, unpack_properties
from shmq.native import _clock as time
from shmq.native import _core


class NatsReplyQueue:
    """What the requests of a broker read their replies from."""

    def __init__(self, connection: ClusterConnection, name: str) -> None:
        self.name = name
        self._connection = connection
        self._messages: collections.deque[NatsMessage] = collections.deque()
        self._came: asyncio.Event | None = None
        self._subscription: Any = None
        self._closed = False
        connection.run(self._open())

    async def _open(self) -> None:
        self._came = asyncio.Event()
        client = await self._connection.client()
        subject = names.reply_subject(self._connection.namespace, self.name)
        self._subscription = await client.subscribe(subject, cb=self._take)
        await client.flush()

    async def _take(self, came: Msg) -> None:
        message = _Reply(self, came.data, unpacked(came.headers), 1, 0)
        self._messages.append(message)
        assert self._came is not None
        self._came.set()

    async def _take_next(self, most: int, timeout: float | None) -> list[NatsMessage]:
        until = None if timeout is None else time.monotonic() + timeout
        assert self._came is not None
        while not self._messages:
            if self._closed or self._connection.closed:
                raise errors.QueueDeleted(f"the reply queue {self.name!r} is closed")
            self._came.clear()
            left = 1.0 if until is None else min(1.0, until - time.monotonic())
            if left <= 0:
                return []
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._came.wait()
        return [self._messages.popleft() for _ in range(min(most, len(self._messages)))]

    def get(self, block: bool = True, timeout: float | None = None) -> api.Message:
        """The next reply. Raises Empty."""
        found = self._connection.run(self._take_next(1, timeout if block else 0.0))
        if not found:
            raise errors.Empty("no reply came in time")
        return found[0]

    def get_many(self, max: int, timeout: float | None = None) -> list[api.Message]:
        """The replies that there are; it waits for one."""
        return list(self._connection.run(self._take_next(max, timeout)))

    async def aget(self, timeout: float | None = None) -> api.Message:
        """``get`` for asyncio."""
        found = await self._connection.arun(self._take_next(1, timeout))
        if not found:
            raise errors.Empty("no reply came in time")
        return found[0]

    def ack_many(self, messages: list[api.Message]) -> list[int]:
        """A reply needs no acknowledgement."""
        for message in messages:
            message.ack()
        return []

    def qsize(self) -> int:
        """How many replies wait. Raises QueueDeleted once it is closed."""
        if self._closed:
            raise errors.QueueDeleted(f"the reply queue {self.name!r} is closed")
        return len(self._messages)

    def close(self) -> None:
        """End it."""
        if not self._closed:
            self._closed = True
            with contextlib.suppress(errors.ShmqError, nats.errors.Error):
                self._connection.run(self._end())

    async def _end(self) -> None:
        assert self._came is not None
        self._came.set()
        await self._subscription.unsubscribe()


class _Reply(NatsMessage):
    """A reply, which is settled when it has come."""

    def ack(self) -> None:
        self.was_settled("ack")


class NatsReplyTarget:
    """What a server puts its replies into: the client's subject."""

    #: Of `connect`, which sets it.
    default: Default | None = None

    def __init__(self, connection: ClusterConnection, name: str) -> None:
        self.name = name
        self._connection = connection

    def put(
        self,
        body: api.Body,
        block: bool | None = None,
        timeout: float | None = None,
        **properties: Any,
    ) -> api.Put:
        """Publish a reply: there is always room; it is lost if its client is gone."""
        del block, timeout
        meta, buffer = encode(body, 3, properties, default=self.default)
        if len(buffer) + 2 * len(meta or b"") + 512 > self._connection.max_payload:
            raise errors.MessageTooLarge(
                f"a reply of {len(buffer)} bytes does not fit into a message of the cluster, "
                f"which takes {self._connection.max_payload} bytes (max_payload)"
            )
        self._connection.run(self._publish(bytes(buffer), packed(unpack_properties(meta), meta)))
        return _core.new_put(1, False)

    async def _publish(self, body: bytes, headers: dict[str, str]) -> None:
        client = await self._connection.client()
        subject = names.reply_subject(self._connection.namespace, self.name)
        await client.publish(subject, body, headers=headers or None)
        await client.flush()

    def close(self) -> None:
        """It holds nothing."""


# Both are used through the few methods of a queue that requests and their servers call.
api.Queue.register(NatsReplyQueue)
api.Queue.register(NatsReplyTarget)
