"""Locks with damaged words, or with a holder that does not exist: no process waits for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest

import shmq
from shmq import Broker, DamagedSegment, LockTimeout, Queue
from shmq.client.local.queue import LocalQueue
from tests.support.processes import HOUR, PATIENCE, Start, drain, is_sound
from tests.support.stopped import Lock, lock_of_partition, locks_of_group, locks_of_queue

#: The words of glibc's mutex, as bytes from its beginning.
WORD, COUNT, OWNER, USERS, KIND, SPINS, LIST = 0, 4, 8, 12, 16, 20, 24
WAITERS, OWNER_DIED = 1 << 31, 1 << 30
NOT_RECOVERABLE = 0x7FFFFFFE

#: Of what may be damaged that glibc does not read of a mutex that is free.
HARMLESS = (COUNT, USERS, SPINS, LIST, LIST + 4, LIST + 8, LIST + 12)


@pytest.fixture
def queue(broker: Broker) -> Queue:
    """A queue ``q`` with one message that is leased, and one that waits."""
    queue = broker.create_queue("q", visibility_timeout=HOUR)
    queue.put(b"leased")
    queue.get()
    queue.put(b"1")
    return queue


@pytest.fixture(params=["gets", "puts"])
def lock(request: pytest.FixtureRequest, broker: Broker, queue: Queue) -> Lock:
    """One of its locks."""
    return locks_of_queue(broker.namespace, "q")[request.param]


@pytest.fixture
def other_queue(broker: Broker) -> Iterator[Queue]:
    """Another queue, which is as it was at the end."""
    queue = broker.create_queue("other_queue")
    queue.put(b"mine")
    yield queue
    assert drain(queue) == [b"mine"]
    assert queue.stats().recoveries == 0


def dead_thread() -> int:
    """The id of a process that was."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def sleeping_process() -> subprocess.Popen[bytes]:
    """A process that lives, and has nothing to do with shmq."""
    return subprocess.Popen(["sleep", "1000"])


def recovers(queue: Queue) -> None:
    """Fail unless the queue was rebuilt, with all that it held."""
    assert queue.qsize() == 1
    is_sound(queue)
    stats = queue.stats()
    assert (stats.recoveries, stats.in_flight) == (1, 1)
    assert drain(queue) == [b"1"]


def test_a_lock_left_by_a_process_that_does_not_exist_is_taken_over(
    queue: Queue, lock: Lock, other_queue: Queue
) -> None:
    gone = dead_thread()
    lock.write(WORD, gone | WAITERS)
    lock.write(OWNER, gone)

    recovers(queue)


def test_a_lock_that_names_a_process_that_has_not_mapped_it_is_taken_over(
    queue: Queue, lock: Lock, other_queue: Queue
) -> None:
    other = sleeping_process()
    try:
        lock.write(WORD, other.pid)
        lock.write(OWNER, other.pid)
        recovers(queue)
    finally:
        other.kill()
        other.wait()


def test_a_lock_that_names_the_thread_that_waits_for_it_is_taken_over(
    queue: Queue, lock: Lock
) -> None:
    lock.write(WORD, os.getpid())

    recovers(queue)


def test_a_zombie_holds_no_lock(queue: Queue, lock: Lock) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    lock.write(WORD, process.pid)
    lock.write(OWNER, process.pid)
    try:
        recovers(queue)
    finally:
        process.wait()


@pytest.mark.parametrize("bit", [*range(1, 30, 4), 30, 31])
def test_a_flipped_bit_of_a_free_lock_ends_in_a_recovery_or_an_error(
    queue: Queue, lock: Lock, other_queue: Queue, bit: int
) -> None:
    lock.write(WORD, 1 << bit)

    try:
        recovers(queue)
    except (DamagedSegment, LockTimeout):  # of a process that cannot be looked into
        lock.write(WORD, 0)
        lock.write(OWNER, 0)


def test_a_flipped_bit_of_the_kind_is_damage_of_this_queue_alone(
    queue: Queue, lock: Lock, other_queue: Queue
) -> None:
    kind = lock.read(KIND)
    for bit in range(32):
        lock.write(KIND, kind ^ 1 << bit)
        for operation in (queue.qsize, lambda: queue.put(b"2", group="g")):
            with pytest.raises(DamagedSegment):
                operation()
    lock.write(KIND, kind)
    assert drain(queue) == [b"1"]


@pytest.mark.parametrize("at", HARMLESS)
def test_what_the_c_library_writes_before_it_reads_may_be_anything(
    queue: Queue, lock: Lock, at: int
) -> None:
    lock.write(at, 0xA5A5A5A5)

    assert drain(queue) == [b"1"]
    is_sound(queue)


def test_an_unrecoverable_owner_is_damage(queue: Queue, lock: Lock) -> None:
    lock.write(OWNER, NOT_RECOVERABLE)

    with pytest.raises(DamagedSegment):
        queue.qsize()
    with pytest.raises(DamagedSegment):
        queue.qsize()  # it did not lock it for ever either
    lock.write(OWNER, 0)
    assert queue.qsize() == 1


def test_a_damaged_queue_is_deleted_and_made_anew(broker: Broker, queue: Queue) -> None:
    for lock in locks_of_queue(broker.namespace, "q").values():
        lock.write(KIND, 0)

    broker.delete_queue("q")
    anew = broker.create_queue("q")
    anew.put(b"1")
    assert drain(anew) == [b"1"]


def test_no_process_takes_over_while_the_holder_may_go_on(
    queue: Queue, lock: Lock, other_queue: Queue
) -> None:
    with lock.held_by_stopped() as holder:
        lock.write(WORD, dead_thread())  # under it

        with pytest.raises(DamagedSegment):
            queue.qsize()
        holder.kill()
        holder.wait()
    recovers(queue)


def test_one_of_many_that_wait_recovers(broker: Broker, start: Start) -> None:
    queue = broker.create_queue("q")

    def wait(pipe: Connection) -> Any:
        here = shmq.connect(broker.namespace).queue("q")
        pipe.send("here")
        pipe.recv()
        return here.put(b"x", group="g").sequence

    children = [start(wait) for _ in range(4)]
    for child in children:
        assert child.hear() == "here"
    gone = dead_thread()
    for lock in locks_of_queue(broker.namespace, "q").values():
        lock.write(WORD, gone)
    for child in children:
        child.tell()
    assert sorted(child.ends() for child in children) == [1, 2, 3, 4]
    assert 1 <= queue.stats().recoveries <= 2  # of one lock, or of each
    is_sound(queue)


def test_one_that_dies_as_it_takes_over_is_taken_over_from(broker: Broker, start: Start) -> None:
    queue = broker.create_queue("q")

    def die(pipe: Connection) -> None:
        here = shmq.connect(broker.namespace).queue("q")
        pipe.send("here")
        pipe.recv()
        here.qsize()

    gone = dead_thread()
    lock = locks_of_queue(broker.namespace, "q")["gets"]
    child = start(die)
    assert child.hear() == "here"
    lock.write(WORD, gone)
    child.tell()
    child.signal(signal.SIGKILL)
    child.reap()

    assert queue.qsize() == 0
    is_sound(queue)


TAKEN: dict[str, Callable[[Lock], None]] = {
    "a dead holder": lambda lock: lock.write(WORD, dead_thread()),
    "no holder": lambda lock: lock.write(WORD, WAITERS),
}


@pytest.mark.parametrize("how", TAKEN)
def test_a_partition_is_put_right_and_the_others_are_not_touched(broker: Broker, how: str) -> None:
    stream = broker.create_stream("s", partitions=2)
    stream.append(b"1", partition=0)
    TAKEN[how](lock_of_partition(broker.namespace, "s"))

    stream.append(b"2", partition=0)
    stream.append(b"3", partition=1)
    assert [record.value for record in stream.read(0, 0)] == [b"1", b"2"]
    assert [log.recoveries for log in stream.logs] == [1, 0]  # type: ignore[attr-defined]


def test_a_partition_with_a_damaged_lock_is_damaged_alone(broker: Broker) -> None:
    stream = broker.create_stream("s", partitions=2)
    lock_of_partition(broker.namespace, "s").write(KIND, 0)

    with pytest.raises(DamagedSegment):
        stream.append(b"1", partition=0)
    stream.append(b"2", partition=1)


@pytest.mark.parametrize("how", TAKEN)
def test_a_group_is_put_right(broker: Broker, how: str) -> None:
    stream = broker.create_stream("s", partitions=1)
    stream.append_many([b"1", b"2"])
    with stream.group("g").join() as member:
        assert len(member.poll(timeout=PATIENCE)[0]) == 2
        (lock,) = locks_of_group(broker.namespace, "g")
        TAKEN[how](lock)
        member.commit()
        assert stream.group("g").committed() == {0: 2}


def test_a_group_with_a_damaged_lock_is_damaged(broker: Broker) -> None:
    stream = broker.create_stream("s", partitions=1)
    with stream.group("g").join() as member:
        (lock,) = locks_of_group(broker.namespace, "g")
        kind = lock.read(KIND)
        lock.write(KIND, 0)
        with pytest.raises(DamagedSegment):
            member.poll()
        lock.write(KIND, kind)


def test_the_queue_that_a_stopped_process_holds_is_not_taken_from_it(
    queue: Queue, lock: Lock
) -> None:
    with lock.held_by_stopped() as holder:
        with pytest.raises(LockTimeout):
            queue.qsize()
        assert lock.read(WORD) & ~WAITERS == holder.pid
    assert isinstance(queue, LocalQueue)
    recovers(queue)  # it died inside
