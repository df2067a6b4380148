"""The private names of nats-py that the NATS client uses; no other module uses one.

nats-py's public API puts each message into a queue, from which a task calls back, and each request
into a task: that costs more than the rest of a call. It also leaves a socket open that it gives
up. The names, and why each is needed; a test checks that nats-py still has each of them as it is
used:

``_process_msg``
    Called with each message that is parsed: `PrivateClient.take` calls back from it.
``_process_headers``, ``_parse_header_lines``
    Parse the headers of a message. The second is replaced: nats-py's takes seven times as long.
``_remove_sub``
    Called at the end of a subscription, by whatever ended it: its callback is forgotten.
``_error_cb``
    The callback of errors, which gets what a callback of a message raises.
``Subscription._id``
    The number of a subscription, by which `_process_msg` says whose a message is.
``_server_info``
    The version of the server, and whether it has a cluster and JetStream.
``_status``, ``_transport``, ``_pending``, ``_pending_data_size``, ``_flush_queue``
    Whether it is connected, the socket, what waits to be written to it, and what wakes the task
    that writes: a command is written without a task, and what waits before a flush's ping.
``_connect_to_server``
    Called before each attempt to connect: it closes the socket of the attempt before.
``_process_pong``, ``_pongs``
    The answer to a flush, which would end the connection if that flush was cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import nats.aio.client
from nats.aio.client import DEFAULT_FLUSH_TIMEOUT
from nats.aio.msg import Msg

#: With so many bytes that are not sent yet, nothing is sent at once.
_MOST_UNSENT: Final = 1 << 20


class PrivateClient(nats.aio.client.Client):
    """A client that delivers and sends without a task.

    It leaves no socket open to a server that accepted it and then said nothing, and outlives a
    flush that is cancelled or times out. A flush confirms all that came before it.
    """

    def __init__(self) -> None:
        super().__init__()
        #: Who takes the messages of a subscription while they are parsed, by its number.
        self._takers: dict[int, Callable[[Msg], None]] = {}

    async def take(self, subject: str, taker: Callable[[Msg], None]) -> Any:
        """Subscribe; the taker must be quick, and is called while bytes are parsed."""

        async def unused(_: Msg) -> None:
            raise AssertionError("a message came by the queue of the subscription")

        subscription = await self.subscribe(subject, cb=unused)
        self._takers[subscription._id] = taker
        return subscription

    async def _process_msg(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes
    ) -> None:
        taker = self._takers.get(sid)
        if taker is None:
            await super()._process_msg(sid, subject, reply, data, headers)
            return
        found = await self._process_headers(headers) if headers else None
        try:
            taker(Msg(self, subject.decode(), reply.decode(), data, found))
        except Exception as error:  # noqa: BLE001 - as of any callback
            await self._error_cb(error)  # raised, it would end the reading of the connection

    def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
        self._takers.pop(sid, None)
        super()._remove_sub(sid, max_msgs)

    @staticmethod
    def _parse_header_lines(raw: bytes) -> dict[str, str]:
        found = {}
        for line in raw.decode("utf-8", "replace").split("\r\n"):
            name, colon, value = line.partition(":")
            name = name.strip()
            if colon and name.isascii() and " " not in name and "\t" not in name:
                found[name] = value.strip()
        return found

    @property
    def server_info(self) -> dict[str, Any]:
        """What the server says about itself."""
        return self._server_info

    def write(self, command: bytes, size: int, is_alone: bool) -> bool:
        """Write a command now if possible; return whether it was written.

        ``size`` is that of the body. ``is_alone``: at once, unless others wait.
        """
        if (
            self._status != self.CONNECTED
            or self._pending_data_size > _MOST_UNSENT
            or size > self.max_payload
            or self._flush_queue is None
            or self._transport is None
        ):
            return False
        if is_alone and not self._pending:
            self._transport.write(command)
            return True
        self._pending.append(command)
        self._pending_data_size += len(command)
        if self._flush_queue.empty():
            self._flush_queue.put_nowait(asyncio.get_running_loop().create_future())
        return True

    async def flush(self, timeout: int = DEFAULT_FLUSH_TIMEOUT) -> None:
        """Return once the server has all that was written before.

        The ping of nats-py overtakes the commands that wait to be written, and its pong would
        confirm them, such as the end of a subscription that is drained.
        """
        if self._pending and self._status == self.CONNECTED and self._transport is not None:
            self._transport.writelines(self._pending)
            self._pending, self._pending_data_size = [], 0
        await super().flush(timeout)

    async def _connect_to_server(self, s: Any) -> None:
        self._close_socket()
        await super()._connect_to_server(s)

    async def _process_pong(self) -> None:
        if self._pongs and self._pongs[0].done():  # setting its result would end the connection
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()

    async def close(self) -> None:
        """End it, also in the middle of a first attempt."""
        try:
            await super().close()
        finally:
            self._close_socket()

    def _close_socket(self) -> None:
        transport: Any = self._transport
        if transport is not None:
            transport.close()
