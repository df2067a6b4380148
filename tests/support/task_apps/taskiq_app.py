"""An application of taskiq whose task notes that it ran."""

from __future__ import annotations

import asyncio
import json
import os

from shmq.extras.taskiq import ShmqBroker
from tests.support.task_apps.ledger import OPTIONS, TARGET, WORK, is_late, is_open, note

broker = ShmqBroker(os.environ[TARGET], queue="default", **json.loads(os.environ[OPTIONS]))


@broker.task
async def run(number: int, late: bool) -> None:
    """Note the run; a late one waits first."""
    while late:
        if is_open():
            break
        await asyncio.sleep(WORK)
    note(number)
    await asyncio.sleep(WORK)


def send(count: int) -> None:
    """Send that many tasks."""
    asyncio.run(_send(count))


async def _send(count: int) -> None:
    await broker.startup()
    for number in range(count):
        await run.kiq(number, is_late(number, count))
    await broker.shutdown()
