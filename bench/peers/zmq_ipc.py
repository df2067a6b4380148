"""pyzmq: PUSH and PULL over ipc, which is a UNIX socket and a thread on each side."""

from __future__ import annotations

import tempfile
from itertools import repeat
from pathlib import Path
from typing import Any, ClassVar

from bench.peers.batching import batches_of
from bench.way import BATCH, Receive, ReceiveOne, Send, SendOne, Way, equal_places


class OneByOne(Way):
    """send and recv, which copy."""

    label = "pyzmq ipc"
    needs = "zmq"
    note = "PUSH and PULL; no acknowledgement"
    #: Bodies in a message.
    part: ClassVar[int] = 1

    def _path(self) -> Path:
        return Path(tempfile.gettempdir(), f"{self.name}.zmq")

    def _socket(self, kind: str) -> Any:
        import zmq

        self.context = zmq.Context()
        socket = self.context.socket(getattr(zmq, kind))
        # The sender and the receiver hold half each.
        socket.set_hwm(max(1, equal_places(self.size) // self.part // 2))
        if kind == "PULL":
            socket.bind(f"ipc://{self._path()}")
        else:
            socket.connect(f"ipc://{self._path()}")
        self.socket = socket
        return socket

    def sender(self, bodies: list[bytes]) -> Send:
        put = self._socket("PUSH").send

        def send() -> None:
            for body in bodies:
                put(body)

        return send

    def receiver(self, count: int) -> Receive:
        get = self._socket("PULL").recv
        return lambda: [get() for _ in repeat(None, count)]

    def one_sender(self) -> SendOne:
        put: SendOne = self._socket("PUSH").send
        return put

    def one_receiver(self) -> ReceiveOne:
        get: ReceiveOne = self._socket("PULL").recv
        return get

    def finish(self) -> None:
        self.socket.close(linger=0)
        self.context.term()

    def remove(self) -> None:
        self._path().unlink(missing_ok=True)


class Multipart(OneByOne):
    """send_multipart and recv_multipart: a batch is one message of many parts."""

    label = "pyzmq ipc, 64 parts a message"
    note = "PUSH and PULL; a batch is one message"
    part = BATCH

    def sender(self, bodies: list[bytes]) -> Send:
        put = self._socket("PUSH").send_multipart
        batches = batches_of(bodies)

        def send() -> None:
            for batch in batches:
                put(batch)

        return send

    def receiver(self, count: int) -> Receive:
        get = self._socket("PULL").recv_multipart

        def receive() -> list[bytes]:
            received: list[bytes] = []
            while len(received) < count:
                received += get()
            return received

        return receive
