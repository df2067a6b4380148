"""A broker that loses, doubles, reorders or damages a message: what the load generator finds.

Run as ``python -m tests.prove.bench.faulty_broker FAULT AT``: it prints its port, and does
``FAULT`` to the message with sequence number ``AT``. It speaks as much of the protocol as the
load generator does, on one queue that is never full.
"""

from __future__ import annotations

import asyncio
import collections
import struct
import sys
from collections.abc import Callable

from shmq.protocol.opcodes import HEADER, MAGIC, MORE, PROTOCOL_VERSION, Status, Type

Stored = tuple[int, bytes]


def _swapped(stored: Stored, behind: collections.deque[Stored]) -> Stored:
    other = behind.popleft()
    behind.appendleft(stored)
    return other


def _doubled(stored: Stored, behind: collections.deque[Stored]) -> Stored:
    behind.appendleft(stored)
    return stored


#: What a fault makes of the message at the front and of those behind it.
FAULTS: dict[str, Callable[[Stored, collections.deque[Stored]], Stored]] = {
    "none": lambda stored, _: stored,
    "lose": lambda _, behind: behind.popleft(),
    "double": _doubled,
    "reorder": _swapped,
    "damage": lambda stored, _: (stored[0], stored[1][:40] + b"\0" + stored[1][41:]),
    "shorten": lambda stored, _: (stored[0], stored[1][:-1]),
    "number": lambda stored, _: stored,
    "refuse": lambda stored, _: stored,
}


class Queue:
    """What is in the broker."""

    def __init__(self) -> None:
        self.stored: collections.deque[Stored] = collections.deque()
        self.leased: set[int] = set()
        self.sequence = 0
        self.receipt = 0


class Broker(asyncio.Protocol):
    """A connection."""

    fault, at = "none", 0
    queue = Queue()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.unread = b""
        self.subscription = self.credit = 0
        self.answer: dict[int, Callable[[int, bytes], None]] = {
            Type.PING: self.reply_ok,
            Type.CREATE: lambda number, _: self.reply_ok(number, b""),
            Type.DELETE: lambda number, _: self.reply_ok(number, b""),
            Type.PRODUCE: self.produce,
            Type.PRODUCE_BATCH: self.batch,
            Type.CONSUME: self.consume,
            Type.SUBSCRIBE: self.subscribe,
            Type.UNSUBSCRIBE: self.unsubscribe,
            Type.ACK: self.ack,
        }

    def data_received(self, data: bytes) -> None:
        self.unread += data
        while len(self.unread) >= HEADER:
            _, length, kind, _, _, number = struct.unpack_from(">IIBBHI", self.unread)
            if len(self.unread) < HEADER + length:
                break
            payload = self.unread[HEADER : HEADER + length]
            self.unread = self.unread[HEADER + length :]
            if kind not in (Type.PING, Type.UNSUBSCRIBE):
                (name,) = struct.unpack_from(">H", payload)
                payload = payload[2 + name :]
            self.answer[kind](number, payload)
        while self.subscription and self.credit and self.queue.stored:
            self.credit -= 1
            self.deliver(self.subscription, 0)

    def send(self, kind: int, status: int, number: int, payload: bytes) -> None:
        head = struct.pack(">IIBBHI", MAGIC, len(payload), kind, PROTOCOL_VERSION, status, number)
        self.transport.write(head + payload)

    def reply_ok(self, number: int, payload: bytes) -> None:
        self.send(Type.REPLY, Status.OK, number, payload)

    def put(self, body: bytes) -> int:
        self.queue.sequence += 1
        self.queue.stored.append((self.queue.sequence, body))
        return self.queue.sequence

    def produce(self, number: int, payload: bytes) -> None:
        sequence = self.put(payload[1:])
        if sequence == self.at and self.fault == "refuse":
            self.send(Type.REPLY, Status.QUEUE_FULL, number, b"")
            return
        told = sequence - 1 if sequence == self.at and self.fault == "number" else sequence
        self.reply_ok(number, struct.pack(">Q", told))

    def batch(self, number: int, payload: bytes) -> None:
        (count,) = struct.unpack_from(">I", payload, 1)
        at, first = 5, self.queue.sequence + 1
        for _ in range(count):
            (length,) = struct.unpack_from(">I", payload, at + 1)
            self.put(payload[at + 5 : at + 5 + length])
            at += 5 + length
        self.reply_ok(number, struct.pack(">IQ", count, first))

    def deliver(self, number: int, status: int) -> None:
        queue = self.queue
        stored = queue.stored.popleft()
        if stored[0] == self.at and queue.stored:
            stored = FAULTS[self.fault](stored, queue.stored)
        queue.receipt += 1
        queue.leased.add(queue.receipt)
        head = struct.pack(">QQHBB", stored[0], queue.receipt, 1, 1, 0)
        self.send(Type.DELIVER, status, number, head + stored[1])

    def consume(self, number: int, payload: bytes) -> None:
        (most,) = struct.unpack_from(">I", payload)
        count = min(most, len(self.queue.stored))
        for left in range(count - 1, -1, -1):
            self.deliver(number, MORE if left and self.queue.stored else 0)
        if not count:
            self.send(Type.REPLY, Status.QUEUE_EMPTY, number, b"")

    def subscribe(self, number: int, payload: bytes) -> None:
        self.subscription = number
        (self.credit,) = struct.unpack_from(">I", payload)
        self.reply_ok(number, b"")

    def unsubscribe(self, number: int, payload: bytes) -> None:
        self.subscription = 0
        self.reply_ok(number, b"")

    def ack(self, number: int, payload: bytes) -> None:
        receipts = struct.unpack(f">{len(payload) // 8}Q", payload)
        self.queue.leased.difference_update(receipts)
        self.credit += len(receipts)
        self.reply_ok(number, b"")


async def main() -> None:
    Broker.fault, Broker.at = sys.argv[1], int(sys.argv[2])
    server = await asyncio.get_running_loop().create_server(Broker, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
