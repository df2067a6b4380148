"""The client of NATS, which closes each connection that it gives up."""

from __future__ import annotations

from typing import Any

import nats.aio.client

__all__ = ["Client"]


class Client(nats.aio.client.Client):
    """A client that leaves no socket open to a server that accepted it and then said nothing."""

    async def _connect_to_server(self, s: Any) -> None:
        transport: Any = self._transport
        if transport is not None:
            transport.close()
        await super()._connect_to_server(s)
