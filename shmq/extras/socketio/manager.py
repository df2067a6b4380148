"""The manager of Socket.IO servers with threads, and of programs that only emit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from socketio.pubsub_manager import PubSubManager

from shmq.extras.socketio.event_stream import AWAY, PAUSE, Place
from shmq.extras.socketio.stream_manager import StreamManager
from shmq.native import _clock as time

#: The modes of servers without threads: a wait would block all of their greenlets.
_GREENLETS: Final = frozenset({"eventlet", "gevent", "gevent_uwsgi"})


class ShmqManager(StreamManager, PubSubManager):
    """A client manager for :class:`socketio.Server`, on a stream in shared memory.

    ``url`` is ``shmq://NAMESPACE``, or ``shmq://HOST:PORT`` of a server, which ``token`` and
    ``tls`` are for. ``channel``, ``write_only``, ``logger`` and ``json`` are as for the managers of
    python-socketio. Events are JSON. An emit whose event cannot be stored raises TypeError,
    :class:`~shmq.MessageTooLarge`, or another error of ``Stream.append``.
    """

    name = "shmq"

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
                self._report_away(error)
                if stream is None:
                    time.sleep(PAUSE)
                else:
                    self._events.forget(stream)
