"""faster-fifo: a ring of bytes behind a mutex and two conditions."""

from __future__ import annotations

from itertools import repeat
from typing import Any

from bench.peers.batching import batches_of
from bench.way import BATCH, Receive, ReceiveOne, Send, SendOne, Way, equal_places

#: Bytes of the ring that a message takes beside its body.
HEAD = 8


def unchanged(body: Any) -> Any:
    """Return the body unchanged: bytes need no pickling."""
    return body


class OneByOne(Way):
    """put and get."""

    label = "faster-fifo"
    needs = "faster_fifo"
    note = "no acknowledgement; pickling switched off"

    def create(self) -> None:
        from faster_fifo import Queue

        room = equal_places(self.size) * (self.size + HEAD)
        self.queue = Queue(room, loads=bytes, dumps=unchanged)

    def sender(self, bodies: list[bytes]) -> Send:
        put = self.queue.put

        def send() -> None:
            for body in bodies:
                put(body)

        return send

    def receiver(self, count: int) -> Receive:
        get = self.queue.get
        return lambda: [get() for _ in repeat(None, count)]

    def one_sender(self) -> SendOne:
        put: SendOne = self.queue.put
        return put

    def one_receiver(self) -> ReceiveOne:
        get: ReceiveOne = self.queue.get
        return get


class Batches(OneByOne):
    """put_many and get_many."""

    label = "faster-fifo put_many, get_many(64)"

    def sender(self, bodies: list[bytes]) -> Send:
        put_many = self.queue.put_many
        batches = batches_of(bodies)

        def send() -> None:
            for batch in batches:
                put_many(batch)

        return send

    def receiver(self, count: int) -> Receive:
        get_many = self.queue.get_many

        def receive() -> list[bytes]:
            received: list[bytes] = []
            while (left := count - len(received)) > 0:
                received += get_many(max_messages_to_get=min(BATCH, left))
            return received

        return receive
