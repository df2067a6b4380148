"""shmq's streams: reading does not remove records; here the producer waits for its reader."""

from __future__ import annotations

from typing import Any, ClassVar

import shmq
from bench.large import FAN_OUT_PLACES, FAN_OUT_STEP, LargeWay
from bench.peers.batching import batches_of
from bench.scratch import delete_all
from bench.way import Receive, Send, Way


class SharedStream(Way):
    """One partition, whose producer waits for the reader, so that no record is lost."""

    note = "records stay for others to read"

    #: Bytes of the ring.
    room: ClassVar[int] = 1 << 20
    fixed = True

    def create(self) -> None:
        with shmq.connect(self.name) as broker:
            broker.create_stream("s", 1, ring_bytes=self.room, overflow="block")

    def open(self) -> Any:
        """The stream, in this process."""
        return shmq.connect(self.name).stream("s")

    def remove(self) -> None:
        delete_all(self.name)

    def receiver(self, count: int) -> Receive:
        stream = self.open()
        log = stream.logs[0]
        cursor = log.hold(0)
        at = 0

        def receive() -> list[bytes]:
            nonlocal at
            received: list[bytes] = []
            while len(received) < count:
                records = stream.read(0, at, count - len(received), block=True)
                received += records.values()
                at = records.next_offset
                log.move(cursor, at)
            return received

        return receive


class OneByOne(SharedStream):
    """append, one call each; read in batches."""

    label = "shmq append, read"

    def sender(self, bodies: list[bytes]) -> Send:
        append = self.open().append

        def send() -> None:
            for body in bodies:
                append(body)

        return send


class Batches(SharedStream):
    """append_many of 64; read in batches."""

    label = "shmq append_many(64), read"

    def sender(self, bodies: list[bytes]) -> Send:
        append_many = self.open().append_many
        batches = batches_of(bodies)

        def send() -> None:
            for batch in batches:
                append_many(batch, partition=0)

        return send


class FanOut(OneByOne, LargeWay):
    """loan, write in place; eight subscribers read the single copy in the ring."""

    label = "shmq loan, read(view=True), 8 subscribers"
    note = "waits for the slowest, so that nothing is lost; who waits sleeps"
    room = (FAN_OUT_PLACES + 1) << 20
    step = FAN_OUT_STEP

    def __init__(self, name: str, size: int) -> None:
        super().__init__(name, size)
        self.places = FAN_OUT_PLACES

    def sender(self, bodies: list[bytes]) -> Send:
        loan, size = self.open().loan, self.size

        def send() -> None:
            for body in bodies:
                with loan(size, partition=0) as view:
                    view[:] = body

        return send

    def receiver(self, count: int) -> Receive:
        stream, seen = self.open(), self.seen
        log = stream.logs[0]
        cursor = log.hold(0)
        most = count * self.size
        at = 0

        def receive() -> list[bytes]:
            nonlocal at
            received: list[bytes] = []
            while len(received) < count:
                left = count - len(received)
                records = stream.read(0, at, left, max_bytes=most, block=True, view=True)
                received += [seen(value) for value in records.values()]
                records.check()
                at = records.next_offset
                log.move(cursor, at)
            return received

        return receive
