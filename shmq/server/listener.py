"""The sockets a server listens on: one for each worker, all on one address and port.

A Unix socket, or one that the service manager has opened, is shared by the workers.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import ipaddress
import logging
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from shmq.errors import InvalidOption, ShmqError
from shmq.native._core import reserve_standard
from shmq.native.descriptors import open_file
from shmq.server.config.settings import Settings

log = logging.getLogger("shmq.server")

#: What `bind` begins with, for the path of a Unix socket.
UNIX: Final = "unix:"

#: The longest path of a Unix socket, in bytes: unix(7).
_LONGEST: Final = 107

#: Connections that wait for a worker to take them; the kernel may take fewer (somaxconn).
BACKLOG: Final = 4096

#: How long a process that has just ended may still occupy the address, in seconds.
PATIENCE: Final = 3.0


def refuse(settings: Settings, inherited: socket.socket | None = None) -> None:
    """Raise what `listen` would, without listening."""
    if inherited is not None:
        _reject_inherited(settings, inherited)
        return
    if settings.bind.startswith(UNIX):
        _reject_path(settings)
        _reject_taken(_get_path(settings))
    else:
        _reject_shared(*_resolve_admitted(settings))


def check(settings: Settings) -> None:
    """Raise what `refuse` would if nobody listened yet."""
    if settings.bind.startswith(UNIX):
        _reject_path(settings)
    else:
        family, address = _resolve_admitted(settings)
        try:
            _bound(family, address, shared=True).close()
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise _make_listen_error(address, error) from error


def listen(settings: Settings, inherited: socket.socket | None = None) -> list[socket.socket]:
    """A listening socket for each worker; or ``inherited``, which is open already, for all.

    The caller keeps them for as long as the server lives: connections that the kernel has
    queued for a dead worker are served by its successor. Raises :class:`~shmq.InvalidOption`
    for an invalid address, or one that is exposed without tokens and TLS, and
    :class:`~shmq.ShmqError` if listening fails.
    """
    if inherited is None and not settings.bind.startswith(UNIX):
        family, address = _resolve_admitted(settings)
        with _starting_on_port(settings.port):
            _reject_shared(family, address)
            return _open_sockets(settings, family, address)
    if inherited is None:
        _reject_path(settings)
        with _starting_beside(_get_path(settings)) as path:
            _reject_taken(path)
            inherited = _bound_to_path(path)
    else:
        _reject_inherited(settings, inherited)
    inherited.setblocking(False)
    reserve_standard()
    return [inherited, *(inherited.dup() for _ in range(settings.workers - 1))]


@contextlib.contextmanager
def _starting_on_port(port: int) -> Iterator[None]:
    """Be the only server that is about to listen on the port.

    The servers of one port would share it: each sees only those that listen already. The lock is an
    abstract Unix socket, because these belong to a network namespace, as ports do. A port that the
    kernel chooses needs none.
    """
    if not port:
        yield
        return
    reserve_standard()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as lock:
        name = f"\0shmq.listen.{os.getuid()}.{port}"  # ports are shared by one user's sockets
        _until_free(lambda: lock.bind(name), f"port {port}")
        yield


@contextlib.contextmanager
def _starting_beside(path: Path) -> Iterator[Path]:
    """Be the only server that is about to listen on a path in its folder."""
    try:
        folder = open_file(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _make_listen_error(str(path), error) from error
    try:
        _until_free(lambda: fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB), str(path))
        yield path
    finally:
        os.close(folder)


def _until_free(lock: Callable[[], None], where: str) -> None:
    """Take the lock that another server has while it starts. Raises ShmqError.

    Without it where the host or the file system has no such locks.
    """
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return lock()
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EAGAIN):
                return None
            if time.monotonic() > until:
                raise ShmqError(
                    f"cannot listen on {where}: another server has been starting there for more "
                    f"than {PATIENCE:g} s; if it is stopped, continue or end it"
                ) from error
        time.sleep(0.05)


def _open_sockets(
    settings: Settings, family: socket.AddressFamily, address: Any
) -> list[socket.socket]:
    opened: list[socket.socket] = []
    try:
        while len(opened) < settings.workers:
            opened.append(_bound(family, address, shared=True))
            opened[-1].listen(BACKLOG)
            address = opened[0].getsockname()
    except OSError as error:
        for each in opened:
            each.close()
        raise _make_listen_error(address, error) from error
    return opened


def url_of(listening: socket.socket, *, tls: bool) -> str:
    """The URL of the server."""
    if listening.family == socket.AF_UNIX:
        return f"shmq+unix://{quote(listening.getsockname())}"
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    return f"{'shmqs' if tls else 'shmq'}://{shown}:{port}"


def remove(settings: Settings) -> None:
    """Remove the file of the Unix socket that `listen` has made, if it made one."""
    if settings.bind.startswith(UNIX):
        _get_path(settings).unlink(missing_ok=True)


def _get_path(settings: Settings) -> Path:
    return Path(settings.bind.removeprefix(UNIX))


def _reject_path(settings: Settings) -> None:
    """Refuse a path that cannot be a socket's."""
    path = _get_path(settings)
    if not path.is_absolute() or len(os.fsencode(path)) > _LONGEST:
        raise InvalidOption(
            f"bind={settings.bind!r} must be unix: and an absolute path of at most {_LONGEST} bytes"
        )
    if settings.tls is not None:
        raise InvalidOption(
            f"bind={settings.bind!r} and TLS: a Unix socket leaves no host and needs none; drop one"
        )
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise InvalidOption(
                f"bind={settings.bind!r}: there is a file that is not a socket; move it"
            )
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise InvalidOption(
                f"bind={settings.bind!r}: there is no folder {str(path.parent)!r}; create it"
            ) from None
    except OSError as error:
        raise _make_listen_error(str(path), error) from error
    if not os.access(path.parent, os.W_OK | os.X_OK, effective_ids=True):
        raise InvalidOption(
            f"bind={settings.bind!r}: this user may not create a file in {str(path.parent)!r}; "
            f"change its owner or mode, or take another path"
        )


def _reject_taken(path: Path) -> None:
    """Refuse a path at which a server listens."""
    reserve_standard()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        if probe.connect_ex(str(path)) in (0, errno.EAGAIN):
            taken = OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
            raise _make_listen_error(str(path), taken)


def _bound_to_path(path: Path) -> socket.socket:
    """A socket that only this user can connect to. One that a dead server left is replaced."""
    reserve_standard()
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        path.unlink(missing_ok=True)
        made.bind(str(path))
        path.chmod(0o600)  # nobody connects before it listens
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        raise _make_listen_error(str(path), error) from error
    return made


def _reject_inherited(settings: Settings, inherited: socket.socket) -> None:
    """Refuse what the service manager passed if it is not what a server listens on."""
    listens = inherited.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if inherited.type != socket.SOCK_STREAM or not listens:
        raise InvalidOption("the inherited socket does not listen: the unit needs ListenStream=")
    if inherited.family != socket.AF_UNIX:
        _reject_exposure(settings, inherited.getsockname()[0])


def _resolve_admitted(settings: Settings) -> tuple[socket.AddressFamily, Any]:
    """The address to bind, looked up once: what is checked is what is bound."""
    family, address = _resolve(settings)
    _reject_exposure(settings, address[0])
    return family, address


def _resolve(settings: Settings) -> tuple[socket.AddressFamily, Any]:
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
            f"bind={settings.bind!r} is not an address of this host: {error}"
        ) from error
    family, *_, address = found[0]
    return family, address


def _reject_exposure(settings: Settings, host: str) -> None:
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


def _reject_shared(family: socket.AddressFamily, address: Any) -> None:
    """Refuse a port that another server listens on.

    A socket with SO_REUSEPORT would share the port with that server, and half of the clients
    would end up there. So a socket without it is bound first, and closed. A port that the
    kernel chooses needs no such check.
    """
    if not address[1]:
        return
    until = time.monotonic() + PATIENCE
    while True:
        try:
            _bound(family, address, shared=False).close()
            return
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > until:
                raise _make_listen_error(address, error) from error
            time.sleep(0.05)


def _bound(family: socket.AddressFamily, address: Any, *, shared: bool) -> socket.socket:
    reserve_standard()
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


def _make_listen_error(address: str | tuple[Any, ...], error: OSError) -> ShmqError:
    taken = error.errno == errno.EADDRINUSE
    unix = isinstance(address, str)
    hint = f": stop what listens there, or take another {'path' if unix else 'port'}"
    where = address if unix else f"{address[0]} port {address[1]}"
    return ShmqError(f"cannot listen on {where}: {error.strerror}{hint if taken else ''}")
