"""Processes of a channel layer that are killed at any moment of any call."""

from __future__ import annotations

import asyncio
from multiprocessing.connection import Connection

import shmq
from shmq.extras.channels import ShmqChannelLayer
from tests.support.processes import Child, Start
from tests.support.waiting import PATIENCE

KILLS = 15


def _use(pipe: Connection, namespace: str) -> None:
    """Make every call of the layer, again and again, until this process is killed."""

    async def main() -> None:
        layer = ShmqChannelLayer(namespace)
        pipe.send(None)
        while True:
            channel = await layer.new_channel()
            await layer.group_add("room", channel)
            await layer.group_add("mine", channel)
            await layer.group_send("mine", {"n": 1})
            await layer.send(channel, {"n": 2})
            await layer.send("anyone", {"n": 3})
            await layer.receive(channel)
            await layer.receive("anyone")
            await layer.group_discard("room", channel)
            await layer.group_discard("mine", channel)

    asyncio.run(main())


def test_no_call_of_others_fails_while_processes_are_killed(namespace: str) -> None:
    start = Start()

    def begin() -> Child:
        child = start(_use, namespace, method="spawn")
        child.hear()
        return child

    async def main() -> None:
        layer, sender = ShmqChannelLayer(namespace), ShmqChannelLayer(namespace)
        channel = await layer.new_channel()
        await layer.group_add("room", channel)
        users = [begin(), begin()]
        killing = asyncio.ensure_future(asyncio.to_thread(kill, users))
        sent = 0
        while not killing.done() or sent < 500:
            await sender.group_send("room", {"n": sent})
            assert await asyncio.wait_for(layer.receive(channel), PATIENCE) == {"n": sent}
            await sender.send(channel, {"n": -1})
            assert await asyncio.wait_for(layer.receive(channel), PATIENCE) == {"n": -1}
            sent += 1
        await killing
        await sender.group_send("room", {"n": "last"})
        assert await asyncio.wait_for(layer.receive(channel), PATIENCE) == {"n": "last"}
        assert layer.dropped == sender.dropped == 0
        await sender.new_channel()
        with shmq.connect(namespace) as broker:
            names = {name for name in broker.queue_names() if ".inbox." in name}
            bound = {each.target for each in broker.exchange("asgi.groups").bindings()}
        assert names == {f"asgi.inbox.{each.client_prefix}" for each in (layer, sender)}
        assert bound <= names | {"asgi.channel.anyone"}
        await layer.flush()
        await layer.close()
        await sender.close()

    def kill(users: list[Child]) -> None:
        for _ in range(KILLS):
            users.pop(0).kill()
            users.append(begin())
        for user in users:
            user.kill()

    try:
        asyncio.run(main())
    finally:
        start.close()
