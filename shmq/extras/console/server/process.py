"""The console as a process: it listens, answers until it is stopped, and ends within seconds."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import ssl
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

import shmq
from shmq.errors import InvalidOption, ShmqError
from shmq.extras.console.access import Access, Sessions
from shmq.extras.console.context import Console
from shmq.extras.console.leases import LeaseBook
from shmq.extras.console.observer import History, ObserverThread
from shmq.extras.console.server.app import application, metrics_application
from shmq.extras.console.settings import Address, ConsoleSettings
from shmq.host.supervision.audit import to_file
from shmq.host.supervision.descriptors import raise_descriptor_limit
from shmq.host.supervision.heartbeat import Heartbeat
from shmq.host.supervision.signals import ENDING, caught, end_with_parent, ended_by
from shmq.host.supervision.stderr import show_on_stderr, show_stack_on_demand
from shmq.native._core import reserve_standard
from shmq.server.config.settings import Source
from shmq.server.config.tokens import Token

#: How long the headers of a request may take, from the connection or their first byte, in seconds.
PATIENCE: Final = 30.0


class Connection(H11Protocol):
    """HTTP/1.1. Its body and its answer have bounds of their own, and so has an idle connection."""

    #: Closes the connection unless a whole request has come.
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a request that has started; a whole one ends that."""
        super().data_received(data)
        if self._answers():
            self._wait_no_more()
        elif self._late is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        self._wait_no_more()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: Any) -> None:
        """Hand the connection on to a WebSocket."""
        super().handle_websocket_upgrade(event)
        self._wait_no_more()

    def _answers(self) -> bool:
        """Whether a request is being answered, or the connection is a WebSocket's."""
        upgraded = self.transport.get_protocol() is not self
        return upgraded or (self.cycle is not None and not self.cycle.response_complete)

    def _wait(self) -> None:
        self._late = self.loop.call_later(PATIENCE, self._end)

    def _wait_no_more(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _end(self) -> None:
        self._late = None
        if not self._answers():
            self.transport.close()


log = logging.getLogger("shmq.console")

#: How long open requests may take to end, in seconds.
_GRACE: Final = 3
_BACKLOG: Final = 128
#: How long sent bytes may stay without an acknowledgement, in milliseconds.
_GONE_AFTER: Final = 60_000
#: Concurrent requests; one more gets the status 503.
_CONNECTIONS: Final = 1000
_KEEP_ALIVE: Final = 30
_MOST_HEADERS: Final = 128 << 10
_MOST_FRAME: Final = 1 << 20
_PING: Final = 20.0


class _Server(uvicorn.Server):
    """A server whose signals are caught by the process that runs it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Catch none."""
        yield


class ConsoleProcess:
    """Runs a console over ``broker``. For the main thread: `run` until a signal or `stop`.

    ``reread`` reads the tokens again, for SIGHUP. Raises :class:`~shmq.InvalidOption` for an
    address that cannot be used.
    """

    def __init__(
        self,
        broker: shmq.Broker,
        settings: ConsoleSettings,
        reread: Callable[[], tuple[Token, ...]] | None = None,
    ) -> None:
        self.console = Console(
            settings=settings,
            broker=broker,
            access=Access(settings.tokens),
            sessions=Sessions(),
            observer=ObserverThread(broker, History()),
            leases=LeaseBook(broker),
        )
        self._reread = reread
        self._servers: list[_Server] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._signal = 0
        #: Where it listens, as URLs; the port 0 is replaced by the one that was found.
        self.urls: list[str] = []

    def run(self) -> None:
        """Answer until `stop` or a signal; a second signal ends it at once.

        Raises the process's descriptor limit to what the system allows: it has all queues and
        partitions open.
        """
        raise_descriptor_limit()
        settings = self.console.settings
        tls = settings.tls.context() if settings.tls is not None else None
        with contextlib.ExitStack() as stack:
            # Who reads in the log that it listens may end it.
            stack.enter_context(caught(self._on_signal))
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
            places = self._listen(stack, tls)
            self.console.observer.start()
            stack.callback(self.console.leases.close)
            stack.callback(self.console.observer.stop)
            reserve_standard()
            asyncio.run(self._serve(places, tls))
        if self._signal:
            log.info("the console has ended")

    def stop(self) -> None:
        """Let `run` return once open requests have ended. For any thread."""
        self.console.ending.set()
        for server in self._servers:
            server.should_exit = True

    def _listen(
        self, stack: contextlib.ExitStack, tls: ssl.SSLContext | None
    ) -> list[tuple[ASGIApp, socket.socket]]:
        settings = self.console.settings
        made: list[tuple[ASGIApp, socket.socket]] = []
        if not settings.metrics_only:
            sock, url = _open_listener(settings.bind, stack, "https" if tls else "http")
            made.append((application(self.console), sock))
            self.urls.append(url + settings.prefix)
            log.info(
                "the console is at %s%s/: namespace %r%s",
                url,
                settings.prefix,
                self.console.broker.namespace,
                "" if settings.allow_changes else ", read-only",
            )
        address = settings.metrics_bind or (settings.bind if settings.metrics_only else None)
        if address is not None:
            sock, url = _open_listener(address, stack, "https" if tls else "http")
            made.append((metrics_application(self.console), sock))
            self.urls.append(f"{url}/metrics")
            log.info("metrics are at %s/metrics", url)
        return made

    async def _serve(
        self, places: list[tuple[ASGIApp, socket.socket]], tls: ssl.SSLContext | None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        for app, _ in places:
            self._servers.append(_Server(_make_config(app, tls)))
        if self.console.ending.is_set():
            self.stop()
        await asyncio.gather(
            *(server.serve([sock]) for server, (_, sock) in zip(self._servers, places, strict=True))
        )

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGHUP and self._reread is not None:
            self._reload()
            return
        if self._signal:
            raise ended_by(number)
        self._signal = number
        self.stop()

    def _reload(self) -> None:
        assert self._reread is not None
        try:
            tokens = self._reread()
        except (ShmqError, TypeError, OSError) as error:
            log.error("the settings are not reloaded: %s", error)
            return
        if bool(tokens) != self.console.access.asks:
            log.error("tokens cannot be added to a console without, or all be taken: restart it")
            return
        self.console.access.replace(tokens)
        log.info("tokens reloaded: %d", len(tokens))


def _make_config(app: ASGIApp, tls: ssl.SSLContext | None) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        http=Connection,
        server_header=False,
        proxy_headers=False,
        ws="websockets-sansio",
        ws_max_size=_MOST_FRAME,
        ws_ping_interval=_PING,
        ws_ping_timeout=_PING,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=_GRACE,
        h11_max_incomplete_event_size=_MOST_HEADERS,
    )
    config.load()
    config.ssl = tls
    return config


def _open_listener(
    address: Address, stack: contextlib.ExitStack, scheme: str
) -> tuple[socket.socket, str]:
    """A listening socket, and its URL. Raises InvalidOption."""
    try:
        if address.path is not None:
            return _open_unix(Path(address.path), stack), str(address)
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        reserve_standard()
        sock = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections have it from here: without it an answer waits 40 ms for the reader's ACK.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A reader that takes nothing for so long is gone, with what it was to receive.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _GONE_AFTER)
        sock.bind((address.host, address.port))
        sock.listen(_BACKLOG)
    except OSError as error:
        raise InvalidOption(
            f"bind={str(address)!r}: {error.strerror or error}: choose another address"
        ) from error
    found = Address(address.host, sock.getsockname()[1])
    return sock, f"{scheme}://{found}"


def _open_unix(path: Path, stack: contextlib.ExitStack) -> socket.socket:
    """A Unix socket of mode 0600; one that an ended process left is replaced."""
    reserve_standard()
    sock = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    _remove_left(path)
    before = os.umask(0o177)
    try:
        sock.bind(str(path))
    finally:
        os.umask(before)
    identity = _read_identity(path)

    def remove() -> None:
        with contextlib.suppress(OSError):
            if _read_identity(path) == identity:
                path.unlink()

    stack.callback(remove)
    sock.listen(_BACKLOG)
    return sock


def _read_identity(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino


def _remove_left(path: Path) -> None:
    """Remove a socket that nobody listens on. Raises OSError for anything else at that path."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise FileExistsError(17, "there is a file of that name")
    reserve_standard()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise FileExistsError(98, "another process listens there")


def main(source: Source, settings: ConsoleSettings, heartbeat: Heartbeat, supervisor: int) -> None:
    """A console as a process of a server, until SIGTERM, or until the ``supervisor`` ends.

    The tokens are those of the server's ``source``, and are read again at SIGHUP.
    """
    end_with_parent(supervisor, signal.SIGTERM)
    server = source.read()
    show_on_stderr("shmq", server.level)
    show_stack_on_demand()
    heartbeat.beat_from_a_thread()
    try:
        with to_file(server.audit_log), shmq.connect(server.namespace) as broker:
            ConsoleProcess(broker, settings, lambda: source.read().tokens).run()
    except ShmqError as error:
        log.error("the console cannot run: %s", error)
        raise SystemExit(1) from None
