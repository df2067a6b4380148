"""shmq: every message is leased and acknowledged."""

from __future__ import annotations

from itertools import islice, repeat
from typing import Any

import shmq
from bench.peers.batching import batches_of
from bench.scratch import delete_all
from bench.way import BATCH, Receive, ReceiveOne, Send, SendOne, Way

#: Seconds of a lease: an iterator keeps its last message until its next turn.
LONG = 3600.0


class SharedQueue(Way):
    """A queue in its own namespace."""

    def create(self) -> None:
        with shmq.connect(self.name) as broker:
            broker.create_queue("q", dead_letter=None, overflow="block", **self.options())

    def options(self) -> dict[str, Any]:
        """The options that differ from the defaults."""
        return {"capacity": self.places, "visibility_timeout": LONG}

    def open(self) -> Any:
        """The queue, in this process."""
        return shmq.connect(self.name).queue("q")

    def remove(self) -> None:
        delete_all(self.name)


class OneByOne(SharedQueue):
    """put, get, ack: one call each."""

    label = "shmq put, get, ack"

    def sender(self, bodies: list[bytes]) -> Send:
        put = self.open().put

        def send() -> None:
            for body in bodies:
                put(body)

        return send

    def receiver(self, count: int) -> Receive:
        get = self.open().get

        def receive() -> list[bytes]:
            received: list[bytes] = []
            for _ in repeat(None, count):
                message = get()
                received.append(message.body)
                message.ack()
            return received

        return receive

    def one_sender(self) -> SendOne:
        put: SendOne = self.open().put
        return put

    def one_receiver(self) -> ReceiveOne:
        get = self.open().get

        def receive_one() -> bytes:
            message = get()
            body: bytes = message.body
            message.ack()
            return body

        return receive_one


class Consumed(OneByOne):
    """put one by one; a consumer that leases 64 ahead."""

    label = "shmq put, consume(64)"

    def receiver(self, count: int) -> Receive:
        self.consumer = self.open().consume(prefetch=64)

        def receive() -> list[bytes]:
            received: list[bytes] = []
            for message in islice(self.consumer, count):
                received.append(message.body)
                message.ack()
            return received

        return receive


class Bodies(OneByOne):
    """put one by one; an iterator of bodies, whose next step acknowledges."""

    label = "shmq put, bodies(64)"

    def receiver(self, count: int) -> Receive:
        self.iterator = self.open().bodies(prefetch=64)
        return lambda: list(islice(self.iterator, count))


class _PutBatches(SharedQueue):
    def sender(self, bodies: list[bytes]) -> Send:
        put_many = self.open().put_many
        batches = batches_of(bodies)

        def send() -> None:
            for batch in batches:
                if put_many(batch) != len(batch):
                    raise AssertionError("a batch was cut short")

        return send


class BatchesConsumed(_PutBatches, Consumed):
    """put_many; a consumer that leases 64 ahead."""

    label = "shmq put_many(64), consume(64)"


class Batches(_PutBatches):
    """put_many, get_batch, ack: 64 messages each, as lists of bytes."""

    label = "shmq put_many, get_batch, ack(64)"

    def receiver(self, count: int) -> Receive:
        get_batch = self.open().get_batch

        def receive() -> list[bytes]:
            received: list[bytes] = []
            while (left := count - len(received)) > 0:
                batch = get_batch(min(BATCH, left))
                received += batch.bodies
                if batch.ack():
                    raise AssertionError("a lease was lost")
            return received

        return receive


class Messages(_PutBatches):
    """put_many, get_many, ack_many: 64 messages each."""

    label = "shmq put_many, get_many, ack_many(64)"

    def receiver(self, count: int) -> Receive:
        queue = self.open()
        get_many, ack_many = queue.get_many, queue.ack_many

        def receive() -> list[bytes]:
            received: list[bytes] = []
            while (left := count - len(received)) > 0:
                messages = get_many(min(BATCH, left))
                received += [message.body for message in messages]
                if ack_many(messages):
                    raise AssertionError("a lease was lost")
            return received

        return receive
