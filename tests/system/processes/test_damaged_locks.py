"""Locks with damaged words, or with a holder that does not exist: none is waited for for ever."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest

import shmq
from shmq import Broker, LockTimeout, Queue
from shmq.client.local.queue import LocalQueue
from tests.support.processes import HOUR, Start, drain, is_sound
from tests.support.stopped import (
    AWAITED,
    SHM,
    Lock,
    dead_process,
    lock_of_partition,
    locks_of_group,
    locks_of_queue,
)
from tests.support.waiting import PATIENCE


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


def recovers(queue: Queue) -> None:
    """Fail unless the queue was rebuilt, with all that it held."""
    assert queue.qsize() == 1
    is_sound(queue)
    stats = queue.stats()
    assert (stats.recoveries, stats.in_flight) == (1, 1)
    assert drain(queue) == [b"1"]


def test_a_lock_left_by_a_dead_process_is_taken_over(
    broker: Broker, queue: Queue, lock: Lock, other_queue: Queue
) -> None:
    lock.write(dead_process(broker.namespace) << 1 | AWAITED)

    recovers(queue)


def test_a_zombie_holds_no_lock(broker: Broker, queue: Queue, lock: Lock) -> None:
    child = os.fork()
    if not child:
        lock.take()
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    try:
        assert lock.holder()
        recovers(queue)
    finally:
        os.waitpid(child, 0)


@pytest.mark.parametrize("number", [0, 1, 4711, 1 << 40, (1 << 60) + 1])
def test_a_lock_that_names_no_process_is_taken_over(
    queue: Queue, lock: Lock, other_queue: Queue, number: int
) -> None:
    lock.write(number << 1 | AWAITED)

    recovers(queue)


@pytest.mark.parametrize("bit", range(0, 64, 7))
def test_a_flipped_bit_of_a_free_lock_ends_in_a_recovery_or_an_error(
    queue: Queue, lock: Lock, other_queue: Queue, bit: int
) -> None:
    lock.write(1 << bit)

    try:
        recovers(queue)
    except LockTimeout:  # it names a process that this namespace never had
        lock.write(0)
        assert queue.qsize() == 1


def test_a_lock_that_this_process_has_lost_is_an_error_that_names_it(
    queue: Queue, lock: Lock
) -> None:
    lock.take()

    with pytest.raises(LockTimeout) as caught:
        queue.qsize()
    assert caught.value.pid == os.getpid()
    lock.write(0)
    assert queue.qsize() == 1


def test_a_number_that_was_never_given_out_is_not_judged(queue: Queue, lock: Lock) -> None:
    number = lock.namespace.processes.own_number() + 1000
    lock.write(number << 1)

    with pytest.raises(LockTimeout, match=f"process number {number}, which has no PID"):
        queue.qsize()
    assert lock.holder() == number
    lock.write(0)
    assert queue.qsize() == 1


def test_a_namespace_file_removed_by_hand_takes_no_lock_from_the_living(
    broker: Broker, queue: Queue, lock: Lock, start: Start
) -> None:
    """A process that comes later registers in another file, where the holder is not to be seen."""

    def look(pipe: Connection) -> None:
        with pytest.raises(LockTimeout, match="which has no PID"):
            shmq.connect(broker.namespace).queue("q").qsize()

    with lock.held_by_stopped():
        number = lock.holder()
        (SHM / f"shmq@{broker.namespace}").unlink()
        start(look).ends()
        assert lock.holder() == number
    lock.write(0)


def test_one_whose_namespace_file_was_removed_by_hand_keeps_its_lock(
    broker: Broker, queue: Queue, lock: Lock, start: Start
) -> None:
    """Those that came before see no more of it than of a dead one, but that it stays registered."""

    def hold(pipe: Connection) -> None:
        lock.take()
        (SHM / f"shmq@{broker.namespace}").unlink()
        broker.create_queue("another", dead_letter=None)  # it registers again
        pipe.send("registered")
        pipe.recv()

    child = start(hold)
    assert child.hear() == "registered"
    number = lock.holder()
    with pytest.raises(LockTimeout):
        queue.qsize()
    assert lock.holder() == number
    child.tell()
    child.ends()
    recovers(queue)


def test_all_that_were_registered_in_a_removed_namespace_file_go_on_in_the_next_one(
    broker: Broker, queue: Queue, start: Start
) -> None:
    def move(pipe: Connection) -> None:
        here = shmq.connect(broker.namespace)
        here.create_queue("mine", dead_letter=None)
        (SHM / f"shmq@{broker.namespace}").unlink()
        here.create_queue("first", dead_letter=None)  # it registers again
        pipe.send("moved")
        pipe.recv()

    child = start(move)
    assert child.hear() == "moved"
    broker.create_queue("second", dead_letter=None)
    assert {"first", "second"} <= set(broker.queue_names())
    child.tell()
    child.ends()


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
    gone = dead_process(broker.namespace)
    for lock in locks_of_queue(broker.namespace, "q").values():
        lock.write(gone << 1)
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

    gone = dead_process(broker.namespace)
    lock = locks_of_queue(broker.namespace, "q")["gets"]
    child = start(die)
    assert child.hear() == "here"
    lock.write(gone << 1)
    child.tell()
    child.signal(signal.SIGKILL)
    child.reap()

    assert queue.qsize() == 0
    is_sound(queue)


TAKEN: dict[str, Callable[[Lock], None]] = {
    "a dead holder": lambda lock: lock.write(dead_process(lock.namespace.name) << 1),
    "no holder": lambda lock: lock.write(AWAITED),
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


def test_the_queue_that_a_stopped_process_holds_is_not_taken_from_it(
    queue: Queue, lock: Lock
) -> None:
    with lock.held_by_stopped() as holder:
        number = lock.holder()
        with pytest.raises(LockTimeout) as caught:
            queue.qsize()
        assert (caught.value.pid, lock.holder()) == (holder.pid, number)
    assert isinstance(queue, LocalQueue)
    recovers(queue)  # it died inside
