"""The channel layer of Django Channels: channels, groups, and the names of their queues."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from logging import getLogger
from typing import TYPE_CHECKING, Any, TypeVar

from channels.exceptions import ChannelFull
from channels.layers import BaseChannelLayer

import shmq
from shmq.client.shared.blocking_calls import run_blocking
from shmq.extras.channels.envelope import Envelope, Kind, pack_message, unpack_message
from shmq.extras.channels.inbox import Inbox
from shmq.extras.channels.routes import Routes
from shmq.extras.frameworks.target import is_remote, parse_target
from shmq.extras.frameworks.task_queues import Connection
from shmq.fork_safe import new_lock

if TYPE_CHECKING:
    from shmq.client.remote.address import Tls

_T = TypeVar("_T")

log = getLogger("channels.shmq")


class ShmqChannelLayer(BaseChannelLayer):
    """A channel layer in shared memory.

    ``namespace`` is a namespace of this host, ``shmq://NAMESPACE``, or ``shmq://HOST:PORT`` of a
    server; None: as for :func:`shmq.connect`, which ``token`` and ``tls`` are for as well. The
    names of its queues start with ``prefix``. A message that is not received within ``expiry``
    seconds is dropped, and a member of a group leaves it after ``group_expiry`` seconds. A channel
    has up to ``capacity`` messages, or as many as ``channel_capacity`` has for a pattern of its
    name.

    Each process has a private queue, its inbox, which ends with it, and which is bound to an
    exchange with the names of its channels' groups: a message for a group is put once for each
    process. Delivery is at most once. Any number of threads and event loops may use the layer.
    """

    extensions = ["groups", "flush"]  # noqa: RUF012 - as declared by Channels

    #: How many messages were not delivered: their channel or its process was full, or gone. Those
    #: for channels of this process, and those that this process has sent to queues that were full.
    dropped = 0

    def __init__(
        self,
        namespace: str | None = None,
        prefix: str = "asgi",
        expiry: float = 60,
        group_expiry: float = 86_400,
        capacity: int = 100,
        channel_capacity: dict[Any, int] | None = None,
        *,
        token: str | None = None,
        tls: Tls = None,
    ) -> None:
        super().__init__(expiry=expiry, capacity=capacity)
        self.channel_capacity = self.compile_capacities(channel_capacity or {})
        self.group_expiry = group_expiry
        self.prefix = prefix
        target = parse_target(namespace, "namespace")
        self._is_remote = is_remote(target)
        self._connection = Connection(target, token, tls)
        self._routes = Routes(self._connection, prefix)
        #: Held for moments only.
        self._lock = new_lock()
        #: Held while the queue of a channel is opened, by no event loop.
        self._opening = new_lock()
        self._inbox: Inbox | None = None
        #: The queues of channels that any process may receive from, by channel.
        self._shared: dict[str, shmq.Queue] = {}

    @property
    def client_prefix(self) -> str:
        """What the names of this process's channels have before the ``!``."""
        return self._own_inbox().token

    def _own_inbox(self) -> Inbox:
        """The inbox of this process: the child of a fork has one of its own."""
        with self._lock:
            if self._inbox is None or self._inbox.pid != os.getpid():
                self._inbox = Inbox(
                    self._connection,
                    self._routes,
                    self.get_capacity,
                    self.expiry,
                    self.group_expiry,
                    self._count_dropped,
                    is_remote=self._is_remote,
                )
            return self._inbox

    def _count_dropped(self, count: int) -> None:
        with self._lock:
            self.dropped += count

    async def _call(self, call: Callable[..., _T], *args: Any) -> _T:
        """The result of a call that does not block, unless a server makes it or it is the first."""
        if self._is_remote or not self._routes.is_open:
            return await run_blocking(call, *args)
        return call(*args)

    # ---- channels ----

    async def new_channel(self, prefix: str = "specific") -> str:
        """A new name of a channel of this process."""
        inbox = self._own_inbox()
        await run_blocking(inbox.open)
        return f"{prefix}.{inbox.token}!{secrets.token_hex(16)}"

    async def send(self, channel: str, message: dict[str, Any]) -> None:
        """Send a message to a channel.

        Raises ChannelFull if the queue is full, TypeError for an invalid name or a value that
        msgpack does not have, and :class:`~shmq.MessageTooLarge`.
        """
        assert isinstance(message, dict), "message is not a dict"
        self.require_valid_channel_name(channel)
        body = Envelope(Kind.CHANNEL, channel, pack_message(message)).pack()
        try:
            if "!" in channel:
                await self._publish(channel, body)
            else:
                await self._put(channel, body)
        except shmq.Full as error:
            raise ChannelFull(f"channel {channel!r} is full") from error

    async def _publish(self, channel: str, body: bytes) -> None:
        """Send a message to the process of the channel. Raises what a put into its inbox raises."""
        key = self._routes.inbox_key(_find_token(channel))
        try:
            published = await self._call(self._routes.publish, body, key, self.expiry)
        except shmq.PublishRefused as error:
            (refusal,) = error.refused.values()
            raise refusal from None
        if not published.delivered:
            self._count_dropped(1)
            log.info("The process of channel %s has ended: a message was dropped", channel)

    async def receive(self, channel: str) -> dict[str, Any]:
        """The first message that arrives on the channel; one task gets it if several wait.

        A task that is cancelled has taken no message.
        """
        self.require_valid_channel_name(channel)
        if "!" not in channel:
            return unpack_message(await self._get(channel))
        inbox = self._own_inbox()
        assert _find_token(channel) == inbox.token, "Wrong client prefix"
        return unpack_message(await inbox.receive(channel))

    # ---- channels that any process may receive from ----

    def _open_shared(self, channel: str) -> shmq.Queue:
        """The queue of the channel, created if it is absent."""
        with self._opening:
            if channel not in self._shared:
                self._shared[channel] = self._connection.broker.ensure_queue(
                    self._shared_name(channel),
                    if_different="accept",
                    capacity=self.get_capacity(channel),
                    arena_bytes=64 << 20,
                    max_message_bytes=16 << 20,
                    dead_letter=None,
                    max_deliveries=None,
                    expires=max(self.group_expiry, self.expiry),
                )
            return self._shared[channel]

    def _shared_name(self, channel: str) -> str:
        return shmq.escape_name(f"{self.prefix}.channel.{channel}")

    def _forget_shared(self, channel: str) -> None:
        queue = self._shared.pop(channel, None)
        if queue is not None:
            queue.close()

    async def _shared_queue(self, channel: str) -> shmq.Queue:
        queue = self._shared.get(channel)
        return await run_blocking(self._open_shared, channel) if queue is None else queue

    def _is_gone(self, channel: str, queue: shmq.Queue, error: shmq.ShmqError) -> bool:
        """Whether the queue was deleted; its handle is closed then, if another task has not."""
        if self._shared.get(channel) is queue:
            if not isinstance(error, (shmq.QueueDeleted, shmq.NoSuchQueue)):
                return False
            self._forget_shared(channel)
        return True

    async def _put(self, channel: str, body: bytes) -> None:
        queue = await self._shared_queue(channel)
        try:
            await queue.aput(body, block=False, ttl=self.expiry)
        except shmq.ShmqError as error:
            if not self._is_gone(channel, queue, error):
                raise
            queue = await self._shared_queue(channel)
            await queue.aput(body, block=False, ttl=self.expiry)

    async def _get(self, channel: str) -> bytes:
        while True:
            queue = await self._shared_queue(channel)
            try:
                message = await queue.aget()
            except shmq.ShmqError as error:
                if not self._is_gone(channel, queue, error):
                    raise
                continue
            body = message.body
            message.ack()
            try:
                return Envelope.unpack(body).payload
            except (ValueError, TypeError) as error:
                log.warning("Channel %s had a message of another program: %s", channel, error)

    # ---- groups ----

    async def group_add(self, group: str, channel: str) -> None:
        """Add the channel, of whichever process, to the group."""
        self.require_valid_group_name(group)
        self.require_valid_channel_name(channel)
        if "!" not in channel:
            await run_blocking(self._bind_shared, group, channel)
        elif (token := _find_token(channel)) != self._own_inbox().token:
            await run_blocking(self._change_elsewhere, Kind.JOIN, group, channel, token)
        elif self._own_inbox().join(group, channel):
            await run_blocking(self._own_inbox().settle, group)

    async def group_discard(self, group: str, channel: str) -> None:
        """Remove the channel from the group; it need not be in it."""
        self.require_valid_group_name(group)
        self.require_valid_channel_name(channel)
        if "!" not in channel:
            await run_blocking(self._routes.unbind, self._shared_name(channel), group)
        elif (token := _find_token(channel)) != self._own_inbox().token:
            await run_blocking(self._change_elsewhere, Kind.LEAVE, group, channel, token)
        elif self._own_inbox().leave(group, channel):
            await run_blocking(self._own_inbox().settle, group)

    def _bind_shared(self, group: str, channel: str) -> None:
        try:
            self._routes.bind(self._open_shared(channel).name, group)
        except shmq.NoSuchQueue:
            self._forget_shared(channel)
            self._routes.bind(self._open_shared(channel).name, group)

    def _change_elsewhere(self, kind: Kind, group: str, channel: str, token: str) -> None:
        """Let another process change a group, before any message that is sent to it from now on."""
        if not self._routes.send(token, Envelope(kind, group, channel.encode())):
            log.info("The process of channel %s is gone or full: group %s stays", channel, group)
        elif kind is Kind.JOIN:
            try:
                self._routes.bind(self._routes.inbox_name(token), group)
            except shmq.NoSuchQueue:
                log.info("The process of channel %s has ended", channel)

    async def group_send(self, group: str, message: dict[str, Any]) -> None:
        """Send a message to the members of the group; those that are full drop and count it."""
        assert isinstance(message, dict), "message is not a dict"
        self.require_valid_group_name(group)
        body = Envelope(Kind.GROUP, group, pack_message(message)).pack()
        try:
            await self._call(self._routes.publish, body, group, self.expiry)
        except shmq.PublishRefused as error:
            full = len(error.refused)
            self._count_dropped(full)
            log.info(
                "%s of %s channels over capacity in group %s", full, error.delivered + full, group
            )

    # ---- the layer ----

    async def flush(self) -> None:
        """Delete all messages and groups, of every process."""
        await run_blocking(self._flush)

    def _flush(self) -> None:
        own = self._own_inbox()
        own.clear()
        self._close()
        self._routes.send_to_all(Envelope(Kind.FLUSH, "", b"").pack())
        self._routes.delete()
        broker = self._connection.broker
        for name in broker.queue_names():
            if name.startswith(f"{self.prefix}.channel."):
                try:
                    broker.delete_queue(name)
                except shmq.NoSuchQueue:
                    continue

    async def close(self) -> None:
        """Delete the inbox of this process, and close all connections; the next use opens them."""
        await run_blocking(self._close)
        await run_blocking(self._connection.close)

    def _close(self) -> None:
        self._own_inbox().close()
        for channel in list(self._shared):
            self._forget_shared(channel)
        self._routes.forget()


def _find_token(channel: str) -> str:
    """The token of the process in the name of its channel."""
    return channel.partition("!")[0].rpartition(".")[2]
