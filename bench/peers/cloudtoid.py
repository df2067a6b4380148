"""cloudtoid-interprocess: a ring of bytes in a mapped file."""

from __future__ import annotations

import shutil
from itertools import repeat
from pathlib import Path
from typing import Any

from bench.peers.batching import batches_of
from bench.way import Receive, ReceiveOne, Send, SendOne, Way, equal_places, idle

#: Bytes of the ring that a message takes beside its body.
HEAD = 8


class OneByOne(Way):
    """try_send and try_receive."""

    label = "cloudtoid-interprocess"
    needs = "cloudtoid_interprocess"
    note = "no acknowledgement; a full queue only rejects, so the sender spins"

    def _room(self) -> int:
        return equal_places(self.size) * (self.size + HEAD)

    def _folder(self) -> Path:
        return Path("/dev/shm", self.name)

    def create(self) -> None:
        self._folder().mkdir(mode=0o700)

    def remove(self) -> None:
        shutil.rmtree(self._folder(), ignore_errors=True)

    def _publisher(self) -> Any:
        from cloudtoid_interprocess import Publisher

        return Publisher(self.name, self._room(), self._folder())

    def _subscriber(self) -> Any:
        from cloudtoid_interprocess import Subscriber

        return Subscriber(self.name, self._room(), self._folder())

    def sender(self, bodies: list[bytes]) -> Send:
        put = self._publisher().try_send

        def send() -> None:
            for body in bodies:
                while not put(body):
                    idle()

        return send

    def receiver(self, count: int) -> Receive:
        get = self._subscriber().try_receive

        def receive() -> list[bytes]:
            received: list[bytes] = []
            for _ in repeat(None, count):
                while (body := get()) is None:
                    idle()
                received.append(body)
            return received

        return receive

    def one_sender(self) -> SendOne:
        put = self._publisher().try_send

        def send_one(body: bytes) -> None:
            while not put(body):
                idle()

        return send_one

    def one_receiver(self) -> ReceiveOne:
        get = self._subscriber().try_receive

        def receive_one() -> bytes:
            while (body := get()) is None:
                idle()
            found: bytes = body
            return found

        return receive_one


class Batches(OneByOne):
    """try_send_batch and try_receive: there is no call that receives a batch."""

    label = "cloudtoid-interprocess try_send_batch(64)"

    def sender(self, bodies: list[bytes]) -> Send:
        put = self._publisher().try_send_batch
        batches = batches_of(bodies)

        def send() -> None:
            for batch in batches:
                sent = put(batch)
                while sent < len(batch):
                    idle()
                    sent += put(batch[sent:])

        return send
