"""A minimal client that shows the server's behaviour as seen on a socket."""

from __future__ import annotations

import itertools
import socket
import ssl
import struct
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgpack

from shmq.protocol.opcodes import HEADER, MAGIC, PROTOCOL_VERSION, Status, Type
from tests.support.server import Server
from tests.support.waiting import PATIENCE

_HEADER = struct.Struct("!IIBBHI")


class Frame(NamedTuple):
    kind: int
    status: int
    id: int
    payload: bytes


def frame(kind: int, payload: bytes = b"", number: int = 1) -> bytes:
    return _HEADER.pack(MAGIC, len(payload), kind, PROTOCOL_VERSION, 0, number) + payload


def name_of(queue: str) -> bytes:
    return struct.pack("!H", len(queue)) + queue.encode()


class Peer:
    """One connection. An answer that does not come within the tests' patience is a failure."""

    def __init__(self, server: Server, tls: ssl.SSLContext | None = None) -> None:
        plain = socket.create_connection(server.address, PATIENCE)
        self.socket = tls.wrap_socket(plain, server_hostname="127.0.0.1") if tls else plain
        self._ids = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def post(self, kind: int, payload: bytes = b"") -> int:
        number = next(self._ids)
        self.socket.sendall(frame(kind, payload, number))
        return number

    def receive(self) -> Frame:
        """The next frame. Raises EOFError at the server's end of the connection."""
        _, length, kind, _, status, number = _HEADER.unpack(self._take(HEADER))
        return Frame(kind, status, number, self._take(length))

    def _take(self, count: int) -> bytes:
        taken = b""
        while len(taken) < count:
            some = self.socket.recv(count - len(taken))
            if not some:
                raise EOFError
            taken += some
        return taken

    def ask(self, kind: int, payload: bytes = b"") -> Frame:
        number = self.post(kind, payload)
        answer = self.receive()
        assert answer.id == number, answer
        return answer

    def status(self, kind: int, payload: bytes = b"") -> Status:
        return Status(self.ask(kind, payload).status)

    def ok(self, kind: int, payload: bytes = b"") -> bytes:
        answer = self.ask(kind, payload)
        assert answer.status == Status.OK, answer
        return answer.payload

    def hello(self, token: str | None = None) -> Frame:
        shown = {} if token is None else {"token": token}
        return self.ask(Type.HELLO, msgpack.packb({"client": "a test", **shown}))

    def let_in(self, token: str) -> Self:
        assert self.hello(token).status == Status.OK
        return self

    def create(self, queue: str, **options: Any) -> Frame:
        packed = msgpack.packb(options) if options else b""
        return self.ask(Type.CREATE, name_of(queue) + packed)

    def put(self, queue: str, body: bytes = b"x") -> Frame:
        return self.ask(Type.PRODUCE, name_of(queue) + b"\0" + body)

    def begin_to_take(self, queue: str, wait: int = 0, most: int = 1) -> int:
        return self.post(Type.CONSUME, name_of(queue) + struct.pack("!IIB", most, wait, 0))

    def take(self, queue: str, wait: int = 0) -> Frame:
        self.begin_to_take(queue, wait)
        return self.receive()

    def names(self) -> list[str]:
        return [row["name"] for row in msgpack.unpackb(self.ok(Type.LIST))]

    def ended(self) -> bool:
        """Whether the server ends the connection, no matter what it sends before."""
        try:
            while self.socket.recv(1 << 16):
                continue
        except ConnectionError:
            pass
        return True
