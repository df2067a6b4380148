"""The clients: shmq over nats://, and nats-py that does the same work."""

from __future__ import annotations

import asyncio
from typing import Any

import shmq
from bench.cluster.server import Cluster, SyncedCluster
from bench.tcp.clients import nats_jetstream, shmq_client
from bench.tcp.clients.nats_jetstream import PATIENCE
from bench.tcp.cycle import BATCH, batches
from bench.tcp.server import HOST


class Ours(shmq_client.OneByOne):
    """put, get, ack: one call each."""

    label = "shmq put, get, ack over nats://"
    server = Cluster
    needs = "nats"
    note = "each put is in three files, each ack is confirmed"

    def open(self) -> None:
        """See :class:`bench.tcp.cycle.Client`."""
        self.broker = shmq.connect(f"nats://{HOST}:{self.port}/bench")
        self.queue: Any = self.broker.create_queue(self.name, dead_letter=None, priorities=1)


class OursMany(Ours):
    """A pipeline of puts, get_many, ack_many."""

    label = f"shmq pipeline({BATCH}), get_many({BATCH}), ack_many over nats://"

    def cycle(self, sent: list[bytes]) -> list[bytes]:
        """See :class:`bench.tcp.cycle.Client`."""
        received: list[bytes] = []
        for batch in batches(sent):
            with self.queue.pipeline(BATCH) as pipeline:
                for body in batch:
                    pipeline.put(body)
            left = len(batch)
            while left:
                found = self.queue.get_many(left, PATIENCE)
                received += [message.body for message in found]
                self.queue.ack_many(found)
                left -= len(found)
        return received


class Theirs(nats_jetstream.OneByOne):
    """publish with an id, fetch of one, a confirmed ack, each awaited."""

    label = "nats-py publish, fetch(1), ack_sync"
    server = Cluster
    note = "a work queue, R3, in files"

    def open(self) -> None:
        """See :class:`bench.tcp.cycle.Client`."""
        self.number = 0
        super().open()

    def stream_options(self) -> dict[str, Any]:
        """See :class:`bench.tcp.clients.nats_jetstream.OneByOne`."""
        from nats.js.api import RetentionPolicy

        return {"num_replicas": 3, "retention": RetentionPolicy.WORK_QUEUE}

    async def publish(self, body: bytes) -> None:
        """One message with an id of its own, as one that may be repeated needs."""
        self.number += 1
        await self.stream.publish(self.name, body, headers={"Nats-Msg-Id": str(self.number)})

    async def pass_on(self, sent: list[bytes]) -> list[bytes]:
        """A cycle, on the loop."""
        received: list[bytes] = []
        for body in sent:
            await self.publish(body)
            (message,) = await self.consumer.fetch(1, PATIENCE)
            received.append(message.data)
            await message.ack_sync(PATIENCE)
        return received


class TheirsMany(Theirs):
    """64 publishes whose answers are awaited together, a fetch of 64, 64 confirmed acks."""

    label = f"nats-py {BATCH} publishes in flight, fetch({BATCH}), {BATCH} ack_sync"

    async def pass_on(self, sent: list[bytes]) -> list[bytes]:
        """See :class:`Theirs`."""
        received: list[bytes] = []
        for batch in batches(sent):
            await asyncio.gather(*map(self.publish, batch))
            left = len(batch)
            while left:
                found = await self.consumer.fetch(left, PATIENCE)
                received += [message.data for message in found]
                await asyncio.gather(*(message.ack_sync(PATIENCE) for message in found))
                left -= len(found)
        return received


class OursSynced(OursMany):
    """The same, on servers that sync."""

    server = SyncedCluster


class TheirsSynced(TheirsMany):
    """The same, on servers that sync."""

    server = SyncedCluster
