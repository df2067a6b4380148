"""multiprocessing's Queue and Pipe."""

from __future__ import annotations

from itertools import repeat

from bench.stage import CONTEXT
from bench.way import Receive, ReceiveOne, Send, SendOne, Way


class Queue(Way):
    """multiprocessing.Queue: a thread of the sender pickles and writes to a pipe."""

    label = "multiprocessing.Queue"
    note = "no acknowledgement"

    def create(self) -> None:
        self.queue = CONTEXT.Queue(self.places)

    def sender(self, bodies: list[bytes]) -> Send:
        put = self.queue.put

        def send() -> None:
            for body in bodies:
                put(body)

        return send

    def receiver(self, count: int) -> Receive:
        get = self.queue.get
        return lambda: [get() for _ in repeat(None, count)]

    def remove(self) -> None:
        self.queue.close()


class Pipe(Way):
    """multiprocessing.Pipe: a write and a read per message, two system calls each."""

    label = "multiprocessing.Pipe"
    note = "no acknowledgement; one sender, one receiver"
    fixed = True

    def create(self) -> None:
        self.reading, self.writing = CONTEXT.Pipe(duplex=False)

    def sender(self, bodies: list[bytes]) -> Send:
        send_bytes = self.writing.send_bytes

        def send() -> None:
            for body in bodies:
                send_bytes(body)

        return send

    def receiver(self, count: int) -> Receive:
        recv_bytes = self.reading.recv_bytes
        return lambda: [recv_bytes() for _ in repeat(None, count)]

    def one_sender(self) -> SendOne:
        put: SendOne = self.writing.send_bytes
        return put

    def one_receiver(self) -> ReceiveOne:
        get: ReceiveOne = self.reading.recv_bytes
        return get

    def remove(self) -> None:
        self.reading.close()
        self.writing.close()
