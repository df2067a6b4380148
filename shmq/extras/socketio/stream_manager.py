"""What the managers of servers with threads and with asyncio have in common."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import shmq
from shmq.extras.socketio.event_stream import EventStream

if TYPE_CHECKING:
    from shmq.client.remote.address import Tls


class StreamManager:
    """The stream of a manager, and what is logged of it.

    Among the bases of a manager it comes before the class of python-socketio.
    """

    def __init__(
        self,
        url: str | None = "shmq://",
        channel: str = "socketio",
        write_only: bool = False,
        logger: Any = None,
        json: Any = None,
        *,
        token: str | None = None,
        tls: Tls = None,
    ) -> None:
        super().__init__(  # type: ignore[call-arg]
            channel=channel, write_only=write_only, logger=logger, json=json
        )
        self._events = EventStream(url, channel, token, tls)

    if TYPE_CHECKING:

        def _get_logger(self) -> logging.Logger: ...

    def _report_lost(self, lost: int) -> None:
        self._get_logger().error("%s events were overwritten before this process read them", lost)

    def _report_away(self, error: shmq.ShmqError) -> None:
        self._get_logger().error("The stream of events is away: %s", error)
