"""Locks under kills: never two holders, and each process gets its turn.

``SHMQ_LOCK_PROCESSES=100 SHMQ_LOCK_KILLS=10000`` is the full proof. How long the lock was free
while its next holder waited is printed, for a person: on a host whose cores are busy it may be
any time.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import random
import signal
import time
import traceback
from collections.abc import Callable, Iterator

import pytest

import shmq
from shmq.client.local.broker import LocalBroker
from tests.conformance.tools import in_time
from tests.support.waiting import eventually

PROCESSES = int(os.environ.get("SHMQ_LOCK_PROCESSES", "8"))
KILLS = int(os.environ.get("SHMQ_LOCK_KILLS", "100"))
#: The share of processes that are stopped for a moment instead.
STOPS = float(os.environ.get("SHMQ_LOCK_STOPS", "0.1"))
#: For how long a process may wait for its turn, in seconds, on a host that has other work.
TURN = 120.0


class Seen(ctypes.Structure):
    """What the processes see of each other: written by the holder, except for `violations`."""

    _fields_ = (
        ("holder", ctypes.c_int64),  # its process id; 0: none
        ("freed", ctypes.c_int64),  # monotonic ns: the release, or the kill of the holder
        ("violations", ctypes.c_int64),
        ("longest", ctypes.c_int64),  # ns that it was free while its next holder waited
        ("over", ctypes.c_int64),  # how often that was more than 100 ms
        ("ends", ctypes.c_int64),  # 1: the processes are to end
        ("turns", ctypes.c_int64 * PROCESSES),  # how often the process of that place had it
    )


def keep_open(namespace: str) -> Iterator[shmq.Lock]:
    """The lock for each turn, of one broker."""
    # A process that is stopped while it creates a queue holds the registry of the namespace.
    lock = in_time(lambda: shmq.connect(namespace).lock("a"), shmq.LockTimeout)
    while True:
        yield lock


def open_again(namespace: str) -> Iterator[shmq.Lock]:
    """The lock for each turn, of a broker of its own, so that its queues are often deleted."""
    while True:
        with shmq.connect(namespace) as broker:
            yield in_time(lambda one=broker: one.lock("a"), shmq.LockTimeout)  # type: ignore[misc]


def note_gap(seen: Seen, waits_since: int) -> None:
    free = time.monotonic_ns() - max(seen.freed, waits_since)
    seen.longest = max(seen.longest, free)
    seen.over += free > 100_000_000


def contend(locks: Iterator[shmq.Lock], seen: Seen, at: int) -> None:
    """Acquire and release until the end."""
    chance = random.Random(os.getpid())
    for lock in locks:
        if seen.ends:
            return
        waits_since = time.monotonic_ns()
        lock.acquire()
        if seen.holder:
            seen.violations += 1
        note_gap(seen, waits_since)
        seen.holder = os.getpid()
        seen.turns[at] += 1
        time.sleep(chance.choice((0.0, 0.0, 0.0005, 0.002)))
        if seen.holder != os.getpid():
            seen.violations += 1
        seen.holder, seen.freed = 0, time.monotonic_ns()
        lock.release()
        time.sleep(chance.choice((0.0, 0.0, 0.001)))


def child(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def strike(seen: Seen, victim: int, chance: random.Random) -> bool:
    """Kill the process, or stop it for a moment; whether it was killed."""
    os.kill(victim, signal.SIGSTOP)
    _, status = os.waitpid(victim, os.WUNTRACED)
    assert os.WIFSTOPPED(status), f"it ended with status {status}"
    # From now on it is known whether it is the holder.
    if chance.random() < STOPS:
        time.sleep(0.15)
        os.kill(victim, signal.SIGCONT)
        return False
    if seen.holder == victim:
        seen.holder, seen.freed = 0, time.monotonic_ns()
    os.kill(victim, signal.SIGKILL)
    os.waitpid(victim, 0)
    return True


def each_has_a_turn(seen: Seen) -> None:
    """Return once each process has had the lock again."""
    before = list(seen.turns)
    eventually(
        lambda: all(now > then for now, then in zip(seen.turns, before, strict=True)),
        "each process gets its turn",
        TURN,
    )


def ends_well(pid: int) -> bool:
    """Whether the process has ended; fails if it did with an error."""
    found, status = os.waitpid(pid, os.WNOHANG)
    assert status == 0, f"process {pid} ended with status {status}"
    return found != 0


@pytest.mark.watchdog(3600)
@pytest.mark.parametrize("handles", [keep_open, open_again])
def test_a_lock_has_one_holder_however_many_are_killed(
    namespace: str, handles: Callable[[str], Iterator[shmq.Lock]]
) -> None:
    memory = mmap.mmap(-1, ctypes.sizeof(Seen))
    seen = Seen.from_buffer(memory)
    chance = random.Random(20)

    def start(at: int) -> int:
        return child(lambda: contend(handles(namespace), seen, at))

    pids = [start(at) for at in range(PROCESSES)]
    try:
        each_has_a_turn(seen)
        kills = 0
        while kills < KILLS:
            time.sleep(chance.choice((0.0, 0.01, 0.05)))
            at = chance.randrange(PROCESSES)
            if chance.random() < 0.3 and seen.holder in pids:
                at = pids.index(seen.holder)
            if strike(seen, pids[at], chance):
                kills += 1
                pids[at] = start(at)
        each_has_a_turn(seen)
        seen.ends = 1
        for pid in pids.copy():
            eventually(lambda one=pid: ends_well(one), "it ends", TURN)  # type: ignore[misc]
            pids.remove(pid)
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    print(
        f"{sum(seen.turns)} times acquired, {KILLS} kills, at most {seen.longest / 1e6:.1f} ms "
        f"free, {seen.over} times over 100 ms"
    )
    assert seen.violations == 0
    with LocalBroker(namespace) as broker, broker.lock("a", timeout=TURN):
        assert broker.list_locks()[0].waiters == []
        broker.list_queues()  # which deletes the inboxes of the dead
    with LocalBroker(namespace) as broker:
        for name in broker.collection("queue").names():  # made by one who was killed before its use
            broker.delete_queue(name)
