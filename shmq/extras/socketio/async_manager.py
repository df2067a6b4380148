"""The manager of Socket.IO servers with asyncio."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from socketio.async_pubsub_manager import AsyncPubSubManager

from shmq.client.shared import loop_timer
from shmq.client.shared.blocking_calls import run_blocking
from shmq.extras.socketio.event_stream import AWAY, PAUSE, Place
from shmq.extras.socketio.stream_manager import StreamManager


class AsyncShmqManager(StreamManager, AsyncPubSubManager):
    """A client manager for :class:`socketio.AsyncServer`; see `ShmqManager`."""

    name = "asyncshmq"

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
                self._report_away(error)
                if stream is None:
                    await loop_timer.sleep(PAUSE)
                else:
                    await run_blocking(self._events.forget, stream)
