"""A lock in an event loop: its waits take no thread, and a cancelled one holds nothing."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import threading
from collections.abc import Iterator

import pytest

import shmq
from shmq.client.local.broker import LocalBroker
from tests.support.loops import Loop, until
from tests.support.stopped import locks_of_queue
from tests.support.waiting import PATIENCE, eventually


@pytest.fixture
def local(namespace: str) -> Iterator[LocalBroker]:
    with LocalBroker(namespace) as broker:
        yield broker


def threads() -> list[str]:
    """The names of this process's threads but that of the guardian."""
    return [one.name for one in threading.enumerate() if not one.name.startswith("shmq guardian")]


def test_tasks_wait_for_a_lock_without_a_thread(local: LocalBroker, run: Loop) -> None:
    lock, before = local.lock("a"), threads()
    order: list[int] = []

    async def take(number: int) -> None:
        async with local.lock("a"):
            order.append(number)
            assert threads() == before

    async def work() -> None:
        await lock.aacquire()
        tasks = []
        for number in range(10):
            tasks.append(asyncio.create_task(take(number)))
            await until(lambda: len(lock.waiters()) == len(tasks))
        assert threads() == before
        await lock.arelease()
        await asyncio.gather(*tasks)

    run(work())
    assert order == list(range(10))


@pytest.mark.parametrize("queue", ["lock::a", "line::a"])
@pytest.mark.parametrize("side", ["gets", "puts"])
def test_other_tasks_run_while_a_process_is_stopped_in_the_queue(
    local: LocalBroker, run: Loop, queue: str, side: str
) -> None:
    lock, other = local.lock("a"), local.lock("a")

    async def work() -> None:
        await lock.aacquire()
        with locks_of_queue(local.namespace, queue)[side].held_by_stopped() as stopped:
            acquiring = asyncio.create_task(other.aacquire())
            releasing = asyncio.create_task(lock.arelease())
            for _ in range(4):
                await asyncio.sleep(0.01)
            assert not acquiring.done()
            stopped.send_signal(signal.SIGCONT)
            assert await asyncio.to_thread(stopped.wait, PATIENCE) == 0
        await releasing
        assert await acquiring
        await other.arelease()

    run(work())
    assert lock.waiters() == []


def test_a_cancelled_release_is_carried_out(local: LocalBroker, run: Loop) -> None:
    lock, other = local.lock("a"), local.lock("a")

    async def work() -> None:
        await lock.aacquire()
        with locks_of_queue(local.namespace, "lock::a")["gets"].held_by_stopped() as stopped:
            releasing = asyncio.create_task(lock.arelease())
            await asyncio.sleep(0)
            releasing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await releasing
            stopped.send_signal(signal.SIGCONT)
            assert await asyncio.to_thread(stopped.wait, PATIENCE) == 0
        assert await other.aacquire(timeout=PATIENCE)

    run(work())


@pytest.mark.prove
@pytest.mark.parametrize("permits", [1, 2])
def test_a_lock_that_is_granted_to_a_cancelled_task_is_passed_on(
    local: LocalBroker, run: Loop, permits: int
) -> None:
    """Releases and cancellations meet at every step of a wait, thousands of times."""
    handles = [local.semaphore("a", permits) for _ in range(permits)]
    granted = cancelled = 0

    async def work() -> None:
        nonlocal granted, cancelled
        chance = random.Random(5)
        for _ in range(3000):
            for handle in handles:
                assert await handle.aacquire(timeout=PATIENCE)
            waiting = local.semaphore("a", permits)
            task = asyncio.create_task(waiting.aacquire())
            steps = [task.cancel] + [handle.release for handle in handles]
            chance.shuffle(steps)
            for step in steps:
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(0)
                step()
            try:
                assert await task
            except asyncio.CancelledError:
                cancelled += 1
            else:
                granted += 1
                await waiting.arelease()

    run(work())
    assert granted and cancelled
    assert handles[0].holders() == handles[0].waiters() == []


def test_a_lock_whose_queues_are_deleted_beneath_a_waiter_is_made_again(
    local: LocalBroker, run: Loop
) -> None:
    lock, other = local.lock("a"), local.lock("a")

    async def work() -> None:
        await lock.aacquire()
        acquiring = asyncio.create_task(other.aacquire())
        await until(lambda: len(lock.waiters()) == 1)
        for queue in ("lock::a", "line::a"):
            local.delete_queue(queue)
        assert await acquiring
        with pytest.raises(shmq.LockNotHeld, match="lost"):
            await lock.arelease()
        await other.arelease()

    run(work())


def test_a_closed_broker_ends_its_waits(local: LocalBroker, namespace: str, run: Loop) -> None:
    lock = local.lock("a")

    async def work() -> None:
        await lock.aacquire()
        closing = LocalBroker(namespace)
        acquiring = asyncio.create_task(closing.lock("a").aacquire())
        await until(lambda: len(lock.waiters()) == 1)
        closing.close()
        with pytest.raises(shmq.ShmqError):
            await acquiring

    run(work())
    eventually(lambda: lock.waiters() == [], "the waiter has left the line")


def test_a_loop_that_ends_with_waiting_tasks_leaves_the_line(local: LocalBroker, run: Loop) -> None:
    lock = local.lock("a")
    lock.acquire()

    async def work() -> None:
        tasks = [asyncio.create_task(local.lock("a").aacquire()) for _ in range(3)]
        await until(lambda: len(lock.waiters()) == len(tasks))

    run(work())  # which cancels them
    assert lock.waiters() == []
    lock.release()
    assert lock.acquire(block=False)
