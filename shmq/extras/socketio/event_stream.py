"""The stream through which the processes of a Socket.IO application tell each other of events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import shmq
from shmq.extras.frameworks.target import is_remote, parse_target
from shmq.extras.frameworks.task_queues import Connection
from shmq.fork_safe import new_lock

if TYPE_CHECKING:
    from shmq.client.remote.address import Tls

#: The stream's options: one partition, so that all processes see events in the same order.
_OPTIONS: Final[dict[str, Any]] = {"partitions": 1, "ring_bytes": 64 << 20}
#: The errors after which a process goes on with a new stream, or once its server is there again.
AWAY: Final = (shmq.StreamDeleted, shmq.NoSuchStream, shmq.ConnectionLost, shmq.ShuttingDown)
#: The pause before a process asks again for a stream that it could not open, in seconds.
PAUSE: Final = 1.0


class EventStream:
    """The stream of a channel, created at its first use, and again if it was deleted.

    ``url`` is a namespace, ``shmq://NAMESPACE``, or ``shmq://HOST:PORT`` of a server; ``token`` and
    ``tls`` are as for :func:`shmq.connect`.
    """

    def __init__(self, url: str | None, channel: str, token: str | None, tls: Tls) -> None:
        target = parse_target(url)
        self.is_remote = is_remote(target)
        self._connection = Connection(target, token, tls)
        self._name = shmq.escape_name(f"socketio.{channel}")
        self._lock = new_lock()
        self._opened: shmq.Stream | None = None

    def open(self) -> shmq.Stream:
        """The stream."""
        with self._lock:
            if self._opened is None:
                self._opened = self._connection.broker.ensure_stream(self._name, **_OPTIONS)
            return self._opened

    def forget(self, stream: shmq.Stream) -> None:
        """Open the stream again at its next use.

        Another thread may be using the handle: its last user closes it, by letting it go.
        """
        with self._lock:
            if self._opened is stream:
                self._opened = None

    def append(self, text: str) -> None:
        """Append an event, to a new stream if this one was deleted.

        Raises what :meth:`shmq.Stream.append` raises.
        """
        stream = self.open()
        try:
            stream.append(text)
        except (shmq.StreamDeleted, shmq.NoSuchStream):
            self.forget(stream)
            self.open().append(text)


class Place:
    """Where a process goes on in the stream, whichever stream has its name."""

    def __init__(self) -> None:
        self._identity: int | None = None
        self._position: dict[int, int] = {}
        self._lost = 0

    def find_start(self, stream: shmq.Stream) -> dict[int, int] | Literal["earliest", "latest"]:
        """Where to start: at the next event at first, and at the first one of a new stream."""
        before, self._identity = self._identity, stream.identity
        self._lost = 0
        if before is None:
            return "latest"
        return self._position if before == self._identity and self._position else "earliest"

    def move(self, reader: shmq.Reader | shmq.AsyncReader) -> int:
        """Note how far a reader has come; how many events it has lost since."""
        self._position = dict(reader.position)
        lost, self._lost = reader.lost - self._lost, reader.lost
        return lost
