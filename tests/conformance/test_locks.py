"""Locks and semaphores: one holder, in the order of waiting, released by a death.

Other levels: system/processes/test_locks.py, prove/soak/test_locks.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import shmq
from shmq import Broker
from shmq.api.lock import MAX_PERMITS
from tests.support.waiting import PATIENCE, eventually

from .conftest import Connect
from .tools import check_fork_holds_nothing, in_thread, outcome

#: Long enough that one who could acquire a lock would have done so.
_WHILE = 0.2


def waits(lock: shmq.Semaphore, number: int = 1) -> None:
    """Return once that many wait."""
    eventually(lambda: len(lock.waiters()) == number, f"{number} wait")


def test_a_lock_has_one_holder_and_is_free_after_the_block(
    broker: Broker, connect: Connect
) -> None:
    lock, other = broker.lock("a"), connect().lock("a")
    assert (lock.holder(), lock.locked(), other.locked()) == (None, False, False)
    with lock as entered:
        assert entered is lock
        assert (lock.locked(), other.locked()) == (True, True)
        holder = other.holder()
        assert holder is not None
        assert abs(holder.since - time.time()) < PATIENCE
        assert holder.pid
        assert not other.acquire(block=False)
        assert not other.acquire(timeout=0)
        assert not other.acquire(timeout=0.05)
    assert not other.locked()
    assert other.acquire()
    assert not lock.acquire(block=False)
    other.release()


def test_those_who_wait_get_it_in_their_order(broker: Broker, connect: Connect) -> None:
    lock, order = broker.lock("a"), []

    def take(number: int, mine: shmq.Lock) -> None:
        with mine:
            order.append(number)

    lock.acquire()
    tasks = []
    for number in range(6):
        tasks.append(in_thread(take, number, connect().lock("a")))
        waits(lock, number + 1)
    lock.release()
    with lock:  # one who releases and acquires again is the last
        order.append(6)
    for task in tasks:
        outcome(task)
    assert order == list(range(7))


def test_a_waiter_that_times_out_leaves_the_line(broker: Broker, connect: Connect) -> None:
    lock, first, second = (connect().lock("a") for _ in range(3))
    lock.acquire()
    early = in_thread(first.acquire, timeout=_WHILE)
    eventually(lambda: len(lock.waiters()) == 1 or early.done(), "it waits, or has")
    late = in_thread(second.acquire)
    eventually(lambda: len(lock.waiters()) == 2 or early.done(), "both wait, or one has")
    assert outcome(early) is False
    waits(lock)
    lock.release()
    assert outcome(late) is True
    second.release()
    assert broker.list_locks()[0].waiters == []


def test_a_semaphore_has_that_many_holders(broker: Broker, connect: Connect) -> None:
    semaphore, other = broker.semaphore("s", 3), connect().semaphore("s", 3)
    assert (semaphore.name, semaphore.permits) == ("s", 3)
    assert semaphore.acquire()
    assert semaphore.acquire()
    assert not semaphore.locked()
    with other:
        assert semaphore.locked()
        assert len(semaphore.holders()) == 3
        assert not semaphore.acquire(block=False)
        waiting = in_thread(semaphore.acquire, timeout=PATIENCE)
        waits(other)
    assert outcome(waiting) is True
    for _ in range(3):
        semaphore.release()
    with pytest.raises(shmq.LockNotHeld):
        semaphore.release()
    assert semaphore.holders() == []


def test_a_block_that_is_not_entered_in_time_says_who_holds_the_lock(
    broker: Broker, connect: Connect
) -> None:
    with (
        broker.lock("a"),
        pytest.raises(shmq.LockTimeout, match=r"'a' was not acquired within 0.05 s: process \d"),
        connect().lock("a", timeout=0.05),
    ):
        pass
    assert not broker.lock("a").locked()


def test_an_exception_in_the_block_releases_the_lock(broker: Broker) -> None:
    with pytest.raises(ZeroDivisionError), broker.lock("a"):
        _ = 1 / 0
    assert not broker.lock("a").locked()


def test_only_the_handle_that_holds_a_lock_releases_it(broker: Broker, connect: Connect) -> None:
    lock = broker.lock("a")
    lock.acquire()
    for other in (broker.lock("a"), connect().lock("a")):
        with pytest.raises(shmq.LockNotHeld, match="'a' is not held by this handle"):
            other.release()
    lock.release()
    with pytest.raises(RuntimeError):
        lock.release()


def test_a_lock_is_not_reentrant(broker: Broker) -> None:
    lock = broker.lock("a")
    with lock:
        assert not lock.acquire(block=False)
        assert not lock.acquire(timeout=0.05)
        waiting = in_thread(lock.acquire)  # of another thread: it gets it
        waits(lock)
    assert outcome(waiting) is True
    lock.release()


def test_a_lock_stays_held_if_its_handle_is_dropped(broker: Broker, connect: Connect) -> None:
    assert broker.lock("leader").acquire(block=False)
    assert connect().lock("leader").locked()


def test_a_closed_broker_releases_its_locks(broker: Broker, connect: Connect) -> None:
    first = connect()
    lock = first.lock("a")
    lock.acquire()
    waiting = in_thread(broker.lock("a").acquire)
    waits(broker.lock("a"))
    first.close()
    assert outcome(waiting) is True
    for use in (lock.acquire, lambda: first.lock("a"), first.list_locks):
        with pytest.raises(shmq.ShmqError, match="closed"):
            use()
    with pytest.raises(shmq.ShmqError):
        lock.release()


def test_a_lock_that_was_forgotten_is_made_again(broker: Broker, connect: Connect) -> None:
    first = connect()
    kept = broker.lock("a")
    with first.lock("a"):
        assert kept.locked()
    first.close()
    assert not kept.locked()
    with kept, connect().lock("b"):
        assert [one.name for one in broker.list_locks()] == ["a", "b"]


def test_locks_are_listed_and_their_queues_are_not(broker: Broker, connect: Connect) -> None:
    lock, semaphore = broker.lock("a"), broker.semaphore("s", 2)
    with lock, semaphore:
        waiting = in_thread(connect().lock("a").acquire, timeout=PATIENCE)
        waits(lock)
        one, two = broker.list_locks()
        assert (one.name, one.kind, one.permits) == ("a", "lock", 1)
        assert (len(one.holders), len(one.waiters)) == (1, 1)
        assert (two.name, two.kind, two.permits) == ("s", "semaphore", 2)
        assert (len(two.holders), two.waiters) == (1, [])
        assert one.holders[0].since <= one.waiters[0].since + 0.01
        assert broker.queue_names() == []
        assert broker.list_queues() == []
    assert outcome(waiting) is True


# ---- asyncio ----


def test_tasks_share_a_lock(broker: Broker, connect: Connect) -> None:
    lock, order = broker.lock("a"), []

    async def take(number: int) -> None:
        async with lock:
            order.append(number)
            await asyncio.sleep(0)

    async def main() -> None:
        await lock.aacquire()
        tasks = []
        for number in range(5):
            tasks.append(asyncio.create_task(take(number)))
            await asyncio.to_thread(waits, lock, number + 1)
        await lock.arelease()
        await asyncio.gather(*tasks)

    asyncio.run(asyncio.wait_for(main(), PATIENCE))
    assert order == list(range(5))
    assert connect().lock("a").acquire(block=False)


def test_a_cancelled_task_holds_nothing(broker: Broker, connect: Connect) -> None:
    lock, other = broker.lock("a"), connect().lock("a")

    async def main() -> None:
        for number in range(40):
            await other.aacquire()
            task = asyncio.create_task(lock.aacquire())
            await asyncio.sleep(number / 1000)
            if number % 2:
                await other.arelease()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                if await task:
                    await lock.arelease()
            if not number % 2:
                await other.arelease()
            assert await other.aacquire(timeout=PATIENCE)
            await other.arelease()

    asyncio.run(asyncio.wait_for(main(), PATIENCE * 2))
    eventually(
        lambda: lock.waiters() == [], "what a cancelled task asked the server for is returned"
    )
    with pytest.raises(shmq.LockNotHeld):
        asyncio.run(lock.arelease())


def test_an_async_block_times_out(broker: Broker, connect: Connect) -> None:
    async def main() -> None:
        async with connect().lock("a", timeout=0.05):
            pass

    with broker.lock("a"), pytest.raises(shmq.LockTimeout):
        asyncio.run(main())
    asyncio.run(main())


# ---- arguments ----


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "schön", "x" * 95, "a/b", "\0"])
def test_an_invalid_name_is_refused(broker: Broker, name: str) -> None:
    makes: list[Callable[[], Any]] = [lambda: broker.lock(name), lambda: broker.semaphore(name, 2)]
    for make in makes:
        with pytest.raises(shmq.InvalidName, match=r"invalid \w+ name"):
            make()


@pytest.mark.parametrize(
    "name", ["x" * 94, "a", "lock::a", "line::a", shmq.escape_name("schön"), "..."]
)
def test_any_other_name_is_accepted(broker: Broker, connect: Connect, name: str) -> None:
    with broker.lock(name):
        assert connect().lock(name).locked()
        assert [one.name for one in broker.list_locks()] == [name]


@pytest.mark.parametrize(
    ("permits", "error"),
    [
        (0, shmq.InvalidOption),
        (-1, shmq.InvalidOption),
        (MAX_PERMITS + 1, shmq.InvalidOption),
        (True, TypeError),
        (1.0, TypeError),
        ("2", TypeError),
        (None, TypeError),
    ],
)
def test_an_invalid_number_of_permits_is_refused(
    broker: Broker, permits: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match="permits"):
        broker.semaphore("s", permits)
    assert broker.list_locks() == []


def test_a_semaphore_has_one_permit_or_very_many(broker: Broker) -> None:
    many = broker.semaphore("many", MAX_PERMITS)
    for _ in range(MAX_PERMITS // 2):
        assert many.acquire(block=False)
    assert len(broker.list_locks()[0].holders) == len(many.holders()) == MAX_PERMITS // 2
    one = broker.semaphore("one", 1)
    assert one.acquire(block=False)
    assert not one.acquire(block=False)


_TIMEOUTS: list[tuple[Any, type[Exception]]] = [
    (-1, shmq.InvalidOption),
    (math.nan, shmq.InvalidOption),
    ("1", TypeError),
    (True, TypeError),
]


@pytest.mark.parametrize(("timeout", "error"), _TIMEOUTS)
def test_an_invalid_timeout_is_refused(
    broker: Broker, timeout: Any, error: type[Exception]
) -> None:
    lock = broker.lock("a")
    calls: list[Callable[[], Any]] = [
        lambda: broker.lock("a", timeout=timeout),
        lambda: lock.acquire(timeout=timeout),
        lambda: asyncio.run(lock.aacquire(timeout=timeout)),
    ]
    for call in calls:
        with pytest.raises(error):
            call()
    assert not lock.locked()


def test_a_timeout_may_be_infinite(broker: Broker) -> None:
    lock = broker.lock("a", timeout=math.inf)
    with lock:
        waiting = in_thread(lock.acquire)
        waits(lock)
    assert outcome(waiting) is True
    lock.release()
    with pytest.raises(TypeError, match="block"):
        lock.acquire(block=1)  # type: ignore[arg-type]


def test_a_lock_and_a_semaphore_do_not_share_a_name(broker: Broker, connect: Connect) -> None:
    lock, semaphore = broker.lock("a"), broker.semaphore("s", 2)
    other = connect()
    with lock, semaphore:
        calls: list[tuple[Callable[[], Any], str]] = [
            (lambda: other.semaphore("a", 1), "a lock of that name exists"),
            (lambda: other.semaphore("a", 2), "a lock of that name exists"),
            (lambda: other.lock("s"), "a semaphore of that name exists"),
            (lambda: other.semaphore("s", 3), "exists with 2 permits, not 3"),
            (lambda: broker.semaphore("s", 1), "exists with 2 permits, not 1"),
        ]
        for make, why in calls:
            with pytest.raises(shmq.LockExists, match=why):
                make()
    assert lock.acquire(block=False)


def test_a_semaphore_keeps_its_permits_although_no_handle_is_left(broker: Broker) -> None:
    broker.semaphore("s", 2)
    for _ in range(3):
        with pytest.raises(shmq.LockExists):
            broker.semaphore("s", 3)
    assert broker.semaphore("s", 2).permits == 2


@pytest.mark.only_local("a process of this host holds it")
def test_a_child_of_a_fork_does_not_hold_what_its_parent_holds(broker: Broker) -> None:
    lock = broker.lock("a")
    lock.acquire()
    check_fork_holds_nothing(lock, 0.1)
    assert lock.locked()
    lock.release()
    assert not lock.locked()


def test_a_pickled_handle_is_one_of_the_same_lock(broker: Broker) -> None:
    for lock in (broker.lock("a", timeout=0.05), broker.semaphore("s", 2, timeout=0.05)):
        with lock:
            same = pickle.loads(pickle.dumps(lock))
            assert (type(same), same.name, same.permits) == (type(lock), lock.name, lock.permits)
            assert len(same.holders()) == 1
            with pytest.raises(shmq.LockNotHeld):
                same.release()
            if lock.locked():
                with pytest.raises(shmq.LockTimeout), same:
                    pass
        assert not same.locked()
        with same:
            assert len(lock.holders()) == 1


def test_threads_exclude_each_other(broker: Broker, connect: Connect) -> None:
    inside, most, done = 0, 0, 0
    handles = [broker.lock("a"), broker.lock("a"), connect().lock("a")]

    def work(lock: shmq.Lock) -> None:
        nonlocal inside, most, done
        for _ in range(20):
            with lock:
                inside += 1
                most = max(most, inside)
                time.sleep(0)
                inside -= 1
                done += 1

    threads = [threading.Thread(target=work, args=(lock,)) for lock in handles for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert (most, done) == (1, 120)
