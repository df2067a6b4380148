"""cloudtoid-interprocess: a ring of bytes in a mapped file."""

from __future__ import annotations

import shutil
from itertools import repeat
from pathlib import Path

from bench.peers.batching import batches_of
from bench.way import Receive, Send, Way, idle

#: Room of the ring in bytes.
ROOM = 2 << 20


class OneByOne(Way):
    """try_send and try_receive."""

    label = "cloudtoid-interprocess"
    needs = "cloudtoid_interprocess"
    note = "no acknowledgement; a full queue only refuses, so the sender spins"

    def _folder(self) -> Path:
        return Path("/dev/shm", self.name)

    def create(self) -> None:
        self._folder().mkdir(mode=0o700)

    def remove(self) -> None:
        shutil.rmtree(self._folder(), ignore_errors=True)

    def sender(self, bodies: list[bytes]) -> Send:
        from cloudtoid_interprocess import Publisher

        put = Publisher(self.name, ROOM, self._folder()).try_send

        def send() -> None:
            for body in bodies:
                while not put(body):
                    idle()

        return send

    def receiver(self, count: int) -> Receive:
        from cloudtoid_interprocess import Subscriber

        get = Subscriber(self.name, ROOM, self._folder()).try_receive

        def receive() -> list[bytes]:
            received: list[bytes] = []
            for _ in repeat(None, count):
                while (body := get()) is None:
                    idle()
                received.append(body)
            return received

        return receive


class Batches(OneByOne):
    """try_send_batch and try_receive: there is no batch to receive."""

    label = "cloudtoid-interprocess try_send_batch(64)"

    def sender(self, bodies: list[bytes]) -> Send:
        from cloudtoid_interprocess import Publisher

        put = Publisher(self.name, ROOM, self._folder()).try_send_batch
        batches = batches_of(bodies)

        def send() -> None:
            for batch in batches:
                sent = put(batch)
                while sent < len(batch):
                    idle()
                    sent += put(batch[sent:])

        return send
