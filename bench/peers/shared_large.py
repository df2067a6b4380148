"""shmq with large bodies: in place, and copied."""

from __future__ import annotations

from itertools import repeat
from typing import Any

from bench.large import LargeWay
from bench.peers.shared_queue import SharedQueue
from bench.way import Receive, Send, equal_places


class _Large(SharedQueue, LargeWay):
    def options(self) -> dict[str, Any]:
        room = {"arena_bytes": equal_places(self.size) * self.size, "max_message_bytes": self.size}
        return super().options() | room


class Loaned(_Large):
    """loan, write in place; get, view, ack."""

    label = "shmq loan, view"
    note = "written in place, read in place"

    def sender(self, bodies: list[bytes]) -> Send:
        loan, size = self.open().loan, self.size

        def send() -> None:
            for body in bodies:
                with loan(size) as view:
                    view[:] = body

        return send

    def receiver(self, count: int) -> Receive:
        get, seen = self.open().get, self.seen

        def receive() -> list[bytes]:
            received: list[bytes] = []
            for _ in repeat(None, count):
                message = get()
                received.append(seen(message.view))
                message.ack()
            return received

        return receive


class Copied(_Large):
    """put, get, readinto, ack: a copy in and a copy out."""

    label = "shmq put, readinto"
    note = "a copy in, a copy out into a buffer of the receiver's"

    def sender(self, bodies: list[bytes]) -> Send:
        put = self.open().put

        def send() -> None:
            for body in bodies:
                put(body)

        return send

    def receiver(self, count: int) -> Receive:
        get, seen, body = self.open().get, self.seen, bytearray(self.size)

        def receive() -> list[bytes]:
            received: list[bytes] = []
            for _ in repeat(None, count):
                message = get()
                message.readinto(body)
                received.append(seen(body))
                message.ack()
            return received

        return receive


class CopiedAnew(Copied):
    """put, get, body: a new bytes object for each message."""

    label = "shmq put, body"
    note = "a copy in, a copy out into a new bytes object"

    def receiver(self, count: int) -> Receive:
        get, seen = self.open().get, self.seen

        def receive() -> list[bytes]:
            received: list[bytes] = []
            for _ in repeat(None, count):
                message = get()
                received.append(seen(message.body))
                message.ack()
            return received

        return receive
