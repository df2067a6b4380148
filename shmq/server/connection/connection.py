"""The life of a connection; subclasses add how its bytes are encoded."""

from __future__ import annotations

import abc
import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final

from shmq.host.supervision.heartbeat import SharedNumbers
from shmq.native._core import ENDING, GONE, PAUSED, WANTS_WRITE, Session

log = logging.getLogger("shmq.server")

#: How long input is discarded after the last byte was sent, in seconds. Closing a socket with
#: unread input at once would reset the connection, and the peer would lose that byte.
DISCARDING: Final = 2.0

_CHUNK: Final = 1 << 16


class Connection(abc.ABC):
    """A connection between its socket and its session.

    It goes through three states: open; ending, in which it reads nothing more and sends the
    remaining output; and discarding, half-closed, until the peer closes or `DISCARDING` is
    over. ``on_closed`` is called once, when the socket is closed.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        session: Session,
        on_closed: Callable[[Connection], None],
    ) -> None:
        self.session = session
        #: Called when the session has ended, before the socket is closed; maybe twice.
        self.left: Callable[[Session], None] = lambda _: None
        #: Since when the peer has read nothing of the pending output, in the loop's time;
        #: None: no output is pending.
        self.stalled_since: float | None = None
        self._loop = loop
        self._socket = sock
        self._fd = sock.fileno()
        self._on_closed = on_closed
        self._flags = 0
        self._ending = False
        self._discarding: asyncio.TimerHandle | None = None
        self._closed = False
        loop.add_reader(self._fd, self._readable)

    # ---- how the bytes are encoded ----

    @abc.abstractmethod
    def _readable(self) -> None:
        """Pass the received bytes to the session, and apply the flags that it returns."""

    @abc.abstractmethod
    def _writable(self) -> None:
        """Send more of the session's output, and apply the flags that it returns."""

    def _finish_output(self) -> bool:
        """Send what follows the session's output; return whether all of it is sent."""
        return True

    # ---- called by its owner ----

    def send_output(self) -> None:
        """Handle that the session has output or has to end."""
        if not self._closed and self._discarding is None:
            self._write()

    def end(self) -> None:
        """End the connection once its pending output is sent."""
        self._ending = True
        if not self._closed and self._discarding is None:
            self._apply(self._flags)

    def close(self) -> None:
        """End it now. The leases of its session are returned at once. May be called again."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        if self._discarding is not None:
            self._discarding.cancel()
        try:
            self._end_session()
        finally:
            self._socket.close()
            self._on_closed(self)

    # ---- for subclasses ----

    def _fail(self, error: Exception) -> None:
        """Log a fault of the server, and end this connection only."""
        log.error("%s: connection closed: internal error", self.session.context, exc_info=error)
        self.close()

    def _apply(self, flags: int) -> None:
        """Start or stop reading and writing, or end, as the session's ``flags`` say."""
        if self._ending:
            flags |= ENDING
        if flags & GONE:
            self.close()
            return
        if flags & ENDING and not flags & WANTS_WRITE:
            if self._finish_output():
                self._close_half()
            return
        if flags != self._flags:
            self._change(flags)

    def _change(self, flags: int) -> None:
        changed, self._flags = flags ^ self._flags, flags
        if changed & (PAUSED | ENDING):
            if flags & (PAUSED | ENDING):
                self._loop.remove_reader(self._fd)
            else:
                self._loop.add_reader(self._fd, self._readable)
        if changed & WANTS_WRITE:
            if flags & WANTS_WRITE:
                self.stalled_since = self._loop.time()
                self._loop.add_writer(self._fd, self._on_writable)
            else:
                self.stalled_since = None
                self._loop.remove_writer(self._fd)

    def _on_writable(self) -> None:
        if self.stalled_since is not None:
            self.stalled_since = self._loop.time()
        self._write()

    def _write(self) -> None:
        try:
            self._writable()
        except Exception as error:  # noqa: BLE001 - it ends this connection alone
            self._fail(error)

    def _end_session(self) -> None:
        self.session.close()
        self.left(self.session)

    def _close_half(self) -> None:
        self._end_session()
        self.stalled_since = None
        self._loop.remove_writer(self._fd)
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.close()
            return
        self._discarding = self._loop.call_later(DISCARDING, self.close)
        self._loop.add_reader(self._fd, self._discard)

    def _discard(self) -> None:
        try:
            if self._socket.recv(_CHUNK):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self.close()


class PlainConnection(Connection):
    """A connection whose socket the engine itself reads and writes."""

    def _readable(self) -> None:
        try:
            flags = self.session.readable(self._fd)
            if flags or self._flags:
                self._apply(flags)
        except Exception as error:  # noqa: BLE001 - it ends this connection alone
            self._fail(error)

    def _writable(self) -> None:
        self._apply(self.session.writable(self._fd))


class ConnectionCounts(SharedNumbers):
    """The connections and the failed logins of each worker, in memory that all of them share.

    Only its own worker writes a number. Two workers that check at the same moment may both find
    room for the last connection.
    """

    NAME = "shmq-connections"

    @classmethod
    def of(cls, workers: int) -> ConnectionCounts:
        """The numbers of so many workers."""
        return cls(2 * workers)

    def total(self) -> int:
        """The connections of all workers."""
        return sum(self.numbers[0::2])

    def write(self, row: int, count: int) -> None:
        """Set the number of a worker's connections."""
        self.numbers[2 * row] = count

    @property
    def failed_logins(self) -> int:
        """The failed logins of all workers since the server has started."""
        return sum(self.numbers[1::2])

    def login_failed(self, row: int) -> None:
        """Count a failed login of a worker."""
        self.numbers[2 * row + 1] += 1
