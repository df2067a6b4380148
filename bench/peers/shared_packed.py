"""shmq with packed batches: one buffer in and one out, no Python object per message."""

from __future__ import annotations

from bench.packed import PACK, PackedWay
from bench.peers.shared_queue import SharedQueue
from bench.way import Receive, Send


class Packed(SharedQueue, PackedWay):
    """put_packed, get_packed, and one ack for all."""

    label = "shmq put_packed, get_packed"
    note = "one ack for each packed batch"

    def sender(self, bodies: list[bytes]) -> Send:
        put_packed = self.open().put_packed
        size, packs = self.size, self.packs(bodies)

        def send() -> None:
            for pack in packs:
                put_packed(pack, size)

        return send

    def receiver(self, count: int) -> Receive:
        import numpy as np

        get_packed = self.open().get_packed
        size = self.size

        def receive() -> list[bytes]:
            received: list[bytes] = []
            left = count
            while left:
                packed = get_packed(min(PACK, left))
                lengths = np.frombuffer(packed.lengths, np.uint32)
                if not (lengths == size).all():
                    raise AssertionError(f"lengths {lengths} of messages of {size} bytes")
                received.append(bytes(packed.data))
                left -= len(packed)
                packed.ack()
            return [b"".join(received)]

        return receive
