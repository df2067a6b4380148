"""Making a connection: TCP, TLS and the handshake."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable
from typing import Any

from shmq import errors
from shmq.client.remote.address import Address, Target, tls_context
from shmq.native import _clock as time
from shmq.native import _core
from shmq.native._core import reserve_standard
from shmq.protocol.messages.queue import Greeting, Hello
from shmq.protocol.opcodes import Status, Type
from shmq.protocol.status import error_of, error_of_status

#: The longest recv before the next check of signals and deadlines, as setsockopt takes it.
_SLICE = struct.pack("ll", 0, 250_000)
_READ = 1 << 16

_TRUST = "; name the certificates to trust by tls= or --cafile"


def dial(
    target: Target, name: str, queue: Callable[[], Any], timeout: float
) -> tuple[_core.Wire, Greeting]:
    """One attempt to connect within ``timeout`` seconds.

    Raises :class:`~shmq.ConnectionLost` with host, port and the reason,
    :class:`~shmq.Unauthorized`, and :class:`~shmq.InvalidOption` for TLS files that cannot
    be used.
    """
    until = time.monotonic() + timeout
    context = tls_context(target.tls) if target.address.tls else None
    try:
        sock = _open_socket(target.address, timeout)
    except OSError as error:
        raise _unreachable(target, error) from error
    try:
        if not target.address.path:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        seal = None if context is None else _shake_hands(sock, context, target, until)
        sock.setblocking(True)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _SLICE)
        wire = _core.Wire(sock, name.encode(), queue, seal)
        return wire, _greet(wire, target, max(0.001, until - time.monotonic()))
    except errors.ShmqError:
        sock.close()
        raise
    except OSError as error:
        sock.close()
        raise _unreachable(target, error) from error
    except BaseException:
        sock.close()
        raise


def _open_socket(address: Address, timeout: float) -> socket.socket:
    reserve_standard()
    if not address.path:
        return socket.create_connection((address.host, address.port), timeout)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.settimeout(timeout)
        made.connect(address.path)
    except BaseException:
        made.close()
        raise
    return made


def _shake_hands(sock: socket.socket, context: Any, target: Target, until: float) -> Seal:
    seal = Seal(context, target.address.host)
    done, out = seal.shake_hands(None)
    while True:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        sock.settimeout(left)
        if out:
            sock.sendall(out)
        if done:
            return seal
        sealed = sock.recv(_READ)
        if not sealed:
            raise ConnectionError("the server ended the TLS handshake")
        done, out = seal.shake_hands(sealed)


def _greet(wire: _core.Wire, target: Target, timeout: float) -> Greeting:
    hello = wire.request(Type.HELLO, False, Hello("shmq", target.token, target.supervised).pack())
    answered = wire.wait(hello, timeout)
    what = f"{target.address}"
    if target.token is None and Status.UNAUTHORIZED in {wire.fatal, hello.status}:
        raise errors.Unauthorized(
            f"the server of {what} requires a token: pass token= or set SHMQ_TOKEN"
        )
    if not answered or hello.lost:
        if wire.fatal:
            raise error_of_status(wire.fatal, what, wire.problem or "")
        why = wire.problem if answered else f"no answer to HELLO within {timeout:.3g} s"
        hint = _make_hint(target, why or "") if answered else ""
        raise errors.ConnectionLost(f"cannot connect to {what}: {why}{hint}")
    if hello.status != Status.OK:
        raise error_of(hello, what)
    try:
        greeting = Greeting.unpack(hello, target.address.netloc)
        wire.max_frame = greeting.max_frame
        wire.extended = greeting.extended
    except (errors.ServerError, ValueError, TypeError, OverflowError) as error:
        raise errors.ConnectionLost(
            f"cannot connect to {what}: its answer to HELLO makes no sense: {error}"
        ) from error
    return greeting


def _make_hint(target: Target, why: str) -> str:
    """A hint at the cause if a connection was lost before the first answer."""
    if target.address.path:
        return ""
    if not target.address.tls:
        return "; if the server wants TLS, the URL begins with shmqs://"
    if "CERTIFICATE" in why:
        return "; the server requires a client certificate that it knows: tls= or --cert"
    return ""


def _unreachable(target: Target, error: OSError) -> errors.ConnectionLost:
    error = errors.no_descriptor(error)
    why = "no answer in time" if isinstance(error, TimeoutError) else (error.strerror or str(error))
    hint = ""
    if isinstance(error, ConnectionRefusedError | FileNotFoundError):
        hint = "; is `shmq serve` running there?"
    elif isinstance(error, ssl.SSLCertVerificationError):
        why, hint = f"its certificate is refused: {error.verify_message}", _TRUST
    elif isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        why, hint = "what answers there speaks no TLS", "; a server without it is at shmq://"
    return errors.ConnectionLost(f"cannot connect to {target.address}: {why}{hint}")


class Seal:
    """The client's side of one TLS connection; its socket is read and written elsewhere.

    One thread may seal while another opens: they take turns, because an SSL object serves one
    thread at a time, and it works without the GIL.
    """

    def __init__(self, made: ssl.SSLContext, host: str) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = made.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._turn = threading.RLock()  # a signal's handler may send while its thread reads

    def shake_hands(self, sealed: bytes | None) -> tuple[bool, bytes]:
        """Take the next step with the peer's bytes: whether it was the last, and what to send."""
        if sealed is not None:
            self._incoming.write(sealed)
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False, self._outgoing.read()
        return True, self._outgoing.read()

    def seal(self, plain: bytes) -> bytes:
        """The encrypted bytes to send."""
        view = memoryview(plain)
        with self._turn:
            while view:
                view = view[self._object.write(view) :]
            return self._outgoing.read()

    def open(self, sealed: bytes) -> bytes | None:
        """The decrypted bytes, perhaps none yet; None if the peer has ended. Raises SSLError."""
        parts = []
        with self._turn:
            self._incoming.write(sealed)
            try:
                while part := self._object.read(_READ):
                    parts.append(part)
            except ssl.SSLWantReadError:
                return b"".join(parts)
        return b"".join(parts) or None
