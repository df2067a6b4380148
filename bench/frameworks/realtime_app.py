"""The receivers of real-time frameworks: members of a group of Channels, or a Socket.IO process.

``python -m bench.frameworks.realtime_app FRAMEWORK URL BASE INDEX COUNT`` is the process INDEX of
COUNT. It notes BASE + INDEX + COUNT * number for each number that it receives, and 0 for its start.
"""

from __future__ import annotations

import asyncio
import collections
import json
import sys
from collections.abc import Callable
from typing import Any, Final

from bench.frameworks.ledger import note

#: How many processes receive, and how many members of the group each of them has.
PROCESSES: Final = 2
MEMBERS: Final = 50
GROUP: Final = "bench"


def layer_at(url: str) -> Any:
    """The channel layer of the URL's scheme."""
    if url.startswith("redis"):
        from channels_redis.core import RedisChannelLayer

        return RedisChannelLayer(hosts=[url])
    from shmq.extras.channels import ShmqChannelLayer

    return ShmqChannelLayer(url)


def manager_at(url: str) -> Any:
    """The client manager of the URL's scheme."""
    if url.startswith("redis"):
        from socketio import AsyncRedisManager

        return AsyncRedisManager(url, write_only=True)
    from shmq.extras.socketio import AsyncShmqManager

    return AsyncShmqManager(url, write_only=True)


async def _join(url: str, note_number: Callable[[int], None]) -> None:
    """Note each message once all members have received it."""
    layer = layer_at(url)
    received: collections.Counter[int] = collections.Counter()

    async def receive(channel: str) -> None:
        while True:
            number = (await layer.receive(channel))["number"]
            received[number] += 1
            if received[number] == MEMBERS:
                del received[number]
                note_number(number)

    channels = [await layer.new_channel() for _ in range(MEMBERS)]
    for channel in channels:
        await layer.group_add(GROUP, channel)
    note_number(0)
    await asyncio.gather(*map(receive, channels))


async def _listen(url: str, note_number: Callable[[int], None]) -> None:
    """Note each event; it emits events itself until it hears the first of them."""
    manager = manager_at(url)

    async def emit_first() -> None:
        while True:
            await manager.emit("bench", 0)
            await asyncio.sleep(0.05)

    first: asyncio.Task[None] | None = asyncio.ensure_future(emit_first())
    async for text in manager._listen():
        number = json.loads(text)["data"][0]
        if not number:
            if first is None:
                continue
            first.cancel()
            first = None
        note_number(number)


if __name__ == "__main__":
    framework, url, *numbers = sys.argv[1:]
    base, index, count = map(int, numbers)
    receive = {"channels": _join, "socketio": _listen}[framework]
    asyncio.run(receive(url, lambda number: note(base + index + count * number)))
