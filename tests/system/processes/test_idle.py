"""Processes that wait while nothing happens: they do not wake, and still notice deaths."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq import Broker, Queue
from shmq.client.local import deaths
from shmq.client.local.queue import attach
from shmq.host.namespace.namespace import Namespace
from shmq.native import _core
from tests.support.processes import Child, Start, asleep, hold, sleep_but_for, sleep_undisturbed
from tests.support.waiting import eventually

#: Seconds for which wake-ups are counted, and the most that may be there for each process; one that
#: looks every 50 ms has more than ten times as many.
COUNTED = 1.25
MOST = 4


def threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


async def get_two(queue: Queue, other: Queue) -> None:
    await asyncio.gather(queue.aget(), other.aget())


WAITS: dict[str, Callable[[Queue, Queue], Any]] = {
    "get": lambda queue, full: queue.get(),
    "consume": lambda queue, full: next(queue.consume()),
    "where": lambda queue, full: queue.get(where="priority > 1"),
    "put": lambda queue, full: full.put(b"2", block=True),
    "wait": lambda queue, full: shmq.wait([queue]),
    "aget": lambda queue, full: asyncio.run(get_two(queue, queue)),
    "fileno": lambda queue, full: select.select([queue], [], []),
}


@pytest.fixture
def full(broker: Broker) -> Queue:
    """A full queue."""
    queue = broker.create_queue("full", capacity=1)
    queue.put(b"1")
    return queue


def test_nobody_wakes_while_nothing_happens(
    namespace: str, queue: Queue, full: Queue, start: Start
) -> None:
    def work(pipe: Connection, how: str) -> None:
        broker = shmq.connect(namespace)
        WAITS[how](broker.queue("q"), broker.queue("full"))

    children = [start(work, how) for how in WAITS for _ in range(2)]
    eventually(lambda: full.stats().waiting_put == 2, "two wait for room")
    eventually(lambda: queue.stats().waiting_get >= 12, "the others wait for a message")
    eventually(lambda: any(threads(child.pid) > 1 for child in children), "one guards")

    sleep_undisturbed([child.pid for child in children], COUNTED, MOST)


# ---- a crowd ----

#: How many sleep; how many of them wake, at most, within how many seconds: the watchers, and 13 in
#: a second (shmq/core/queue/wait.h).
CROWD, AWAKE, WATCHED = 150, 90, 2.5


def count_and_wait(pipe: Connection, namespace: str) -> None:
    """Acknowledge one message, and send its body."""
    with shmq.connect(namespace).queue("q").get() as message:
        pipe.send(message.body)


@pytest.fixture
def crowd(namespace: str, queue: Queue, start: Start) -> dict[int, Child]:
    """So many that those who do not watch sleep for longer, and have begun to."""
    children = [start(count_and_wait, namespace) for _ in range(CROWD)]
    asleep(queue, getters=len(children))
    crowd = {child.pid: child for child in children}
    sleep_but_for(AWAKE, crowd, WATCHED)
    return crowd


@pytest.mark.prove
def test_others_of_a_crowd_take_the_places_of_dead_watchers(
    queue: Queue, crowd: dict[int, Child]
) -> None:
    for pid in sleep_but_for(AWAKE, crowd, WATCHED):
        crowd.pop(pid).kill()
    asleep(queue, getters=len(crowd))

    assert sleep_but_for(AWAKE, crowd, WATCHED), "some look for all"
    queue.put("late", delay=5)
    eventually(lambda: queue.stats().acked == 1, "one has got what became due")


@pytest.mark.prove
def test_a_process_of_many_threads_leaves_places_of_watchers_to_others(
    namespace: str, queue: Queue, start: Start
) -> None:
    def wait_in_threads(pipe: Connection) -> None:
        with shmq.connect(namespace).queue("q") as shared:
            threads = [threading.Thread(target=shared.get, daemon=True) for _ in range(CROWD)]
            for thread in threads:
                thread.start()
            pipe.recv()

    start(wait_in_threads)
    asleep(queue, getters=CROWD)
    alone = start(count_and_wait, namespace)
    asleep(queue, getters=CROWD + 1)

    for _ in range(2):
        assert sleep_but_for(1, [alone.pid], 5), "it looks for itself"
    queue.put_many([b""] * (CROWD + 1))
    alone.hear()


@pytest.mark.prove
def test_a_burst_that_wakes_a_whole_crowd_is_handled(queue: Queue, crowd: dict[int, Child]) -> None:
    queue.put_many(range(len(crowd)))

    assert sorted(child.hear() for child in crowd.values()) == list(range(len(crowd)))


@pytest.mark.prove
def test_a_crowd_notices_that_its_queue_was_deleted_by_a_process_that_died(
    namespace: str, queue: Queue, crowd: dict[int, Child]
) -> None:
    """It died before it woke anybody."""
    with attach(Namespace(namespace), "q") as handle:
        assert handle.end(unused=False)

    eventually(lambda: all(child.has_spoken() for child in crowd.values()), "all have")
    for child in crowd.values():
        with pytest.raises(AssertionError, match="QueueDeleted"):
            child.hear()


# ---- guardians ----


def sleep_long(pipe: Connection, namespace: str) -> None:
    """Wait for a message of the queue ``idle``, which makes the process a guardian."""
    shmq.connect(namespace).queue("idle").get()


@pytest.fixture
def start_guardian(namespace: str, broker: Broker, start: Start) -> Callable[[], Child]:
    """Start a process that guards the namespace, and is not attached to ``q``."""
    idle = broker.create_queue("idle")
    started = []

    def start_one() -> Child:
        child = start(sleep_long, namespace)
        started.append(child)
        asleep(idle, getters=len(started))  # the thread that measures what a sleep costs has ended
        eventually(lambda: threads(child.pid) > 1, "it becomes a guardian")
        return child

    return start_one


def is_left(queue: Queue, pid: int) -> bool:
    """Whether the process is not attached any more; a look that reclaims nothing itself."""
    return pid not in [attachment.pid for attachment in queue.attachments()]


def test_a_death_in_a_queue_that_nobody_waits_for_is_noticed(
    namespace: str, queue: Queue, start: Start, start_guardian: Callable[[], Child]
) -> None:
    queue.put(b"1")
    holder = start(hold, namespace)
    holder.hear()
    start_guardian()
    assert not is_left(queue, holder.pid)

    holder.kill()

    eventually(lambda: is_left(queue, holder.pid), "the guardian returns what the dead one held")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_second_guardian_notices_what_a_dead_or_stopped_one_does_not(
    namespace: str,
    queue: Queue,
    start: Start,
    start_guardian: Callable[[], Child],
    number: signal.Signals,
) -> None:
    queue.put(b"1")
    holder = start(hold, namespace)
    holder.hear()
    first = start_guardian()
    start_guardian()

    first.signal(number)
    holder.kill()

    eventually(lambda: is_left(queue, holder.pid), "the other guardian notices it")
    first.signal(signal.SIGKILL)


def test_a_death_is_noticed_though_a_fork_of_the_dead_process_lives_on(
    namespace: str, queue: Queue, start: Start, start_guardian: Callable[[], Child]
) -> None:
    def work(pipe: Connection) -> None:
        message = shmq.connect(namespace).queue("q").get_nowait()
        pid = os.fork()
        if pid:
            pipe.send((pid, message.sequence))
        signal.pause()

    queue.put(b"1")
    holder = start(work)
    heir, _ = holder.hear()
    start_guardian()

    holder.kill()

    eventually(lambda: is_left(queue, holder.pid), "the guardian returns what the dead one held")
    os.kill(heir, signal.SIGKILL)


def test_four_processes_are_guardians_and_the_next_one_takes_a_free_place(
    namespace: str, broker: Broker, start: Start, start_guardian: Callable[[], Child]
) -> None:
    guardians = [start_guardian() for _ in range(4)]
    more = start(sleep_long, namespace)
    asleep(broker.queue("idle"), getters=5)
    time.sleep(0.2)  # longer than the slice after which it asks
    assert threads(more.pid) == 1

    guardians[2].kill()

    eventually(lambda: threads(more.pid) == 2, "the fifth one takes the place")


def test_without_a_watch_nobody_is_a_guardian(
    namespace: str, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: bytes) -> _core.FileWatch:
        raise OSError(24, "too many open files")

    monkeypatch.setattr(_core, "FileWatch", refuse)
    assert not deaths.are_noticed(Namespace.of(namespace), attach)
    assert f"shmq guardian {namespace}" not in [thread.name for thread in threading.enumerate()]


def test_a_guardian_of_a_removed_namespace_guards_the_next_one_of_that_name(
    namespace: str, broker: Broker, start: Start
) -> None:
    there = Namespace.of(namespace)
    broker.create_queue("old", dead_letter=None)
    assert deaths.are_noticed(there, attach)
    broker.delete_queue("old")
    there.retire()
    assert not there.roles.is_guardian
    queue = broker.create_queue("q", visibility_timeout=3600)
    queue.put(b"1")
    holder = start(hold, namespace)
    holder.hear()
    assert deaths.are_noticed(there, attach)

    holder.kill()

    eventually(lambda: is_left(queue, holder.pid), "the new file is watched")


def test_a_fork_ends_the_thread_of_a_guardian(namespace: str, queue: Queue, start: Start) -> None:
    def work(pipe: Connection) -> tuple[int, bool]:
        there = Namespace.of(namespace)
        there.processes.own_number()
        assert deaths.are_noticed(there, attach)
        assert threading.active_count() == 2
        pid = os.fork()
        if not pid:
            os._exit(0 if deaths.are_noticed(Namespace.of(namespace), attach) else 1)
        status = os.waitpid(pid, 0)[1]
        return status, threading.active_count() == 1

    assert start(work).ends() == (0, True)


def test_a_handle_that_is_closed_wakes_its_sleepers(queue: Queue, broker: Broker) -> None:
    handle = broker.queue("q")
    refused: list[shmq.ShmqError] = []

    def wait() -> None:
        with pytest.raises(shmq.ShmqError, match="closed") as refusal:
            handle.get()
        refused.append(refusal.value)

    waiting = threading.Thread(target=wait)
    waiting.start()
    asleep(queue, getters=1)

    handle.close()

    waiting.join(60)
    assert len(refused) == 1
