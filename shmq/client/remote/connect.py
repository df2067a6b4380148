"""Making a connection: TCP, TLS and the handshake."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Callable
from typing import Any

from shmq import errors
from shmq.client.remote import tls
from shmq.client.remote.address import Target
from shmq.native import _core
from shmq.protocol.messages.queue import Greeting, Hello
from shmq.protocol.opcodes import Feature, Status, Type
from shmq.protocol.status import error_of, error_of_status

__all__ = ["dial"]

#: The longest recv before the next check of signals and deadlines, as setsockopt takes it.
_SLICE = struct.pack("ll", 0, 250_000)
_READ = 1 << 16

_TRUST = "; whom to trust is said by tls= or --cafile"


def dial(
    target: Target, name: str, queue: Callable[[], Any], timeout: float
) -> tuple[_core.Wire, Greeting]:
    """One attempt to connect within ``timeout`` seconds.

    Raises :class:`~shmq.ConnectionLost` with host, port and the reason,
    :class:`~shmq.Unauthorized`, and :class:`~shmq.InvalidOption` for TLS files that cannot
    be used.
    """
    until = time.monotonic() + timeout
    context = tls.context(target.tls) if target.address.tls else None
    try:
        sock = socket.create_connection((target.address.host, target.address.port), timeout)
    except OSError as error:
        raise _unreachable(target, error) from error
    try:
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


def _shake_hands(sock: socket.socket, context: Any, target: Target, until: float) -> tls.Seal:
    seal = tls.Seal(context, target.address.host)
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
    hello = wire.request(Type.HELLO, False, Hello("shmq", target.token).pack())
    answered = wire.wait(hello, timeout)
    what = f"{target.address}"
    if not answered or hello.lost:
        if wire.fatal:
            raise error_of_status(wire.fatal, what, wire.problem or "")
        why = wire.problem if answered else f"no answer to HELLO within {timeout:.3g} s"
        hint = _hint(target, why or "") if answered else ""
        raise errors.ConnectionLost(f"cannot connect to {what}: {why}{hint}")
    if hello.status != Status.OK:
        raise error_of(hello, what)
    try:
        greeting = Greeting.unpack(hello, target.address.netloc)
        wire.max_frame = greeting.max_frame
    except (errors.ServerError, ValueError, TypeError, OverflowError) as error:
        raise errors.ConnectionLost(
            f"cannot connect to {what}: its answer to HELLO makes no sense: {error}"
        ) from error
    wire.returns = Feature.RETURN in {feature.lower() for feature in greeting.features}
    wire.tells = Feature.HANDED in greeting.features
    return greeting


def _hint(target: Target, why: str) -> str:
    """A hint at the cause if a connection was lost before the first answer."""
    if not target.address.tls:
        return "; if the server wants TLS, the URL begins with shmqs://"
    if "CERTIFICATE" in why:
        return "; the server wants a certificate of one's own that it knows: tls= or --cert"
    return ""


def _unreachable(target: Target, error: OSError) -> errors.ConnectionLost:
    error = errors.no_descriptor(error)
    why = "no answer in time" if isinstance(error, TimeoutError) else (error.strerror or str(error))
    hint = ""
    if isinstance(error, ConnectionRefusedError):
        hint = "; is `shmq serve` running there?"
    elif isinstance(error, ssl.SSLCertVerificationError):
        why, hint = f"its certificate is refused: {error.verify_message}", _TRUST
    elif isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        why, hint = "what answers there speaks no TLS", "; a server without it is at shmq://"
    return errors.ConnectionLost(f"cannot connect to {target.address}: {why}{hint}")
