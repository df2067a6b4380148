"""The broker that taskiq's tests import from ``tests/utils.py``: here over shmq."""

from __future__ import annotations

import asyncio
import os
from uuid import uuid4

import shmq
from shmq.extras.taskiq import ShmqBroker

TARGET = os.environ["SHMQ_SUITE_TARGET"]


class Received:
    """Gives out the messages of a broker's queue, as an asyncio.Queue does."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def get(self) -> bytes:
        """The next message."""
        with shmq.connect(TARGET) as broker:
            message = await broker.queue(self._name).aget(timeout=60)
            message.ack()
            return bytes(message.body)


class AsyncQueueBroker(ShmqBroker):
    """A broker with a queue of its own."""

    def __init__(self) -> None:
        self.name = uuid4().hex
        super().__init__(TARGET, queue=self.name)
        self.queue = Received(self.name)
        self._shared.queue(self.name)

    async def wait_tasks(self) -> None:
        """Return once every task was acknowledged."""
        while True:
            stats = self._shared.queue(self.name).stats()
            if not stats.depth + stats.delayed + stats.in_flight:
                return
            await asyncio.sleep(0.01)
