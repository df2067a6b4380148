"""The sockets a server listens on: one for each worker, all on one address and port."""

from __future__ import annotations

import errno
import ipaddress
import logging
import socket
import time
from typing import Any, Final

from shmq.errors import InvalidOption, ShmqError
from shmq.server.config.settings import Settings

__all__ = ["listen", "refuse", "url_of"]

log = logging.getLogger("shmq.server")

#: Connections that wait for a worker to take them; the kernel may take fewer (somaxconn).
BACKLOG: Final = 4096

#: How long a process that has just ended may still occupy the address, in seconds.
PATIENCE: Final = 3.0


def refuse(settings: Settings) -> None:
    """Raise what `listen` would, without listening."""
    family, address = _resolved(settings)
    _refuse_exposure(settings, address[0])
    if address[1]:
        _refuse_shared(family, address)


def listen(settings: Settings) -> list[socket.socket]:
    """A listening socket for each worker.

    The caller keeps them for as long as the server lives: connections that the kernel has
    queued for a dead worker are served by its successor. Raises :class:`~shmq.InvalidOption`
    for an invalid address, or one that is exposed without tokens and TLS, and
    :class:`~shmq.ShmqError` if listening fails.
    """
    family, address = _resolved(settings)
    _refuse_exposure(settings, address[0])
    if address[1]:
        _refuse_shared(family, address)
    opened: list[socket.socket] = []
    try:
        while len(opened) < settings.workers:
            opened.append(_bound(family, address, shared=True))
            opened[-1].listen(BACKLOG)
            address = opened[0].getsockname()
    except OSError as error:
        for each in opened:
            each.close()
        raise _cannot_listen(address, error) from error
    return opened


def url_of(listening: socket.socket, *, tls: bool) -> str:
    """The URL of the server."""
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{'shmqs' if tls else 'shmq'}://{shown}:{port}"


def _resolved(settings: Settings) -> tuple[socket.AddressFamily, Any]:
    try:
        found = socket.getaddrinfo(
            settings.bind,
            settings.port,
            type=socket.SOCK_STREAM,
            proto=socket.IPPROTO_TCP,
            flags=socket.AI_PASSIVE,
        )
    except (OSError, UnicodeError) as error:
        raise InvalidOption(
            f"bind={settings.bind!r} is no address of this host: {error}"
        ) from error
    family, *_, address = found[0]
    return family, address


def _refuse_exposure(settings: Settings, host: str) -> None:
    """Refuse to listen beyond this host without tokens and TLS, unless ``insecure`` is set."""
    if settings.insecure or ipaddress.ip_address(host.partition("%")[0]).is_loopback:
        return
    wanting = [
        what for what, there in (("tokens", settings.tokens), ("TLS", settings.tls)) if not there
    ]
    if wanting:
        raise InvalidOption(
            f"bind={settings.bind!r} would let other hosts in without {' and '.join(wanting)}: "
            f"set {'them' if len(wanting) > 1 else 'it'} up in the configuration, listen on "
            f"127.0.0.1, or say --insecure where the network keeps others out"
        )


def _refuse_shared(family: socket.AddressFamily, address: Any) -> None:
    """Refuse a port that another server listens on.

    A socket with SO_REUSEPORT would share the port with that server, and half of the clients
    would end up there. So a socket without it is bound first, and closed. A port that the
    kernel chooses needs no such check.
    """
    until = time.monotonic() + PATIENCE
    while True:
        try:
            _bound(family, address, shared=False).close()
            return
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > until:
                raise _cannot_listen(address, error) from error
            time.sleep(0.05)


def _bound(family: socket.AddressFamily, address: Any, *, shared: bool) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.bind(address)
    except BaseException:
        made.close()
        raise
    return made


def _cannot_listen(address: Any, error: OSError) -> ShmqError:
    taken = error.errno == errno.EADDRINUSE
    hint = ": stop what listens there, or take another port" if taken else ""
    return ShmqError(f"cannot listen on {address[0]} port {address[1]}: {error.strerror}{hint}")
