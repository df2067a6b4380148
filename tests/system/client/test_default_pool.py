"""The default pool of an event loop is the application's: no call of shmq waits for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

import shmq
from tests.support.loops import occupied_pool
from tests.support.namespaces import own_namespace
from tests.support.tcp_servers import TCP_SERVERS
from tests.support.waiting import PATIENCE


async def _consumed(broker: shmq.Broker) -> Any:
    queue = broker.queue("filled")
    async with queue.aconsume() as messages:
        async for message in messages:
            message.ack()
            return message.body
    return None


async def _replied(broker: shmq.Broker) -> Any:
    answering = asyncio.create_task(_answer(broker))
    reply = await broker.arequest("served", "one", PATIENCE)
    await answering
    return reply.body


async def _answer(broker: shmq.Broker) -> None:
    request = await broker.queue("served").aget(timeout=PATIENCE)
    assert request.reply_to is not None
    await broker.put_target(request.reply_to).aput(
        request.body, timeout=PATIENCE, correlation=request.correlation
    )
    request.ack()


async def _put(broker: shmq.Broker) -> Any:
    queue = broker.ensure_queue("new")
    await queue.aput("one", timeout=PATIENCE)
    return (await queue.aget(timeout=PATIENCE)).body


async def _read(broker: shmq.Broker) -> Any:
    async for record in broker.stream("s").areader(timeout=PATIENCE):
        return record.body
    return None


async def _subscribed(broker: shmq.Broker) -> Any:
    async for record in broker.asubscribe("s", history=1, timeout=PATIENCE):
        return record.body
    return None


async def _set(broker: shmq.Broker) -> Any:
    table = broker.ensure_table("t")
    await table.aset("k", "one")
    broker.delete_table("t")
    return "one"


CALLS: dict[str, Callable[[shmq.Broker], Awaitable[Any]]] = {
    "a first put and get": _put,
    "a consumer": _consumed,
    "a first request": _replied,
    "a reader": _read,
    "a subscription": _subscribed,
    "a table": _set,
}


@pytest.fixture
def namespace() -> Iterator[str]:
    """A namespace that a server may still know at the end."""
    with own_namespace(inhabited=True) as name:
        yield name


@pytest.fixture(params=["local", "tcp"])
def connected(request: pytest.FixtureRequest, namespace: str) -> Iterator[shmq.Broker]:
    """A new connection to the namespace, directly or by a server."""
    with contextlib.ExitStack() as stack:
        url = (
            None if request.param == "local" else stack.enter_context(TCP_SERVERS.serve(namespace))
        )
        yield stack.enter_context(shmq.connect(url or namespace))


@pytest.mark.parametrize("call", CALLS)
def test_a_call_ends_while_the_default_pool_of_its_loop_is_occupied(
    connected: shmq.Broker, broker: shmq.Broker, call: str
) -> None:
    broker.create_queue("filled").put("one")
    broker.create_queue("served")
    broker.create_stream("s", 1).append("one")

    async def run() -> Any:
        async with occupied_pool():
            return await asyncio.wait_for(CALLS[call](connected), PATIENCE)

    assert asyncio.run(run()) == "one"
