"""subetha-ipc's SpscRing: one sender, one receiver, slots of 64 bytes in a mapped file."""

from __future__ import annotations

from itertools import repeat
from pathlib import Path
from typing import Any

from bench.packed import PACK, PackedWay
from bench.peers.batching import batches_of
from bench.way import BATCH, Receive, ReceiveOne, Send, SendOne, Way, equal_places, idle

#: Bytes of a slot; a shorter body arrives padded.
SLOT = 64


class OneByOne(Way):
    """push and pop."""

    label = "subetha SpscRing"
    needs = "subetha"
    note = "64 B fixed, one sender, one receiver, both only spin; no acknowledgement"

    def _path(self) -> Path:
        return Path("/dev/shm", f"{self.name}.ring")

    def create(self) -> None:
        from subetha import SpscRing

        if self.size != SLOT:
            raise ValueError(f"a slot of subetha's SpscRing holds {SLOT} bytes, not {self.size}")
        with SpscRing(str(self._path()), equal_places(SLOT)):
            pass

    def open(self) -> Any:
        """The ring, in this process."""
        from subetha import SpscRing

        return SpscRing.open(str(self._path()), equal_places(SLOT))

    def remove(self) -> None:
        self._path().unlink(missing_ok=True)

    def sender(self, bodies: list[bytes]) -> Send:
        push = self.open().push

        def send() -> None:
            for body in bodies:
                while not push(body):
                    idle()

        return send

    def receiver(self, count: int) -> Receive:
        pop = self.open().pop

        def receive() -> list[bytes]:
            received: list[bytes] = []
            for _ in repeat(None, count):
                while (body := pop()) is None:
                    idle()
                received.append(body)
            return received

        return receive

    def one_sender(self) -> SendOne:
        put = self.open().push

        def send_one(body: bytes) -> None:
            while not put(body):
                idle()

        return send_one

    def one_receiver(self) -> ReceiveOne:
        get = self.open().pop

        def receive_one() -> bytes:
            while (body := get()) is None:
                idle()
            found: bytes = body
            return found

        return receive_one


class Batches(OneByOne):
    """push_many and pop_many."""

    label = "subetha SpscRing push_many, pop_many(64)"

    def sender(self, bodies: list[bytes]) -> Send:
        push_many = self.open().push_many
        batches = batches_of(bodies)

        def send() -> None:
            for batch in batches:
                sent = push_many(batch)
                while sent < len(batch):
                    idle()
                    sent += push_many(batch[sent:])

        return send

    def receiver(self, count: int) -> Receive:
        pop_many = self.open().pop_many

        def receive() -> list[bytes]:
            received: list[bytes] = []
            while (left := count - len(received)) > 0:
                received += pop_many(min(BATCH, left))
            return received

        return receive


class Packed(PackedWay, OneByOne):
    """push_buffer and pop_buffer."""

    label = "subetha SpscRing push_buffer, pop_buffer"

    def sender(self, bodies: list[bytes]) -> Send:
        push_buffer, packs = self.open().push_buffer, self.packs(bodies)

        def send() -> None:
            for pack in packs:
                sent = push_buffer(pack, SLOT)
                while sent * SLOT < len(pack):
                    idle()
                    sent += push_buffer(pack[sent * SLOT :], SLOT)

        return send

    def receiver(self, count: int) -> Receive:
        pop_buffer = self.open().pop_buffer

        def receive() -> list[bytes]:
            received: list[bytes] = []
            left = count
            while left:
                packed, found = pop_buffer(min(PACK, left))
                if found:
                    received.append(packed)
                    left -= found
            return [b"".join(received)]

        return receive
