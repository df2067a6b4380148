"""A taskiq broker with one task; its worker is told the broker by the environment."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

from taskiq import AsyncBroker

from bench.frameworks.ledger import note

BROKER = "BENCH_BROKER"


def broker_at(url: str) -> AsyncBroker:
    """The broker of the URL's scheme, each of those that acknowledge."""
    broker: AsyncBroker
    if url.startswith("redis"):
        from taskiq_redis import RedisStreamBroker

        broker = RedisStreamBroker(url)
    elif url.startswith("amqp"):
        from taskiq_aio_pika import AioPikaBroker

        broker = AioPikaBroker(url)
    else:
        from shmq.extras.taskiq import ShmqBroker

        broker = ShmqBroker(url)
    return broker


def made(url: str) -> tuple[AsyncBroker, Any]:
    """A broker, and its task ``note(number)``."""
    broker = broker_at(url)
    return broker, broker.register_task(note, "note")


@contextlib.contextmanager
def sender(url: str) -> Iterator[Callable[[range], None]]:
    """A function that sends the tasks of those numbers."""
    broker, task = made(url)

    async def send_all(numbers: range) -> None:
        for number in numbers:
            await task.kiq(number)

    with asyncio.Runner() as runner:
        runner.run(broker.startup())
        yield lambda numbers: runner.run(send_all(numbers))
        runner.run(broker.shutdown())


if BROKER in os.environ:
    broker, _ = made(os.environ[BROKER])
