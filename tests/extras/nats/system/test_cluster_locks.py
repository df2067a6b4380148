"""Locks and semaphores of a cluster: what differs from those of one host.

`tests/conformance/test_locks.py` has the rest; deaths are in `prove/test_cluster_locks.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import threading
from collections.abc import Callable, Iterator

import pytest

import shmq
from shmq.extras.nats.client.lease import Lease
from tests.conformance.tools import check_fork_holds_nothing, in_thread, outcome
from tests.support.nats_server import NATS_SERVER
from tests.support.waiting import PATIENCE, eventually

Connect = Callable[[], shmq.Broker]


@pytest.fixture
def connect(namespace: str) -> Iterator[Connect]:
    with NATS_SERVER.serve(namespace) as url, contextlib.ExitStack() as clients:
        yield lambda: clients.enter_context(shmq.connect(url))


def test_a_lock_has_one_holder_and_is_free_after_the_block(connect: Connect) -> None:
    lock, other = connect().lock("a"), connect().lock("a")
    assert not lock.locked()
    with lock:
        assert (lock.locked(), other.locked()) == (True, True)
        assert not other.acquire(block=False)
        assert not other.acquire(timeout=0.1)
        with pytest.raises(shmq.LockNotHeld, match="'a' is not held by this handle"):
            other.release()
        waiting = in_thread(other.acquire)
    assert outcome(waiting) is True
    assert not lock.acquire(block=False)
    other.release()
    assert not lock.locked()


def test_a_block_that_is_not_entered_in_time_raises(connect: Connect) -> None:
    lock = connect().lock("a", timeout=0.1)

    async def enter() -> None:
        async with lock:
            pass

    with connect().lock("a"):
        for use in (lock.__enter__, lambda: asyncio.run(enter())):
            with pytest.raises(shmq.LockTimeout, match=r"'a' was not acquired within 0.1 s$"):
                use()
    asyncio.run(enter())


def test_a_semaphore_has_that_many_holders(connect: Connect) -> None:
    semaphore, other = connect().semaphore("s", 3), connect().semaphore("s", 3)
    assert [semaphore.acquire(), semaphore.acquire()] == [True, True]
    assert not other.locked()
    with other:
        assert other.locked()
        assert not semaphore.acquire(block=False)
    assert semaphore.acquire(timeout=PATIENCE)
    for _ in range(3):
        semaphore.release()
    with pytest.raises(shmq.LockNotHeld):
        semaphore.release()
    makes: list[Callable[[], object]] = [
        lambda: connect().semaphore("s", 4),
        lambda: connect().lock("s"),
    ]
    for make in makes:
        with pytest.raises(shmq.LockExists):
            make()


@pytest.mark.parametrize("permits", [1, 2, 7])
def test_those_that_create_a_semaphore_at_once_make_no_permit_too_many(
    connect: Connect, permits: int
) -> None:
    brokers = [connect() for _ in range(6)]
    together = threading.Barrier(len(brokers))

    def make(broker: shmq.Broker) -> shmq.Semaphore:
        together.wait(PATIENCE)
        return broker.semaphore("s", permits)

    semaphores = list(map(outcome, [in_thread(make, broker) for broker in brokers]))
    for number in range(permits):
        assert semaphores[number % len(semaphores)].acquire(timeout=PATIENCE)
    assert not any(semaphore.acquire(timeout=0.2) for semaphore in semaphores)


def test_a_closed_broker_releases_its_locks(connect: Connect) -> None:
    first, second = connect(), connect()
    lock = first.lock("a")
    lock.acquire()
    waiting = in_thread(second.lock("a").acquire)
    first.close()
    assert outcome(waiting) is True
    with pytest.raises(shmq.ShmqError):
        lock.release()


def test_a_lock_stays_held_if_its_handle_is_dropped(connect: Connect) -> None:
    first = connect()
    assert first.lock("leader").acquire(block=False)
    assert connect().lock("leader").locked()


def test_the_child_of_a_fork_holds_and_returns_nothing_of_its_parents(connect: Connect) -> None:
    broker = connect()
    lock = broker.lock("a")
    lock.acquire()
    check_fork_holds_nothing(lock, 0.2, broker.close)
    assert not connect().lock("a").acquire(timeout=0.2)
    lock.release()
    assert connect().lock("a").acquire(timeout=PATIENCE)


def test_a_pickled_handle_holds_nothing(connect: Connect) -> None:
    lock = connect().lock("a")
    with lock:
        same = pickle.loads(pickle.dumps(lock))
        assert (type(same), same.name, same.locked()) == (type(lock), "a", True)
        with pytest.raises(shmq.LockNotHeld):
            same.release()


def test_tasks_share_a_lock_and_a_cancelled_one_holds_nothing(connect: Connect) -> None:
    lock, other = connect().lock("a"), connect().lock("a")

    async def main() -> None:
        for number in range(24):
            async with other:
                task = asyncio.create_task(lock.aacquire())
                await asyncio.sleep(number / 2000)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                if await task:
                    await lock.arelease()
            # At once: after a permit that was lost on the way it would take as long as a lease.
            assert await other.aacquire(timeout=5.0)
            await other.arelease()

    asyncio.run(main())
    with pytest.raises(shmq.LockNotHeld):
        asyncio.run(lock.arelease())


def test_a_deleted_lock_is_made_again(connect: Connect) -> None:
    broker = connect()
    lock = broker.lock("a")
    with lock:
        assert broker.queue_names() == []
    broker.delete_queue("lock::a")
    with lock:
        assert connect().lock("a").locked()


def test_who_holds_a_lock_is_not_known(connect: Connect) -> None:
    broker = connect()
    lock = broker.lock("a")
    for ask in (lock.holder, lock.holders, lock.waiters, broker.list_locks):
        with pytest.raises(shmq.Unsupported, match="do not tell who holds"):
            ask()


def test_a_renewal_that_fails_is_tried_again_while_the_lease_runs(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, renew, renewals = connect().lock("a"), Lease.renew, []

    async def fail_once(lease: Lease) -> None:
        renewals.append(lease)
        if len(renewals) == 1:
            raise shmq.LeaseExpired("the connection was lost for a moment")
        await renew(lease)

    lock.acquire()
    monkeypatch.setattr(Lease, "renew", fail_once)
    eventually(lambda: len(renewals) >= 2, "it is tried again")
    lock.release()
