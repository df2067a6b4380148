"""Locks of processes that die or are stopped."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import pytest

import shmq
from shmq import Broker
from shmq.client.local.broker import LocalBroker
from tests.conformance.tools import in_thread, outcome
from tests.support.namespaces import own_namespace
from tests.support.processes import Child, Start, is_stopped
from tests.support.stopped import IN_REGISTRY, locks_of_queue, stopped_inside
from tests.support.tcp_servers import TCP_SERVERS
from tests.support.waiting import PATIENCE, eventually


def hold(pipe: Connection, where: str, name: str = "a") -> None:
    """Hold the lock until killed."""
    lock = shmq.connect(where).lock(name)
    lock.acquire()
    pipe.send("held")
    pipe.recv()
    lock.release()
    pipe.send("released")
    pipe.recv()


def wait(pipe: Connection, where: str) -> None:
    """Acquire the lock, say so, and release it when told."""
    lock = shmq.connect(where).lock("a")
    pipe.send("waits")
    lock.acquire()
    pipe.send("held")
    pipe.recv()
    lock.release()


def stop(child: Child) -> None:
    child.signal(signal.SIGSTOP)
    eventually(lambda: is_stopped(child.pid), "it is stopped")


def acquire_in_loop(lock: shmq.Lock) -> bool:
    return asyncio.run(lock.aacquire(timeout=PATIENCE))


ACQUIRES: dict[str, Callable[[shmq.Lock], Any]] = {
    "a thread": lambda lock: lock.acquire(timeout=PATIENCE),
    "a task": acquire_in_loop,
}


@pytest.mark.parametrize("how", ACQUIRES)
@pytest.mark.parametrize("remote", [False, True], ids=["local", "tcp"])
def test_the_lock_of_a_dead_holder_is_free(start: Start, how: str, remote: bool) -> None:
    with (
        own_namespace(inhabited=True) as namespace,
        TCP_SERVERS.serve(namespace) as url,
        shmq.connect(namespace) as broker,
    ):
        holder = start(hold, url if remote else namespace, method="spawn")
        assert holder.hear() == "held"
        lock = broker.lock("a")
        found = lock.holder()
        assert found is not None
        assert remote or found.pid == holder.pid
        waiting = in_thread(ACQUIRES[how], lock)
        eventually(lambda: len(lock.waiters()) == 1, "it waits")
        holder.kill()
        assert outcome(waiting) is True
        lock.release()


def test_a_stopped_holder_keeps_the_lock(broker: Broker, start: Start) -> None:
    holder = start(hold, broker.namespace)
    assert holder.hear() == "held"
    stop(holder)
    assert not broker.lock("a").acquire(timeout=1)
    holder.signal(signal.SIGCONT)
    holder.tell()
    assert holder.hear() == "released"
    assert broker.lock("a").acquire(block=False)


@pytest.mark.parametrize("dies", [False, True], ids=["stopped", "killed"])
def test_a_waiter_that_does_not_go_on_is_passed_by(
    broker: Broker, start: Start, dies: bool
) -> None:
    lock = broker.lock("a")
    lock.acquire()
    first = start(wait, broker.namespace)
    assert first.hear() == "waits"
    eventually(lambda: len(lock.waiters()) == 1, "it waits")
    second = start(wait, broker.namespace)
    assert second.hear() == "waits"
    eventually(lambda: len(lock.waiters()) == 2, "both wait")
    if dies:
        first.kill()
    else:
        stop(first)
    lock.release()
    assert second.hear() == "held"
    second.tell()
    if not dies:
        first.signal(signal.SIGCONT)
        assert first.hear() == "held"
        first.tell()
    assert lock.acquire(timeout=PATIENCE)


@pytest.mark.parametrize("queue", ["lock::a", "line::a"])
@pytest.mark.parametrize("side", ["gets", "puts"])
def test_an_acquire_goes_on_after_a_process_that_was_stopped_in_the_queue(
    broker: Broker, queue: str, side: str
) -> None:
    lock = broker.lock("a")
    other = broker.lock("a")
    lock.acquire()
    with locks_of_queue(broker.namespace, queue)[side].held_by_stopped() as stopped:
        assert not other.acquire(timeout=0.3)
        waiting = in_thread(other.acquire)
        released = in_thread(lock.release)
        stopped.send_signal(signal.SIGCONT)
        assert stopped.wait(PATIENCE) == 0
    outcome(released)
    assert outcome(waiting) is True
    other.release()
    assert lock.waiters() == []


def test_an_acquire_goes_on_after_a_process_that_was_stopped_in_the_registry(
    broker: Broker,
) -> None:
    lock = broker.lock("a")
    assert isinstance(broker, LocalBroker)
    for queue in ("lock::a", "line::a"):
        broker.delete_queue(queue)
    with stopped_inside(IN_REGISTRY, broker.namespace) as stopped:
        with pytest.raises(shmq.LockTimeout, match="registry"):
            broker.lock("b")
        assert not lock.acquire(timeout=0.2)
        waiting = in_thread(lock.acquire)
        with pytest.raises(TimeoutError):
            waiting.result(0.5)
        stopped.send_signal(signal.SIGCONT)
        assert outcome(waiting) is True
    lock.release()


def test_a_waiter_notices_that_all_before_it_are_dead(broker: Broker, start: Start) -> None:
    holder = start(hold, broker.namespace)
    assert holder.hear() == "held"
    lock, before = broker.lock("a"), []
    for number in range(3):
        before.append(start(wait, broker.namespace))
        assert before[-1].hear() == "waits"
        eventually(lambda n=number: len(lock.waiters()) == n + 1, "it waits")  # type: ignore[misc]
    last = start(wait, broker.namespace)
    assert last.hear() == "waits"
    eventually(lambda: len(lock.waiters()) == 4, "all wait")
    for child in (holder, *before):
        stop(child)
    for child in (*before, holder):
        child.kill()
    assert last.hear() == "held"
    last.tell()
    assert lock.acquire(timeout=PATIENCE)
