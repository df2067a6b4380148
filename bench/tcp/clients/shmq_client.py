"""shmq's own client over TCP."""

from __future__ import annotations

from itertools import islice
from typing import Any, ClassVar

import shmq
from bench.tcp.cycle import BATCH, Client, batches
from bench.tcp.server import HOST, Server
from bench.tcp.servers import Shmq

#: Messages in flight.
WINDOW = 256


class OneByOne(Client):
    """put, get, ack: one call each."""

    label = "shmq put, get, ack"
    server: ClassVar[type[Server]] = Shmq

    def open(self) -> None:
        """See :class:`bench.tcp.cycle.Client`."""
        self.broker = shmq.connect(f"shmq://{HOST}:{self.port}")
        self.queue: Any = self.broker.create_queue(self.name, dead_letter=None)

    def cycle(self, sent: list[bytes]) -> list[bytes]:
        """See :class:`bench.tcp.cycle.Client`."""
        put, get = self.queue.put, self.queue.get
        received: list[bytes] = []
        for body in sent:
            put(body)
            message = get()
            received.append(message.body)
            message.ack()
        return received

    def close(self) -> None:
        """See :class:`bench.tcp.cycle.Client`."""
        self.broker.delete_queue(self.name)
        self.broker.close()


class Riding(OneByOne):
    """The same; an acknowledgement rides with the next request."""

    label = "shmq put, get, ack(wait_for_acks=False)"

    def open(self) -> None:
        """See :class:`bench.tcp.cycle.Client`."""
        self.broker = shmq.connect(f"shmq://{HOST}:{self.port}", wait_for_acks=False)
        self.queue: Any = self.broker.create_queue(self.name, dead_letter=None)


class Pipelined(OneByOne):
    """Many puts in flight; a consumer with prefetch that gathers acknowledgements."""

    label = f"shmq pipeline put, consume(prefetch={WINDOW})"

    def open(self) -> None:
        """See :class:`bench.tcp.cycle.Client`."""
        super().open()
        self.consumer = self.queue.consume(prefetch=WINDOW)

    def cycle(self, sent: list[bytes]) -> list[bytes]:
        """See :class:`bench.tcp.cycle.Client`."""
        received: list[bytes] = []
        with self.queue.pipeline(WINDOW) as pipeline:
            put = pipeline.put
            for body in sent:
                put(body)
        for message in islice(self.consumer, len(sent)):
            received.append(message.body)
            message.ack()
        return received

    def close(self) -> None:
        """See :class:`bench.tcp.cycle.Client`."""
        self.consumer.close()
        super().close()


class Batches(OneByOne):
    """put_many, get_batch, ack: 64 messages each."""

    label = f"shmq put_many, get_batch, ack({BATCH})"

    def cycle(self, sent: list[bytes]) -> list[bytes]:
        """See :class:`bench.tcp.cycle.Client`."""
        put_many, get_batch = self.queue.put_many, self.queue.get_batch
        received: list[bytes] = []
        for part in batches(sent):
            if put_many(part) != len(part):
                raise AssertionError("a batch was cut short")
            left = len(part)
            while left:
                batch = get_batch(left)
                received += batch.bodies
                left -= len(batch.bodies)
                if batch.ack():
                    raise AssertionError("a lease was lost")
        return received
