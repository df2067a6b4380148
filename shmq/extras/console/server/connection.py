"""A connection of the console: one that has sent no whole request in time is closed."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

#: How long the headers of a request may take, from the connection or their first byte, in seconds.
PATIENCE: Final = 30.0


class Connection(H11Protocol):
    """HTTP/1.1. Its body and its answer have bounds of their own, and so has an idle connection."""

    #: Closes the connection unless a whole request has come.
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a request that has begun; a whole one ends that."""
        super().data_received(data)
        if self._answers():
            self._wait_no_more()
        elif self._late is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._wait_no_more()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: Any) -> None:
        """Hand the connection on to a WebSocket."""
        super().handle_websocket_upgrade(event)
        self._wait_no_more()

    def _answers(self) -> bool:
        """Whether a request is being answered, or the connection is a WebSocket's."""
        upgraded = self.transport.get_protocol() is not self
        return upgraded or (self.cycle is not None and not self.cycle.response_complete)

    def _wait(self) -> None:
        self._late = self.loop.call_later(PATIENCE, self._end)

    def _wait_no_more(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _end(self) -> None:
        self._late = None
        if not self._answers():
            self.transport.close()
