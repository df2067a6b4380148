"""A worker of taskiq in the event loop of a test."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from taskiq.receiver import Receiver

from shmq.extras.taskiq import ShmqBroker
from tests.support.waiting import PATIENCE


@contextlib.asynccontextmanager
async def worker(broker: ShmqBroker, **options: Any) -> AsyncIterator[None]:
    """A worker of the broker in this event loop; its tasks end before the block does."""
    finish = asyncio.Event()
    receiver = Receiver(broker, run_startup=False, **{"max_async_tasks": 8, **options})
    listening = asyncio.create_task(receiver.listen(finish))
    try:
        yield
    finally:
        finish.set()
        await asyncio.wait_for(listening, PATIENCE)
        await broker.shutdown()
