"""Requests that are interrupted or refused while messages are in the client's hands already."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shmq
from shmq import Broker, Queue
from shmq.client.ports.steps import Step, run
from shmq.client.remote.connection import Connection
from shmq.client.remote.get import RemoteGet
from shmq.client.remote.queue import RemoteQueue
from shmq.errors import LockTimeout
from tests.support.waiting import eventually


@pytest.fixture
def here(url: str) -> Iterator[Queue]:
    """The queue over a connection of its own; leases outlast the tests."""
    with shmq.connect(url) as other:
        yield other.create_queue("q", visibility_timeout=3600)


def interrupt(monkeypatch: pytest.MonkeyPatch, before: Callable[[], None]) -> None:
    """Cancel the next wait for an answer, once there is one."""
    real = Connection.waiting

    def waiting(connection: Connection, wire: Any, answer: Any, timeout: float | None) -> Step:
        monkeypatch.setattr(Connection, "waiting", real)
        before()
        wait, wait_in_task = real(connection, wire, answer, timeout)

        async def cancelled() -> None:
            await wait_in_task()
            raise asyncio.CancelledError

        return wait, cancelled

    monkeypatch.setattr(Connection, "waiting", waiting)


def is_back(queue: Queue, count: int) -> None:
    eventually(lambda: (queue.stats().depth, queue.stats().in_flight) == (count, 0), "all are back")


def test_a_consumer_that_is_cancelled_as_it_ends_returns_what_it_had_ahead(
    broker: Broker, here: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.put_many(range(5))

    async def work() -> None:
        with pytest.raises(asyncio.CancelledError):
            async with broker.queue("q").aconsume(8) as messages:
                (await anext(messages)).ack()
                interrupt(monkeypatch, lambda: None)
        await asyncio.to_thread(is_back, here, 4)

    asyncio.run(work())


def test_a_consumer_that_is_cancelled_at_its_timeout_returns_what_came(
    broker: Broker, here: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put() -> None:
        here.put(b"late")
        eventually(lambda: here.stats().in_flight == 1, "it is on its way")

    async def work() -> None:
        real = Connection.waiting

        def waiting(*arguments: Any) -> Step:
            """The first wait, for messages; the next one is for the end of the subscription."""
            interrupt(monkeypatch, put)
            return real(*arguments)

        monkeypatch.setattr(Connection, "waiting", waiting)
        with pytest.raises(asyncio.CancelledError):
            async with broker.queue("q").aconsume(timeout=0.05) as messages:
                await anext(messages)
        await asyncio.to_thread(is_back, here, 1)

    asyncio.run(work())


@pytest.mark.parametrize("error", [LockTimeout("it is held"), KeyboardInterrupt()], ids=repr)
def test_a_get_of_many_delivers_or_returns_what_came_first(
    broker: Broker, here: Queue, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    real = RemoteGet._consuming
    asked = 0

    def consuming(get: RemoteGet, *arguments: Any) -> Step:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise error
        return real(get, *arguments)

    def subscribe(get: RemoteGet, wire: Any) -> Any:
        here.put(b"first")
        return ask(get, wire)

    ask = RemoteGet._wait_for_one
    monkeypatch.setattr(RemoteGet, "_wait_for_one", subscribe)
    monkeypatch.setattr(RemoteGet, "_consuming", consuming)
    monkeypatch.setattr(RemoteGet, "take_now", lambda get, timeout: run(get.take(timeout)))
    queue = broker.queue("q")
    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            queue.get_many(10, timeout=60)
        is_back(here, 1)
    else:
        assert [message.body for message in queue.get_many(10, timeout=60)] == [b"first"]


def test_a_late_look_at_a_lost_exclusive_queue_finds_its_successor(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_queue("mine", exclusive=True)
    broker.delete_queue("mine")
    real, made = RemoteQueue.is_owner, []

    def is_owner(queue: RemoteQueue) -> bool:
        """Another thread makes the queue again, once the answer is there."""
        answer = real(queue)
        monkeypatch.undo()
        made.append(broker.create_queue("mine", exclusive=True))
        return answer

    monkeypatch.setattr(RemoteQueue, "is_owner", is_owner)
    assert broker.queue("mine") is made[0]
    assert broker.queue("mine") is made[0]
