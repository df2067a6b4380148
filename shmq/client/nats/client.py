"""The client of NATS, which closes each connection that it gives up."""

from __future__ import annotations

import asyncio
from typing import Any

import nats.aio.client

__all__ = ["Client"]


class Client(nats.aio.client.Client):
    """A client that leaves no socket open to a server that accepted it and then said nothing.

    It also outlives a flush that is cancelled, or that gives up.
    """

    def __init__(self) -> None:
        super().__init__()
        #: The inboxes for pulls that nobody uses now: see inbox.py.
        self.spare_inboxes: list[Any] = []

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
