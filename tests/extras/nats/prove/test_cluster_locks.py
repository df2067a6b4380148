"""Locks of a cluster under the deaths and stops of their holders, and the deaths of servers."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import random
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection

import pytest

import shmq
from shmq.extras.nats.client.names import kv_stream, queue_stream
from shmq.extras.nats.cluster.local import LocalCluster
from tests.conformance.tools import in_thread
from tests.prove.soak.test_locks import Seen, child, contend, ends_well, keep_open, strike
from tests.support.processes import Start
from tests.support.waiting import eventually

#: How many holders are killed: SHMQ_KILLS says more. Each takes the time of a lease.
KILLS = int(os.environ.get("SHMQ_KILLS", "4"))
PROCESSES = 4
#: How long anything may take on a loaded machine, in seconds.
PATIENCE = 120.0
#: Twice the time of a lease, in seconds.
LONGER = 20.0


@pytest.fixture
def url(cluster: LocalCluster, namespace: str) -> str:
    return f"{cluster.url}/{namespace}"


@pytest.fixture
def start() -> Iterator[Start]:
    with contextlib.closing(Start()) as start:
        yield start


@pytest.mark.watchdog(3600)
def test_a_lock_has_one_holder_however_many_are_killed(url: str) -> None:
    seen = Seen.from_buffer(mmap.mmap(-1, ctypes.sizeof(Seen)))
    chance = random.Random(20)

    def begin(at: int) -> int:
        return child(lambda: contend(keep_open(url), seen, at))

    pids = [begin(at) for at in range(PROCESSES)]
    try:
        kills = 0
        while kills < KILLS:
            before = sum(seen.turns)
            eventually(lambda least=before: sum(seen.turns) > least, "it is acquired", PATIENCE)  # type: ignore[misc]
            holder = seen.holder
            if holder in pids and strike(seen, holder, chance):
                kills += 1
                at = pids.index(holder)
                pids[at] = begin(at)
        before = sum(seen.turns)
        eventually(lambda: sum(seen.turns) > before, "the last one's lock is free", PATIENCE)
        seen.ends = 1
        for pid in pids.copy():
            eventually(lambda one=pid: ends_well(one), "it ends", PATIENCE)  # type: ignore[misc]
            pids.remove(pid)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    print(f"{sum(seen.turns)} times acquired, {kills} kills")
    assert seen.violations == 0


def _hold(pipe: Connection, url: str) -> str:
    with shmq.connect(url) as broker:
        lock = broker.lock("a")
        pipe.send(lock.acquire(timeout=PATIENCE))
        pipe.recv()  # once it goes on
        try:
            lock.release()
        except shmq.LockNotHeld as error:
            return str(error)
    return ""


def test_a_stopped_holder_loses_the_lock_and_its_release_raises(url: str, start: Start) -> None:
    holder = start(_hold, url, method="spawn")
    assert holder.hear() is True
    holder.signal(signal.SIGSTOP)
    with shmq.connect(url) as broker, shmq.connect(url) as other:
        lock = broker.lock("a")
        assert lock.acquire(timeout=PATIENCE)
        holder.signal(signal.SIGCONT)
        holder.tell()
        assert "its lease ended" in holder.ends()
        assert not other.lock("a").acquire(timeout=0.5)
        lock.release()
        assert other.lock("a").acquire(timeout=PATIENCE)


def test_the_lock_of_a_dead_holder_is_free_after_its_lease(url: str, start: Start) -> None:
    holder = start(_hold, url, method="spawn")
    assert holder.hear() is True
    holder.kill()
    with shmq.connect(url) as broker:
        assert broker.lock("a").acquire(timeout=PATIENCE)


@pytest.mark.parametrize("which", ["queue", "claims"])
def test_a_holder_keeps_the_lock_over_the_death_of_a_leader(
    cluster: LocalCluster, url: str, namespace: str, which: str
) -> None:
    with shmq.connect(url) as broker, shmq.connect(url) as other:
        lock = broker.lock("a")
        assert lock.acquire(timeout=PATIENCE)
        stream = queue_stream(namespace, "lock::a") if which == "queue" else kv_stream(namespace)
        leader = cluster.leader_of(stream)
        assert leader is not None
        waiting = in_thread(other.lock("a").acquire, timeout=LONGER)
        leader.kill()
        assert waiting.result(PATIENCE) is False
        lock.release()
        assert other.lock("a").acquire(timeout=PATIENCE)


@pytest.mark.parametrize("permits", [1, 3])
def test_processes_that_create_a_semaphore_at_once_make_no_permit_too_many(
    url: str, start: Start, permits: int
) -> None:
    children = [start(_create, url, permits, method="spawn") for _ in range(PROCESSES)]
    assert [one.hear() for one in children] == ["connected"] * PROCESSES
    for one in children:
        one.tell()
    assert [one.hear() for one in children] == ["created"] * PROCESSES
    with shmq.connect(url) as broker:
        semaphore = broker.semaphore("s", permits)
        assert all(semaphore.acquire(timeout=PATIENCE) for _ in range(permits))
        assert not semaphore.acquire(timeout=0.5)
    for one in children:
        one.tell()
        one.ends()


def _create(pipe: Connection, url: str, permits: int) -> None:
    with shmq.connect(url) as broker:
        pipe.send("connected")
        pipe.recv()
        broker.semaphore("s", permits)
        pipe.send("created")
        pipe.recv()
