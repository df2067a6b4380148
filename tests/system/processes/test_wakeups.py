"""Waiting on wakeups across processes: deaths, forks, and what is left in /dev/shm."""

from __future__ import annotations

import asyncio
import signal
import warnings
from multiprocessing.connection import Connection
from typing import Any

import pytest

import shmq
from shmq import Broker, Queue
from tests.support.processes import Start, files_of, is_empty, is_sound, run_script
from tests.support.waiting import PATIENCE, eventually


def wakeups_of(namespace: str) -> list[str]:
    return [name for name in files_of(namespace) if name.startswith("bell.")]


def armed(queue: Queue) -> int:
    return queue.stats().waiting_get


async def are_armed(queue: Queue, count: int) -> None:
    """Return once so many wakeups are armed for a message."""
    while armed(queue) < count:  # noqa: ASYNC110 - it happens in shared memory
        await asyncio.sleep(0.002)


# ---- what the children do ----


def consume(pipe: Connection, namespace: str) -> int:
    """Take messages in three tasks until there is an end; how many."""
    queue = shmq.connect(namespace).queue("q")
    taken = 0

    async def take() -> None:
        nonlocal taken
        while True:
            with await queue.aget() as message:
                if message.body == b"end":
                    queue.put(b"end", priority=0)
                    return
                taken += 1

    async def work() -> None:
        await asyncio.gather(*(take() for _ in range(3)))

    asyncio.run(work())
    return taken


def produce(pipe: Connection, namespace: str, count: int) -> None:
    queue = shmq.connect(namespace).queue("q")

    async def work() -> None:
        for _ in range(count):
            await queue.aput(b"x")

    asyncio.run(work())


def wait_for_ever(pipe: Connection, namespace: str, how: str) -> None:
    queue = shmq.connect(namespace).queue("q")
    if how == "aget":
        asyncio.run(queue.aget())
    else:
        shmq.wait([queue])
        pipe.send("woken")
        pipe.recv()


def take_and_stay(pipe: Connection, namespace: str) -> None:
    message = shmq.connect(namespace).queue("q").get()
    pipe.send(message.sequence)
    pipe.recv()


# ---- the tests ----


def test_processes_share_a_queue_through_their_loops(
    broker: Broker, namespace: str, start: Start
) -> None:
    queue = broker.create_queue("q", capacity=20, overflow="block")
    consumers = [start(consume, namespace) for _ in range(2)]
    producers = [start(produce, namespace, 500) for _ in range(2)]

    for producer in producers:
        producer.ends()
    queue.put(b"end", priority=0)
    taken = [consumer.ends() for consumer in consumers]

    assert sum(taken) == 1000
    queue.get_nowait().ack()
    is_empty(queue)
    assert wakeups_of(namespace) == []


@pytest.mark.parametrize("how", ["aget", "wait"])
def test_a_waiter_that_is_killed_leaves_nothing(
    queue: Queue, namespace: str, start: Start, how: str
) -> None:
    child = start(wait_for_ever, namespace, how)
    eventually(lambda: armed(queue) == 1, "the child waits")
    assert len(wakeups_of(namespace)) == 1

    child.signal(signal.SIGKILL)
    child.reap()

    queue.qsize()  # looks for the dead
    assert armed(queue) == 0
    assert wakeups_of(namespace) == []
    queue.put(b"x")
    assert queue.get_nowait().delivery_count == 1
    is_sound(queue)


def wait_in_turn(pipe: Connection, namespace: str) -> None:
    """Take one message, then wait for another."""
    queue = shmq.connect(namespace).queue("q")

    async def work() -> None:
        for _ in range(2):
            (await queue.aget()).ack()
            pipe.send("taken")

    asyncio.run(work())


def test_a_put_outlives_the_waiter_whose_wakeup_it_has_open(
    queue: Queue, namespace: str, start: Start
) -> None:
    child = start(wait_in_turn, namespace)
    eventually(lambda: armed(queue) == 1, "the child waits")
    queue.put(b"x")
    assert child.hear() == "taken"
    eventually(lambda: armed(queue) == 1, "the child waits again")
    child.signal(signal.SIGKILL)
    child.reap()

    queue.put(b"y")  # writes into a FIFO that nobody reads any more

    assert queue.get(timeout=PATIENCE).delivery_count == 1


def test_a_waiter_that_is_stopped_takes_its_message_later(
    queue: Queue, namespace: str, start: Start
) -> None:
    child = start(wait_in_turn, namespace)
    eventually(lambda: armed(queue) == 1, "the child waits")
    child.signal(signal.SIGSTOP)
    queue.put_many([b"x", b"y"])
    child.signal(signal.SIGCONT)
    assert (child.hear(), child.hear()) == ("taken", "taken")
    child.ends()


def test_a_wakeup_that_a_killed_waiter_took_with_it_is_late_by_a_slice(
    queue: Queue, namespace: str, start: Start
) -> None:
    child = start(wait_for_ever, namespace, "wait")
    eventually(lambda: armed(queue) == 1, "the child waits")

    async def work() -> None:
        child.signal(signal.SIGSTOP)  # it will not be woken by what it is rung for
        task = asyncio.create_task(queue.aget())
        await are_armed(queue, 2)
        queue.put(b"x")  # rings one of the two, perhaps the one that is stopped
        queue.put(b"y")
        (await task).ack()
        child.signal(signal.SIGKILL)
        (await queue.aget()).ack()

    asyncio.run(work())
    child.reap()


def test_what_a_dead_process_held_wakes_a_task(queue: Queue, namespace: str, start: Start) -> None:
    queue.put(b"x")
    child = start(take_and_stay, namespace)
    sequence = child.hear()

    async def work() -> Any:
        task = asyncio.create_task(queue.aget())
        await are_armed(queue, 1)
        child.signal(signal.SIGKILL)
        return await task

    message = asyncio.run(work())
    assert (message.sequence, message.delivery_count) == (sequence, 2)


def test_what_a_dead_process_held_ends_a_wait(queue: Queue, namespace: str, start: Start) -> None:
    queue.put(b"x")
    child = start(take_and_stay, namespace)
    child.hear()
    child.signal(signal.SIGKILL)
    assert shmq.wait([queue]) == [queue]


def test_the_child_of_a_fork_has_wakeups_of_its_own(
    queue: Queue, namespace: str, start: Start
) -> None:
    async def once() -> None:
        task = asyncio.create_task(queue.aget())
        await are_armed(queue, 1)
        queue.put(b"x")
        (await task).ack()

    def child(pipe: Connection) -> int:
        asyncio.run(once())
        assert shmq.wait([queue], timeout=0.01) == []
        return len(wakeups_of(namespace))

    asyncio.run(once())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads
        assert start(child).ends() == 3  # the parent's, that of the child's loop, and its wait's
    asyncio.run(once())
    assert queue.stats().acked == 3


SCRIPT = """
import asyncio, sys, threading, time
import shmq

queue = shmq.connect(sys.argv[1]).queue("q")

async def work():
    {work}

asyncio.run(work())
print(*(thread.name.split()[1] for thread in threading.enumerate() if "shmq" in thread.name))
"""

ENDINGS = {
    "after its last task": "(await queue.aget(timeout=30)).ack()",
    "with tasks waiting": "asyncio.create_task(queue.aget()); await asyncio.sleep(0.05)",
    "never having waited": "queue.put(b'y'); (await queue.aget()).ack()",
    "with a waiting thread": """
    threading.Thread(target=lambda: shmq.wait([shmq.connect(sys.argv[1]).queue("w")]),
                     daemon=True).start()
    await asyncio.sleep(0.05)""".strip(),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_interpreter_ends_cleanly(
    broker: Broker, queue: Queue, namespace: str, ending: str
) -> None:
    broker.create_queue("w")
    queue.put(b"x", delay=0.1)

    run_script(SCRIPT.format(work=ENDINGS[ending]), namespace)

    assert wakeups_of(namespace) == []
    queue.qsize()
    broker.queue("w").qsize()
    assert armed(queue) == armed(broker.queue("w")) == 0
