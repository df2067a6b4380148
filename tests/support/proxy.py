"""A proxy before a server that cuts connections where a test wants it to."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from urllib.parse import urlsplit

from shmq.protocol.opcodes import Type

_HEADER = struct.Struct("!IIBBHI")

#: Of a frame's type and payload: whether it is the one.
Which = Callable[[int, bytes], bool]


def of_type(kind: Type) -> Which:
    return lambda found, _: found == kind


class Proxy:
    """Hands frames on in both directions, each connection in two threads.

    A cut ends one connection, both sides of it, once. Another one may listen on the ``port`` of one
    that was closed.
    """

    def __init__(self, url: str, port: int = 0) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._server = (parts.hostname, parts.port)
        self._listening = socket.create_server(("127.0.0.1", port))
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._before: Which | None = None
        self._after: Which | None = None
        self._within: tuple[Which, int] | None = None
        self._unnoticed: Which | None = None
        self._silent: Which | None = None
        #: Types of the requests that were handed on, in their order.
        self.requests: list[int] = []
        #: How many connections there have been.
        self.connections = 0
        self.url = f"shmq://127.0.0.1:{self._listening.getsockname()[1]}"
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, work: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        thread.start()
        self._threads.append(thread)

    # ---- what is to happen ----

    def cut_before(self, which: Which) -> None:
        """Cut where the next such request would go: the server does not see it."""
        self._before = which

    def cut_after(self, which: Which) -> None:
        """Cut where the answer to the next such request would come: the server has done it."""
        self._after = which

    def cut_within(self, which: Which, count: int) -> None:
        """Hand ``count`` bytes of the next such request on, then cut."""
        self._within = (which, count)

    def cut_unnoticed(self, which: Which) -> None:
        """Cut the client's side where the next such request would go: the server's stays."""
        self._unnoticed = which

    def swallow(self, which: Which) -> None:
        """The next such request gets lost, and is never answered."""
        self._silent = which

    @property
    def is_armed(self) -> bool:
        """Whether a request of those is still to come."""
        ways = self._before, self._after, self._within, self._unnoticed, self._silent
        return any(ways)

    def cut(self) -> None:
        """Cut every connection now."""
        for pair in list(self._pairs):
            self._end(pair)

    def close(self) -> None:
        """Take no more connections, and end those that there are."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self.cut()
        for thread in self._threads:
            thread.join()
        for sock in (self._listening, *self._sockets):
            sock.close()

    # ---- the threads ----

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._server)
            except OSError:
                client.close()
                continue
            for sock in (client, server):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = (client, server)
            self._pairs.append(pair)
            self.connections += 1
            self._sockets += pair
            self._start(self._requests, pair)
            self._start(self._answers, pair)

    def _requests(self, pair: tuple[socket.socket, socket.socket]) -> None:
        client, server = pair
        with contextlib.suppress(OSError, EOFError):
            while True:
                head = _exactly(client, _HEADER.size)
                _, length, kind, _, _, _ = _HEADER.unpack(head)
                payload = _exactly(client, length)
                if not self._let_pass(pair, kind, payload, head + payload):
                    return
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_WR)

    def _let_pass(
        self, pair: tuple[socket.socket, socket.socket], kind: int, payload: bytes, frame: bytes
    ) -> bool:
        """Hand a request on, or do to it what was asked for; whether others may follow."""
        client, server = pair
        if self._unnoticed is not None and self._unnoticed(kind, payload):
            self._unnoticed = None
            client.shutdown(socket.SHUT_RDWR)
            return False
        if self._before is not None and self._before(kind, payload):
            self._end(pair)
            self._before = None
            return False
        if self._within is not None and self._within[0](kind, payload):
            server.sendall(frame[: self._within[1]])
            self._end(pair)
            self._within = None
            return False
        if self._silent is not None and self._silent(kind, payload):
            self._silent = None
            return True
        self.requests.append(kind)
        if self._after is not None and self._after(kind, payload):
            self._pairs.remove(pair)  # its answers are not handed on any more
            server.sendall(frame)
            _exactly(server, 16)
            self._end(pair)
            self._after = None
            return False
        server.sendall(frame)
        return True

    def _answers(self, pair: tuple[socket.socket, socket.socket]) -> None:
        client, server = pair
        with contextlib.suppress(OSError):
            while True:
                server.recv(1, socket.MSG_PEEK)
                if pair not in self._pairs:
                    return
                data = server.recv(1 << 16)
                if not data:
                    break
                client.sendall(data)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_WR)

    def _end(self, pair: tuple[socket.socket, socket.socket]) -> None:
        with contextlib.suppress(ValueError):
            self._pairs.remove(pair)
        for sock in pair:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


def _exactly(sock: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = sock.recv(count - len(parts))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)
