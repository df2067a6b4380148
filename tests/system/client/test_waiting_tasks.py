"""Two waiters of one queue: a wakeup that one of them leaves unused goes to the other."""

from __future__ import annotations

import asyncio
import importlib
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import pytest

from shmq.client.local.broker import LocalBroker
from shmq.client.local.queue import LocalQueue
from shmq.client.local.waiting.wakeup_pool import WakeupPool
from shmq.native import _core

wait_module = importlib.import_module("shmq.client.wait")


@pytest.fixture
def local(namespace: str) -> Iterator[LocalBroker]:
    with LocalBroker(namespace) as broker:
        yield broker


@pytest.fixture
def queue(local: LocalBroker) -> LocalQueue:
    return local.create_queue("q", capacity=2)


@pytest.fixture
def wakeups(queue: LocalQueue) -> Iterator[list[_core.Wakeup]]:
    pool = WakeupPool.of(queue.namespace)
    taken = [pool.take() for _ in range(2)]
    yield taken
    for wakeup in taken:
        pool.give_back(wakeup)


def other_waiter(local: LocalBroker, event: int, wakeup: _core.Wakeup) -> _core.Watch:
    """One that waits through a handle of its own, as another process does.

    It has the first entry of the queue, so it is woken before any other.
    """
    watch = _core.Watch(cast(Any, local.queue("q")), event, wakeup)
    watch.arm()
    return watch


@pytest.fixture
def clock() -> Iterator[int]:
    """A clock that stands still: its time, in ns."""
    now = _core.clock()
    _core.set_clock(now)
    yield now
    _core.set_clock(None)


def task_queue(
    queue: LocalQueue, event: int, wakeup: _core.Wakeup
) -> tuple[_core.TaskQueue, _core.WaitingTask]:
    """A task queue in which one task waits."""
    loop = asyncio.new_event_loop()
    waiter = _core.WaitingTask(loop)
    loop.close()
    armed = _core.TaskQueue(queue, event, wakeup, threading.RLock())
    armed.join(waiter)
    armed.arm(waiter)
    return armed, waiter


def is_woken(watch: _core.Watch) -> bool:
    assert watch.wakeup is not None
    return not watch.is_armed and watch.wakeup.sleep(0)


def test_a_waiter_that_took_a_message_passes_its_wakeup_on(
    local: LocalBroker, queue: LocalQueue, wakeups: list[_core.Wakeup], clock: int
) -> None:
    queue.put_many([b"x", b"y"], delay=1)
    theirs = other_waiter(local, _core.EVENT_NOT_EMPTY, wakeups[0])
    ours, waiter = task_queue(queue, _core.EVENT_NOT_EMPTY, wakeups[1])
    _core.set_clock(clock + 2 * 10**9)

    # Both messages are due in this lease, whose own unlock rings for the second one.
    message = queue.try_get()
    assert message is not None
    assert not ours.watch.is_armed
    assert theirs.is_armed
    ours.leave(waiter, served=True)
    assert is_woken(theirs)
    theirs.disarm()


@pytest.mark.parametrize("served", [True, False])
def test_a_waiter_that_leaves_beside_room_passes_its_wakeup_on(
    local: LocalBroker, queue: LocalQueue, wakeups: list[_core.Wakeup], served: bool
) -> None:
    queue.put_many([b"x", b"y"])
    held = queue.get_many(2)
    theirs = other_waiter(local, _core.EVENT_NOT_FULL, wakeups[0])
    ours, waiter = task_queue(queue, _core.EVENT_NOT_FULL, wakeups[1])
    held[0].ack()
    assert not ours.watch.is_armed
    assert theirs.is_armed

    ours.leave(waiter, served=served)
    assert is_woken(theirs)
    theirs.disarm()


def test_a_waiter_that_leaves_a_full_queue_wakes_no_other(
    local: LocalBroker, queue: LocalQueue, wakeups: list[_core.Wakeup]
) -> None:
    queue.put_many([b"x", b"y"])
    held = queue.get_many(2)
    theirs = other_waiter(local, _core.EVENT_NOT_FULL, wakeups[0])
    ours, waiter = task_queue(queue, _core.EVENT_NOT_FULL, wakeups[1])
    held[0].ack()
    queue.put(b"z")

    ours.leave(waiter, served=True)
    assert theirs.is_armed
    theirs.disarm()


def test_a_wait_that_ends_passes_its_wakeup_on(
    local: LocalBroker, queue: LocalQueue, wakeups: list[_core.Wakeup]
) -> None:
    theirs = other_waiter(local, _core.EVENT_NOT_EMPTY, wakeups[0])
    with wait_module._watches([queue]) as (_, watches):
        watches[0].arm()
        queue.put(b"x")
        assert not watches[0].is_armed
        assert theirs.is_armed
    assert is_woken(theirs)
    theirs.disarm()


def test_a_waiter_that_was_not_woken_takes_nothing_with_it(
    local: LocalBroker, queue: LocalQueue, wakeups: list[_core.Wakeup]
) -> None:
    theirs = other_waiter(local, _core.EVENT_NOT_EMPTY, wakeups[0])
    ours, waiter = task_queue(queue, _core.EVENT_NOT_EMPTY, wakeups[1])
    ours.leave(waiter, served=False)
    assert theirs.is_armed
    queue.put(b"x")
    assert is_woken(theirs)
    theirs.disarm()


def test_a_waiter_that_arms_again_calls_those_that_have_missed_the_event(
    queue: LocalQueue, wakeups: list[_core.Wakeup]
) -> None:
    heard: list[str] = []
    armed = _core.TaskQueue(queue, _core.EVENT_ARRIVED, wakeups[0], threading.RLock())
    first, second = (
        _core.WaitingDescriptor(partial(heard.append, name)) for name in ("1st", "2nd")
    )
    for waiter in (first, second):
        armed.join(waiter)
    armed.arm(first)
    heard.clear()
    queue.put(b"x")  # nobody checks before the second one arms
    armed.arm(second)
    assert heard == ["1st"]
    armed.arm(second)
    assert heard == ["1st"]
    for waiter in (first, second):
        armed.leave(waiter, served=False)
