"""The channel layer: what channels_redis' own tests do not show; those are in prove."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from channels.exceptions import ChannelFull

import shmq
from shmq.extras.channels import ShmqChannelLayer
from shmq.extras.channels.inbox import Inbox
from tests.support.processes import Start
from tests.support.server import serve
from tests.support.waiting import PATIENCE


@pytest.fixture(params=["here", pytest.param("tcp", marks=pytest.mark.prove)])
def target(request: pytest.FixtureRequest, namespace: str) -> Iterator[str]:
    """A namespace of this host, and a server."""
    if request.param == "here":
        yield namespace
    else:
        with serve(namespace) as server:
            yield server.url


@pytest.fixture
def start() -> Iterator[Start]:
    start = Start()
    yield start
    start.close()


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), PATIENCE))


async def _closed(*layers: ShmqChannelLayer) -> None:
    for layer in layers:
        await layer.flush()
        await layer.close()


def test_a_group_has_members_of_several_processes(target: str) -> None:
    async def main() -> None:
        one, other = ShmqChannelLayer(target), ShmqChannelLayer(target)
        mine, there = await one.new_channel(), await other.new_channel()
        await one.group_add("room", mine)
        await one.group_add("room", there)  # of the other process
        await one.group_add("room", "anyone")
        message: Any = {"type": "chat", "text": "слово", "data": b"\0", 1: None}
        await one.group_send("room", message)
        assert await one.receive(mine) == message
        assert await other.receive(there) == message
        assert await other.receive("anyone") == message

        await one.group_discard("room", there)
        await one.group_discard("room", "anyone")
        await other.group_send("room", {"type": "chat", "n": 2})
        await one.send(there, {"type": "direct"})
        assert (await other.receive(there))["type"] == "direct"
        assert (await one.receive(mine))["n"] == 2
        await one.group_discard("room", mine)
        with shmq.connect(target) as broker:
            keys = {each.key for each in broker.exchange("asgi.groups").bindings()}
        assert "room" not in keys
        await _closed(one, other)

    run(main)


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - of what threads and other tasks do
        await asyncio.sleep(0.002)


async def _is_bound_again(layer: ShmqChannelLayer, channel: str, target: str) -> None:
    """While the channel of the layer receives, its group "room" is bound, and gets messages."""
    receiving = asyncio.create_task(layer.receive(channel))
    with shmq.connect(target) as broker:
        await _until(lambda: "room" in {e.key for e in broker.exchange("asgi.groups").bindings()})
    await ShmqChannelLayer(target).group_send("room", {"type": "after"})
    assert (await receiving)["type"] == "after"


def test_groups_that_could_not_be_bound_are_bound_by_the_next_receive(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bind = Inbox.bind

    def fail_once(self: Inbox) -> None:
        monkeypatch.setattr(Inbox, "bind", bind)
        raise shmq.LockTimeout("the registry is locked")

    async def main() -> None:
        layer = ShmqChannelLayer(namespace)
        channel = await layer.new_channel()
        await layer.group_add("room", channel)
        with shmq.connect(namespace) as broker:
            broker.delete_exchange("asgi.groups")
        monkeypatch.setattr(Inbox, "bind", fail_once)
        await ShmqChannelLayer(namespace).group_send("room", {"type": "new exchange"})
        with pytest.raises(shmq.LockTimeout):
            await layer.receive(channel)
        await _is_bound_again(layer, channel, namespace)
        await _closed(layer)

    run(main)


def test_a_receive_that_is_cancelled_while_a_thread_reads_leaves_its_groups_to_the_next(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drain, go_on = Inbox._drain, threading.Event()

    async def main() -> None:
        layer, loop = ShmqChannelLayer(namespace), asyncio.get_running_loop()
        has_read: list[shmq.Queue] = []
        channel = await layer.new_channel()
        await layer.group_add("room", channel)
        assert layer._inbox is not None
        layer._inbox._is_remote = True  # as over TCP, a thread reads

        def drain_slowly(self: Inbox, queue: shmq.Queue) -> Any:
            found = drain(self, queue)
            loop.call_soon_threadsafe(has_read.append, queue)
            assert go_on.wait(PATIENCE)
            return found

        with shmq.connect(namespace) as broker:
            broker.delete_exchange("asgi.groups")
        await ShmqChannelLayer(namespace).group_send("other", {"type": "new exchange"})
        monkeypatch.setattr(Inbox, "_drain", drain_slowly)
        receiving = asyncio.create_task(layer.receive(channel))
        await _until(lambda: bool(has_read))
        monkeypatch.setattr(Inbox, "_drain", drain)
        receiving.cancel()
        go_on.set()
        await _is_bound_again(layer, channel, namespace)
        await _closed(layer)

    run(main)


@pytest.mark.parametrize("when", ["before its descriptor is read", "after"])
def test_a_queue_that_a_thread_closes_leaves_no_receiver_waiting(
    namespace: str, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    wait = Inbox._wait

    async def main() -> None:
        layer = ShmqChannelLayer(namespace)
        first, second = await layer.new_channel(), await layer.new_channel()
        inbox = layer._own_inbox()
        closed: list[shmq.Queue] = []

        class Closing:
            """The queue, which a thread closes around the call."""

            def __init__(self, queue: shmq.Queue) -> None:
                self._queue = queue

            def fileno(self) -> int:
                number = self._queue.fileno()
                thread = threading.Thread(target=inbox._forget, args=(self._queue,))
                thread.start()
                thread.join()
                closed.append(self._queue)
                return number if when == "after" else self._queue.fileno()

        async def wait_for_closed(self: Inbox, queue: Any, *where: Any) -> None:
            monkeypatch.setattr(Inbox, "_wait", wait)
            closing: Any = Closing(queue)
            await wait(self, closing, *where)

        monkeypatch.setattr(Inbox, "_wait", wait_for_closed)
        leader = asyncio.create_task(layer.receive(first))
        await _until(lambda: bool(closed) and inbox._opened not in {None, closed[0]})
        receiving = asyncio.create_task(layer.receive(second))
        await _until(lambda: second in inbox._mailbox._waiters)
        leader.cancel()
        await layer.send(second, {"type": "hello"})
        assert (await receiving)["type"] == "hello"
        await _closed(layer)

    run(main)


def test_a_receive_that_is_cancelled_loses_no_message(namespace: str) -> None:
    async def main() -> None:
        layer = ShmqChannelLayer(namespace, capacity=2000)
        channels = [await layer.new_channel() for _ in range(3)]
        got: list[int] = []

        async def receive(channel: str) -> None:
            got.append((await layer.receive(channel))["n"])

        for number in range(300):
            tasks = [asyncio.ensure_future(receive(each)) for each in channels for _ in range(2)]
            await layer.send(channels[number % 3], {"n": number})
            for _ in range(number % 7):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        left = {each: asyncio.ensure_future(receive(each)) for each in channels}
        while len(got) < 300:
            await asyncio.wait(left.values(), return_when=asyncio.FIRST_COMPLETED)
            left = {
                each: asyncio.ensure_future(receive(each)) if task.done() else task
                for each, task in left.items()
            }
        assert sorted(got) == list(range(300))
        for task in left.values():
            task.cancel()
        await _closed(layer)

    run(main)


def test_event_loops_in_several_threads_receive_at_the_same_time(namespace: str) -> None:
    layer = ShmqChannelLayer(namespace)
    got: dict[str, list[int]] = {}

    async def receive(channel: str) -> None:
        got[channel] = [(await layer.receive(channel))["n"] for _ in range(50)]

    channels = [async_to_sync(layer.new_channel)() for _ in range(4)]
    for channel in channels:
        async_to_sync(layer.group_add)("all", channel)
    threads = [threading.Thread(target=asyncio.run, args=(receive(each),)) for each in channels]
    for thread in threads:
        thread.start()
    for number in range(50):
        async_to_sync(layer.group_send)("all", {"n": number})
    for thread in threads:
        thread.join(PATIENCE)
    assert got == {each: list(range(50)) for each in channels}
    async_to_sync(_closed)(layer)


def _member(pipe: Connection, namespace: str) -> None:
    async def main() -> None:
        layer = ShmqChannelLayer(namespace)
        channel = await layer.new_channel()
        await layer.group_add("room", channel)
        pipe.send(channel)
        while True:
            pipe.send(await layer.receive(channel))

    asyncio.run(main())


def test_a_killed_process_leaves_no_queue_and_no_group(namespace: str, start: Start) -> None:
    async def main() -> None:
        layer = ShmqChannelLayer(namespace)
        mine = await layer.new_channel()
        await layer.group_add("room", mine)
        child = start(_member, namespace, method="spawn")
        theirs = child.hear()
        await layer.group_send("room", {"n": 1})
        assert child.hear() == {"n": 1} == await layer.receive(mine)
        child.signal(signal.SIGKILL)
        child.reap()

        await layer.group_send("room", {"n": 2})
        assert await layer.receive(mine) == {"n": 2}
        await layer.send(theirs, {"n": 3})
        assert layer.dropped == 1
        await layer.group_add("room", theirs)
        await layer.group_discard("room", theirs)
        with shmq.connect(namespace) as broker:
            assert len([name for name in broker.queue_names() if ".inbox." in name]) == 1
            assert len(broker.exchange("asgi.groups").bindings()) == 2
        await _closed(layer)

    run(main)


def test_the_child_of_a_fork_has_an_inbox_of_its_own(namespace: str, start: Start) -> None:
    layer = ShmqChannelLayer(namespace)
    mine = async_to_sync(layer.new_channel)()

    def work(pipe: Connection) -> bool:
        channel = async_to_sync(layer.new_channel)()
        async_to_sync(layer.send)(channel, {"n": 1})
        assert async_to_sync(layer.receive)(channel) == {"n": 1}
        async_to_sync(layer.send)(mine, {"n": 2})
        return channel.partition("!")[0] != mine.partition("!")[0]

    assert start(work).ends() is True
    assert async_to_sync(layer.receive)(mine) == {"n": 2}
    async_to_sync(_closed)(layer)


def test_messages_that_cannot_be_sent_are_errors(target: str) -> None:
    async def main() -> None:
        layer = ShmqChannelLayer(target)
        mine = await layer.new_channel()
        await layer.group_add("room", mine)
        calls: list[Callable[[Any], Any]] = [
            lambda message: layer.send(mine, message),
            lambda message: layer.send("anyone", message),
            lambda message: layer.group_send("room", message),
        ]
        for call in calls:
            with pytest.raises(TypeError, match="cannot be sent"):
                await call({"type": "x", "value": {1}})
            with pytest.raises(TypeError, match="cannot be sent"):
                await call({"type": "x", "value": 1 << 64})
            with pytest.raises(TypeError, match="cannot be sent"):
                await call({"type": "x", "value": "\ud800"})
            with pytest.raises(AssertionError):
                await call(["x"])
            with pytest.raises(shmq.MessageTooLarge):
                await call({"type": "x", "value": bytes(17 << 20)})
        for name in ("кімната", "a b", "", "x" * 100):
            with pytest.raises(TypeError):
                await layer.group_add(name, mine)
            with pytest.raises(TypeError):
                await layer.send(name, {})
        assert await asyncio.wait_for(_is_empty(layer, mine), PATIENCE)
        await _closed(layer)

    run(main)


async def _is_empty(layer: ShmqChannelLayer, channel: str) -> bool:
    """Whether nothing arrives before a message that is sent now."""
    await layer.send(channel, {"last": True})
    return await layer.receive(channel) == {"last": True}


def test_full_channels_drop_what_is_counted(namespace: str) -> None:
    async def main() -> None:
        layer = ShmqChannelLayer(namespace, capacity=3, channel_capacity={"tiny*": 1})
        mine, tiny = await layer.new_channel(), await layer.new_channel("tiny")
        for channel in (mine, tiny, "tiny-shared"):
            await layer.group_add("room", channel)
        for number in range(5):
            await layer.group_send("room", {"n": number})
        assert [(await layer.receive(mine))["n"] for _ in range(3)] == [0, 1, 2]
        assert (await layer.receive(tiny))["n"] == 0
        assert layer.dropped == 2 + 4 + 4
        with pytest.raises(ChannelFull):
            await layer.send("tiny-shared", {})

        with shmq.connect(namespace) as broker:
            inbox = broker.put_target(f"asgi.inbox.{layer.client_prefix}")
            while inbox.put_many([b"of another program"] * 1000, block=False):
                pass
        with pytest.raises(ChannelFull):
            await layer.send(mine, {})
        await layer.group_send("room", {})
        assert layer.dropped == 2 + 4 + 4 + 2
        waiting = asyncio.ensure_future(layer.receive(mine))
        while not waiting.done():
            with contextlib.suppress(ChannelFull):
                await layer.send(mine, {"n": 9})
            await asyncio.sleep(0)
        assert waiting.result() == {"n": 9}
        await _closed(layer)

    run(main)


def test_messages_and_members_expire(namespace: str) -> None:
    async def main() -> None:
        layer = ShmqChannelLayer(namespace, expiry=0.05, group_expiry=0.1)
        lasting = ShmqChannelLayer(namespace)
        mine, other = await layer.new_channel(), await layer.new_channel()
        await layer.group_add("room", mine)
        for channel in (mine, "anyone"):
            await layer.send(channel, {"n": 1})
        await asyncio.sleep(0.2)
        await layer.group_send("room", {"n": 2})
        for channel in (mine, "anyone"):
            await lasting.send(channel, {"n": 3})
            assert await layer.receive(channel) == {"n": 3}
        await layer.send(other, {"n": 4})
        await lasting.send(mine, {"n": 5})
        await layer.receive(mine)
        await asyncio.sleep(0.2)
        await lasting.send(mine, {"n": 6})
        await layer.receive(mine)
        assert not layer._own_inbox()._mailbox._messages
        await _closed(lasting)
        await _closed(layer)

    run(main)


@pytest.mark.parametrize("waits", [True, False])
def test_a_deleted_inbox_is_made_again_with_its_groups(target: str, waits: bool) -> None:
    async def main() -> None:
        layer, other = ShmqChannelLayer(target), ShmqChannelLayer(target)
        mine = await layer.new_channel()
        await layer.group_add("room", mine)
        waiting = asyncio.ensure_future(layer.receive(mine))
        if waits:
            await asyncio.sleep(0.05)
        with shmq.connect(target) as broker:
            broker.delete_queue(f"asgi.inbox.{layer.client_prefix}")
        if not waits:
            await layer.group_add("another", mine)
        while not waiting.done():
            await other.group_send("room", {"n": 1})
            await asyncio.sleep(0.01)
        assert waiting.result() == {"n": 1}
        await _closed(layer, other)

    run(main)


def test_a_deleted_exchange_is_made_again_with_its_groups(target: str) -> None:
    async def main() -> None:
        layer, other = ShmqChannelLayer(target), ShmqChannelLayer(target)
        mine = await layer.new_channel()
        await layer.group_add("room", mine)
        await other.group_send("room", {"n": 0})
        with shmq.connect(target) as broker:
            broker.delete_exchange("asgi.groups")
        for number in (1, 2, 3):
            await other.group_send("room", {"n": number})
            assert [(await layer.receive(mine))["n"] for _ in range(2)] == [number - 1, number]
            await other.group_send("room", {"n": number})
        await other.send(mine, {"n": 9})
        assert [(await layer.receive(mine))["n"] for _ in range(2)] == [3, 9]
        with shmq.connect(target) as broker:
            assert "room" in {each.key for each in broker.exchange("asgi.groups").bindings()}
        await _closed(layer, other)

    run(main)


def test_a_deleted_queue_of_a_channel_is_made_again(target: str) -> None:
    async def main() -> None:
        layer = ShmqChannelLayer(target)
        await layer.send("anyone", {"n": 1})
        waiting = asyncio.ensure_future(layer.receive("anyone"))
        assert await waiting == {"n": 1}
        waiting = asyncio.ensure_future(layer.receive("anyone"))
        await asyncio.sleep(0.05)
        with shmq.connect(target) as broker:
            broker.delete_queue("asgi.channel.anyone")
        while not waiting.done():
            with contextlib.suppress(shmq.QueueDeleted):
                await layer.send("anyone", {"n": 2})
            await asyncio.sleep(0.01)
        assert await waiting == {"n": 2}
        await _closed(layer)

    run(main)


def test_wrong_settings_are_rejected() -> None:
    with pytest.raises(shmq.InvalidOption, match="shmq://NAMESPACE"):
        ShmqChannelLayer("redis://localhost")
    with pytest.raises(TypeError, match="unexpected"):
        ShmqChannelLayer(hosts=["localhost"])  # type: ignore[call-arg]
    assert ShmqChannelLayer(f"shmq://here{os.getpid()}").extensions == ["groups", "flush"]
