"""The manager of Socket.IO servers with threads, and of programs that only emit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from socketio.pubsub_manager import PubSubManager

from shmq.extras.socketio.event_stream import AWAY, PAUSE, EventStream, Place
from shmq.native import _clock as time

if TYPE_CHECKING:
    from shmq.client.remote.address import Tls

#: The modes of servers without threads: a wait would block all of their greenlets.
_GREENLETS: Final = frozenset({"eventlet", "gevent", "gevent_uwsgi"})


class ShmqManager(PubSubManager):
    """A client manager for :class:`socketio.Server`, on a stream in shared memory.

    ``url`` is ``shmq://NAMESPACE``, or ``shmq://HOST:PORT`` of a server, which ``token`` and
    ``tls`` are for. ``channel``, ``write_only``, ``logger`` and ``json`` are as for the managers of
    python-socketio. Events are JSON. An emit whose event cannot be stored raises TypeError,
    :class:`~shmq.MessageTooLarge`, or another error of ``Stream.append``.
    """

    name = "shmq"

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

    def initialize(self) -> None:
        """Start to listen. Raises RuntimeError for a server of greenlets, which it would block."""
        if not self.write_only and self.server.async_mode in _GREENLETS:
            raise RuntimeError(
                f"async_mode={self.server.async_mode!r} has no threads to wait for events: use "
                f"async_mode='threading', or AsyncShmqManager with an AsyncServer"
            )
        super().initialize()

    def _publish(self, data: dict[str, Any]) -> None:
        self._events.append(self.json.dumps(data))

    def _listen(self) -> Iterator[str]:
        place = Place()
        while True:
            stream = None
            try:
                stream = self._events.open()
                reader = stream.reader(place.find_start(stream), lapped="skip")
                for record in reader:
                    if lost := place.move(reader):
                        self._report_lost(lost)
                    yield record.body
            except AWAY as error:
                self._get_logger().error("The stream of events is away: %s", error)
                if stream is None:
                    time.sleep(PAUSE)
                else:
                    self._events.forget(stream)

    def _report_lost(self, lost: int) -> None:
        self._get_logger().error("%s events were overwritten before this process read them", lost)
