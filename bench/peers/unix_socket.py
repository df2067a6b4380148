"""A UNIX socket: as a stream with a length before each body, and as packets."""

from __future__ import annotations

import socket
import struct
from functools import partial
from itertools import repeat

from bench.way import Receive, ReceiveOne, Send, SendOne, Way

_LENGTH = struct.Struct("<I")
#: Bytes that the receiver of the stream reads at once.
AHEAD = 1 << 16


class Stream(Way):
    """SOCK_STREAM: each send is one system call; the receiver reads ahead."""

    label = "UNIX socket, stream"
    note = "framed with a length; the receiver reads 64 KiB ahead"

    kind = socket.SOCK_STREAM
    fixed = True

    def create(self) -> None:
        self.writing, self.reading = socket.socketpair(socket.AF_UNIX, self.kind)

    def remove(self) -> None:
        self.writing.close()
        self.reading.close()

    def sender(self, bodies: list[bytes]) -> Send:
        put, frame = self.writing.sendall, _LENGTH.pack

        def send() -> None:
            for body in bodies:
                put(frame(len(body)) + body)

        return send

    def receiver(self, count: int) -> Receive:
        self.file = self.reading.makefile("rb", AHEAD)
        read, length = self.file.read, _LENGTH.unpack
        return lambda: [read(length(read(4))[0]) for _ in repeat(None, count)]


class Packets(Stream):
    """SOCK_SEQPACKET: a body is a packet."""

    label = "UNIX socket, packets"
    note = "one system call a message on each side"

    kind = socket.SOCK_SEQPACKET

    def sender(self, bodies: list[bytes]) -> Send:
        put = self.writing.send

        def send() -> None:
            for body in bodies:
                put(body)

        return send

    def receiver(self, count: int) -> Receive:
        get, size = self.reading.recv, self.size
        return lambda: [get(size) for _ in repeat(None, count)]

    def one_sender(self) -> SendOne:
        put: SendOne = self.writing.send
        return put

    def one_receiver(self) -> ReceiveOne:
        return partial(self.reading.recv, self.size)
