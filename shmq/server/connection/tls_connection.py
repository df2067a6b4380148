"""A connection that is encrypted with TLS."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

from shmq.native._core import ENDING, GONE, PAUSED, WANTS_WRITE, Session, is_over
from shmq.server.connection.connection import Connection
from shmq.server.connection.peer import RateLimitedLog

log = logging.getLogger("shmq.server")
_limited_log = RateLimitedLog(log)

_CHUNK: Final = 1 << 16

#: How much is encrypted ahead of what the socket accepts, in bytes. The session holds the
#: output behind that, and bounds it.
_AHEAD: Final = 1 << 18

#: The session accepts no more input.
_NO_INPUT: Final = PAUSED | ENDING | GONE


class TlsConnection(Connection):
    """TLS between the socket and the session, without a transport.

    ``handshake`` is how long the TLS handshake may take, in seconds.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        session: Session,
        on_closed: Callable[[Connection], None],
        context: ssl.SSLContext,
        handshake: float,
    ) -> None:
        self._encrypted = ssl.MemoryBIO()
        self._to_send = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._encrypted, self._to_send, server_side=True)
        self._established = False
        #: The peer has ended its side of the connection.
        self._finished = False
        #: There is input left to decrypt that the session did not accept yet.
        self._held_back = False
        self._closed_tls = False
        self._unsent = memoryview(b"")
        self._state = 0
        super().__init__(loop, sock, session, on_closed)
        self._handshake_timer = loop.call_later(handshake, self._give_up)

    def _readable(self) -> None:
        try:
            self._receive()
            while not self._closed and not self._flags & _NO_INPUT and is_over(self._fd):
                self._receive()
        except Exception as error:  # noqa: BLE001 - it ends this connection alone
            self._fail(error)

    def _receive(self) -> None:
        try:
            came = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        if came:
            self._encrypted.write(came)
        else:
            self._encrypted.write_eof()
        if self._established or self._continue_handshake():
            self._decrypt()
        self._send_encrypted()

    def _writable(self) -> None:
        self._send_encrypted()

    def _continue_handshake(self) -> bool:
        """Continue the handshake; return whether it is done."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except (ssl.SSLError, OSError) as error:
            why = getattr(error, "verify_message", "") or getattr(error, "reason", "") or error
            _limited_log.warning("%s: TLS handshake failed: %s", self.session.context, why)
            self._flush()  # the alert that tells the peer why
            self._state = GONE
            return False
        self._established = True
        self._handshake_timer.cancel()
        return True

    def _give_up(self) -> None:
        _limited_log.warning("%s: connection closed: no TLS within handshake", self.session.context)
        self.close()

    def close(self) -> None:
        self._handshake_timer.cancel()
        super().close()

    def _decrypt(self) -> None:
        """Decrypt input and feed it to the session, as far as the session accepts it."""
        while not self._finished:
            self._held_back = bool(self._state & _NO_INPUT)
            if self._held_back:
                return
            try:
                clear = self._tls.read(_CHUNK)
            except ssl.SSLWantReadError:
                return
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
                clear = b""
            except (ssl.SSLError, OSError):  # not TLS: no answer is possible any more
                self._flush()  # the alert that tells the peer why
                self._state = GONE
                return
            if clear:
                self._state = self.session.feed(clear)
            else:
                self._finished = True
                self._state = self.session.finish()

    def _send_encrypted(self) -> None:
        """Encrypt and send, until nothing is left or the socket is full."""
        while not self._state & GONE:
            all_sent = self._send()
            if self._closed:
                return
            self._state = self.session.flags
            if not all_sent or not self._held_back or self._state & _NO_INPUT:
                break
            self._decrypt()
        if self._state & ENDING and not self._established:
            self._state |= GONE  # without TLS nothing can be sent to the peer
        left = WANTS_WRITE if self._unsent or self._to_send.pending else 0
        no_input = PAUSED if self._finished else 0
        self._apply(self._state & ~WANTS_WRITE | left | no_input)

    def _send(self) -> bool:
        """Send the session's output; return whether all of it is sent."""
        while self._flush():
            clear = self.session.take(_AHEAD) if self._established and not self._closed_tls else b""
            if not clear:
                return True
            left = memoryview(clear)
            try:
                while left:
                    left = left[self._tls.write(left) :]
            except ssl.SSLError:  # such as a peer that has vanished: TLS cannot be written any more
                self.close()
                return False
        return False

    def _flush(self) -> bool:
        """Send the encrypted bytes; return whether all of them are sent."""
        while True:
            if not self._unsent:
                self._unsent = memoryview(self._to_send.read(_AHEAD))
                if not self._unsent:
                    return True
            try:
                count = self._socket.send(self._unsent)
            except BlockingIOError:
                return False
            except OSError:
                self.close()
                return False
            self._unsent = self._unsent[count:]

    def _finish_output(self) -> bool:
        if self._established and not self._closed_tls:
            self._closed_tls = True
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()  # without waiting for the peer's close_notify
        if self._flush():
            return True
        if not self._closed:
            self._change(ENDING | WANTS_WRITE)
        return False
