"""What a queue's numbers say of remote consumers that wait."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest

import shmq
from shmq.protocol.opcodes import FOREVER, Type
from shmq.server import frontend
from shmq.server.config.settings import Settings
from shmq.server.connection.connection import ConnectionCounts
from tests.support.peer import frame, name_of
from tests.support.waiting import eventually


def test_a_consumer_that_waited_and_is_gone_is_not_counted_any_more(
    namespace: str, broker: shmq.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frontend, "_ROUND", 3600.0)  # that it looks round is not what is tested
    queue = broker.create_queue("q")
    asyncio.run(_come_and_go(namespace, queue))


async def _come_and_go(namespace: str, queue: shmq.Queue) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setblocking(False)
    settings = Settings(namespace=namespace, workers=1)
    front = frontend.FrontEnd(settings, listening, ConnectionCounts.of(1), 0)
    serving = asyncio.create_task(front.run())
    consume = frame(Type.CONSUME, name_of("q") + struct.pack("!IIB", 1, FOREVER, 0))
    subscribe = frame(Type.SUBSCRIBE, name_of("q") + struct.pack("!IB", 1, 0))
    for wish in (consume, subscribe):
        _, writer = await asyncio.open_connection(*listening.getsockname())
        writer.write(wish)
        await _until(queue, 1)
        writer.close()
        await writer.wait_closed()
        await _until(queue, 0)
    front.drain()
    await serving


async def _until(queue: shmq.Queue, waiting: int) -> None:
    def is_so() -> bool:
        return queue.stats().waiting_get == waiting

    await asyncio.to_thread(eventually, is_so, f"{waiting} wait for a message")
