"""The manager of Socket.IO servers with asyncio."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from socketio.async_pubsub_manager import AsyncPubSubManager

from shmq.client.shared import loop_timer
from shmq.client.shared.blocking_calls import run_blocking
from shmq.extras.socketio.event_stream import AWAY, PAUSE, EventStream, Place

if TYPE_CHECKING:
    from shmq.client.remote.address import Tls


class AsyncShmqManager(AsyncPubSubManager):
    """A client manager for :class:`socketio.AsyncServer`; see `ShmqManager`."""

    name = "asyncshmq"

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
        super().__init__(channel=channel, write_only=write_only, logger=logger, json=json)
        self._events = EventStream(url, channel, token, tls)

    async def _publish(self, data: dict[str, Any]) -> None:
        text = self.json.dumps(data)
        if self._events.is_remote:
            await run_blocking(self._events.append, text)
        else:
            self._events.append(text)

    async def _listen(self) -> AsyncGenerator[str, None]:
        place = Place()
        while True:
            stream = None
            try:
                stream = await run_blocking(self._events.open)
                reader = stream.areader(place.find_start(stream), lapped="skip")
                async for record in reader:
                    if lost := place.move(reader):
                        self._report_lost(lost)
                    yield record.body
            except AWAY as error:
                self._get_logger().error("The stream of events is away: %s", error)
                if stream is None:
                    await loop_timer.sleep(PAUSE)
                else:
                    await run_blocking(self._events.forget, stream)

    def _report_lost(self, lost: int) -> None:
        self._get_logger().error("%s events were overwritten before this process read them", lost)
