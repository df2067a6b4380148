"""nats-py, a stream in memory and a pull consumer."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from bench.tcp.cycle import BATCH, Client, batches
from bench.tcp.server import HOST, Server
from bench.tcp.servers import Nats

#: Seconds that a fetch waits.
PATIENCE = 10.0


class OneByOne(Client):
    """publish, fetch of one, ack, each awaited."""

    label = "nats-py JetStream, publish, fetch(1), ack"
    server: ClassVar[type[Server]] = Nats
    needs = "nats"
    note = "in memory; an ack is not answered"

    def open(self) -> None:
        """See :class:`bench.tcp.cycle.Client`."""
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self._open())

    async def _open(self) -> None:
        import nats

        self.connection: Any = await nats.connect(f"nats://{HOST}:{self.port}")
        self.stream: Any = self.connection.jetstream()
        await self.stream.add_stream(name=self.name, subjects=[self.name], **self.stream_options())
        self.consumer: Any = await self.stream.pull_subscribe(self.name, durable="group")

    def stream_options(self) -> dict[str, Any]:
        """The options of the stream beside its name and its subject."""
        from nats.js.api import StorageType

        return {"storage": StorageType.MEMORY}

    def cycle(self, sent: list[bytes]) -> list[bytes]:
        """See :class:`bench.tcp.cycle.Client`."""
        return self.loop.run_until_complete(self.pass_on(sent))

    async def pass_on(self, sent: list[bytes]) -> list[bytes]:
        """A cycle, on the loop."""
        received: list[bytes] = []
        for body in sent:
            await self.stream.publish(self.name, body)
            (message,) = await self.consumer.fetch(1, PATIENCE)
            received.append(message.data)
            await message.ack()
        return received

    def close(self) -> None:
        """See :class:`bench.tcp.cycle.Client`."""
        self.loop.run_until_complete(self._close())
        self.loop.close()

    async def _close(self) -> None:
        await self.stream.delete_stream(self.name)
        await self.connection.close()


class Batches(OneByOne):
    """64 publishes whose answers are awaited together, a fetch of 64, 64 acks."""

    label = f"nats-py JetStream, {BATCH} publishes in flight, fetch({BATCH}), ack"

    async def pass_on(self, sent: list[bytes]) -> list[bytes]:
        """See :class:`OneByOne`."""
        received: list[bytes] = []
        for batch in batches(sent):
            await asyncio.gather(*[self.stream.publish(self.name, body) for body in batch])
            left = len(batch)
            while left:
                found = await self.consumer.fetch(left, PATIENCE)
                received += [message.data for message in found]
                for message in found:
                    await message.ack()
                left -= len(found)
        return received
