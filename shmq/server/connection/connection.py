"""What carries a session's bytes: the life of a connection, but for how they are coded."""

from __future__ import annotations

import abc
import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final

from shmq.native._core import ENDING, GONE, PAUSED, WANTS_WRITE, Session

__all__ = ["Connection"]

log = logging.getLogger("shmq.server")

#: How long what still comes is discarded after the last byte was sent, in seconds: closed
#: at once, a socket with unread bytes would reset the connection and that byte be lost.
DISCARDING: Final = 2.0

_CHUNK: Final = 1 << 16


class Connection(abc.ABC):
    """A connection between its socket and its session.

    It goes through three states: open; ending, when nothing is read any more and what is
    left to send is sent; and discarding, half-closed, until the peer has closed or its time
    is over. ``gone`` is called once, when the socket is closed.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        session: Session,
        gone: Callable[[Connection], None],
    ) -> None:
        self.session = session
        #: Called when the session has ended, which is before the socket is closed; maybe twice.
        self.left: Callable[[Session], None] = lambda _: None
        #: Since when the peer has taken nothing of what is to be sent, in the loop's time;
        #: None: nothing is.
        self.stalled_since: float | None = None
        self._loop = loop
        self._socket = sock
        self._fd = sock.fileno()
        self._gone = gone
        self._flags = 0
        self._parting = False
        self._discarding: asyncio.TimerHandle | None = None
        self._closed = False
        loop.add_reader(self._fd, self._readable)

    # ---- how the bytes are coded ----

    @abc.abstractmethod
    def _readable(self) -> None:
        """Bytes have come: carry them in, and heed what comes of it."""

    @abc.abstractmethod
    def _writable(self) -> None:
        """Room has come: carry more out, and heed what comes of it."""

    def _last_words(self) -> bool:
        """All of the session's output is sent; whether nothing follows it."""
        return True

    # ---- what its owner asks ----

    def stir(self) -> None:
        """The session has something to send, or is to end."""
        if not self._closed and self._discarding is None:
            self._room()

    def part(self) -> None:
        """End the connection once what there is to send is sent."""
        self._parting = True
        if not self._closed and self._discarding is None:
            self._heed(self._flags)

    def close(self) -> None:
        """End it now. What its session had leased goes back at once. May be called again."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        if self._discarding is not None:
            self._discarding.cancel()
        self._end_session()
        self._socket.close()
        self._gone(self)

    # ---- for the kinds of carriers ----

    def _fail(self, error: Exception) -> None:
        """A fault of the server's own ends this connection, and is logged; others go on."""
        log.error("%s is cut off: a fault of this server", self.session.context, exc_info=error)
        self.close()

    def _heed(self, flags: int) -> None:
        """Read or not, write or not, or end, as the session's ``flags`` say."""
        if self._parting:
            flags |= ENDING
        if flags & GONE:
            self.close()
            return
        if flags & ENDING and not flags & WANTS_WRITE:
            if self._last_words():
                self._half_close()
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
                self._loop.add_writer(self._fd, self._moved)
            else:
                self.stalled_since = None
                self._loop.remove_writer(self._fd)

    def _moved(self) -> None:
        if self.stalled_since is not None:
            self.stalled_since = self._loop.time()
        self._room()

    def _room(self) -> None:
        try:
            self._writable()
        except Exception as error:  # noqa: BLE001 - it ends this connection alone
            self._fail(error)

    def _end_session(self) -> None:
        self.session.close()
        self.left(self.session)

    def _half_close(self) -> None:
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
