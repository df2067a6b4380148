"""Threads that share a handle, and many handles in one process."""

from __future__ import annotations

import collections
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

import shmq
from shmq import Broker, Queue
from tests.support.processes import HOUR, LARGE, asleep, attached, drain, is_empty, is_sound
from tests.support.waiting import PATIENCE, eventually

PRODUCERS = CONSUMERS = 4
EACH = 500


def together(*work: Callable[[], object]) -> None:
    """Run all of it at once, each in a thread; raise what any of them raised."""
    begin = threading.Barrier(len(work))

    def run(one: Callable[[], object]) -> None:
        begin.wait(PATIENCE)
        one()

    with ThreadPoolExecutor(len(work)) as pool:
        running: list[Future[None]] = [pool.submit(run, one) for one in work]
    for future in running:
        future.result()


def body_of(producer: int, number: int) -> bytes:
    """Every tenth is written and read in place."""
    text = f"{producer}:{number}".encode()
    return text.ljust(LARGE if number % 10 == 0 else 20)


def produce(queue: Queue, producer: int) -> None:
    for number in range(EACH):
        queue.put(body_of(producer, number), block=True, timeout=PATIENCE)


def get_and_ack(queue: Queue, got: list[bytes], all_: int) -> None:
    while len(got) < all_:
        for message in queue.get_many(10, timeout=0.01):
            got.append(bytes(message.view) if len(got) % 2 else message.body)
            message.ack()


def consume(queue: Queue, got: list[bytes], all_: int) -> None:
    while len(got) < all_:
        for message in queue.consume(prefetch=8, timeout=0.01):
            with message:
                got.append(message.body)


@pytest.mark.parametrize("taker", [get_and_ack, consume])
def test_threads_sharing_a_handle_lose_nothing_and_get_nothing_twice(
    broker: Broker, taker: Callable[[Queue, list[bytes], int], None]
) -> None:
    queue = broker.create_queue("jobs", capacity=100, visibility_timeout=HOUR)
    got: list[bytes] = []
    all_ = PRODUCERS * EACH

    together(
        *[lambda one=one: produce(queue, one) for one in range(PRODUCERS)],
        *[lambda: taker(queue, got, all_)] * CONSUMERS,
    )

    expected = [body_of(one, number) for one in range(PRODUCERS) for number in range(EACH)]
    assert collections.Counter(got) == collections.Counter(expected)
    is_empty(queue)


def test_each_thread_sees_the_order_of_each_producer(broker: Broker) -> None:
    queue = broker.create_queue("jobs", capacity=50, visibility_timeout=HOUR)
    seen: list[list[bytes]] = [[] for _ in range(CONSUMERS)]
    left = threading.Semaphore(PRODUCERS * EACH)

    def take(into: list[bytes]) -> None:
        while left.acquire(blocking=False):
            with queue.get(timeout=PATIENCE) as message:
                into.append(message.body)

    together(
        *[lambda one=one: produce(queue, one) for one in range(PRODUCERS)],
        *[lambda into=into: take(into) for into in seen],
    )

    for bodies in seen:
        for producer in range(PRODUCERS):
            mine = [body for body in bodies if body.startswith(b"%d:" % producer)]
            assert mine == sorted(mine, key=lambda body: int(body.split(b":")[1]))


def test_any_thread_settles_the_messages_of_one_consumer(queue: Queue) -> None:
    queue.put_many([body_of(0, number) for number in range(EACH)])
    with queue.consume(prefetch=64, block=False) as consumer:
        messages = list(consumer)
        quarters = [messages[quarter::4] for quarter in range(4)]

        together(*[lambda part=part: [one.ack() for one in part] for part in quarters])

    is_empty(queue)


def test_views_taken_and_dropped_in_threads_leave_nothing_behind(queue: Queue) -> None:
    queue.put(b"\x01" * LARGE)
    held = [queue.get()]

    def look() -> None:
        for _ in range(EACH):
            assert held[0].view[-1] == 1

    together(*[look] * 4)
    held.pop().ack()

    is_empty(queue)


def test_loans_in_threads_carry_what_each_has_written(queue: Queue) -> None:
    def write(mark: int) -> None:
        for _ in range(100):
            with queue.loan(LARGE) as view:
                view[:] = bytes([mark]) * LARGE

    together(*[lambda mark=mark: write(mark) for mark in range(4)])

    bodies = collections.Counter(drain(queue))
    assert bodies == {bytes([mark]) * LARGE: 100 for mark in range(4)}
    is_empty(queue)


def test_a_thread_that_waits_lets_the_others_run(queue: Queue) -> None:
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(queue.get, True, PATIENCE) for _ in range(3)]
        asleep(queue, getters=3)
        queue.put_many([b"1", b"2", b"3"])
        assert sorted(future.result().body for future in waiting) == [b"1", b"2", b"3"]

    asleep(queue)


def test_each_sleeping_thread_gets_one_of_the_messages_that_come_singly(queue: Queue) -> None:
    with ThreadPoolExecutor(5) as pool:
        waiting = [pool.submit(queue.get, True, PATIENCE) for _ in range(5)]
        asleep(queue, getters=5)
        for number in range(5):
            queue.put(bytes([number]))
        got = {future.result().body for future in waiting}

    assert got == {bytes([number]) for number in range(5)}


@pytest.mark.parametrize("waits", ["get", "put"])
def test_closing_a_handle_ends_the_waits_of_its_threads_and_of_no_others(
    broker: Broker, waits: str
) -> None:
    queue = broker.create_queue("jobs", capacity=1, visibility_timeout=HOUR)
    if waits == "put":
        queue.put(b"first")
    closing, staying = broker.queue("jobs"), broker.queue("jobs")

    def wait(handle: Queue) -> object:
        if waits == "get":
            return handle.get(timeout=PATIENCE).body
        return handle.put(b"second", timeout=PATIENCE).sequence

    sleepers = {"getters": 2} if waits == "get" else {"putters": 2}
    with ThreadPoolExecutor(2) as pool:
        ended, going_on = pool.submit(wait, closing), pool.submit(wait, staying)
        asleep(queue, **sleepers)
        closing.close()
        with pytest.raises(shmq.ShmqError, match="closed"):
            ended.result(PATIENCE)
        assert not going_on.done()
        _ = queue.put(b"second") if waits == "get" else drain(queue)
        assert going_on.result(PATIENCE) in {b"second", 2}

    asleep(queue)
    is_sound(queue)


def test_a_handle_closed_while_threads_use_it_fails_them_clearly(
    broker: Broker, queue: Queue
) -> None:
    for _ in range(10):
        handle = broker.queue("q")
        worked = threading.Semaphore(0)

        def churn(handle: Queue = handle, worked: threading.Semaphore = worked) -> None:
            with pytest.raises(shmq.ShmqError, match="closed"):
                while True:
                    handle.put(bytes(LARGE))
                    with handle.get_many(1, block=False)[0] as message:
                        assert len(message.view) == LARGE
                    worked.release()

        def close(handle: Queue = handle, worked: threading.Semaphore = worked) -> None:
            assert worked.acquire(timeout=PATIENCE)
            handle.close()

        together(churn, close)

    drain(queue)
    is_empty(queue)
    assert attached(queue) == [os.getpid()]


def test_a_hundred_handles_in_one_process_hold_their_leases_apart(broker: Broker) -> None:
    queue = broker.create_queue("jobs", visibility_timeout=HOUR)
    queue.put_many([bytes([number]) for number in range(100)])
    handles = [broker.queue("jobs") for _ in range(100)]
    messages = [handle.get_nowait() for handle in handles]

    for number in range(0, 100, 2):
        handles[number].close()

    assert len(attached(queue)) == 51
    again = queue.get_many(100, block=False)
    assert [message.body for message in again] == [bytes([n]) for n in range(0, 100, 2)]
    assert queue.ack_many([*again, *messages[1::2]]) == []
    is_empty(queue)


@pytest.mark.prove
def test_a_queue_has_room_for_thousands_of_handles_and_says_when_not(broker: Broker) -> None:
    resource = pytest.importorskip("resource")
    wanted, before = 10_000, resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < wanted:
        pytest.skip(f"a process may open only {before[1]} files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], wanted), before[1]))
    queue = broker.create_queue("jobs", dead_letter=None)
    handles = [queue]
    try:
        with pytest.raises(shmq.ShmqError, match="handles"):
            while True:
                handles.append(broker.queue("jobs"))
        assert len(handles) == 4096
        queue.put(b"1")
        broker.delete_queue("jobs")
        with pytest.raises(shmq.QueueDeleted):
            handles[-1].get_nowait()
    finally:
        for handle in handles:
            handle.close()
        handles.clear()
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_queues_are_made_and_deleted_by_threads_at_once(broker: Broker) -> None:
    def churn(name: str) -> None:
        for _ in range(20):
            with broker.ensure_queue(name) as queue:
                queue.put(name)
                assert drain(queue) == [name]
            broker.delete_queue(name)

    together(*[lambda name=name: churn(name) for name in ("a", "b", "c", "d")])

    names = [summary.name for summary in broker.list_queues()]
    assert names == []


def test_threads_that_make_one_queue_at_once_get_one_queue(broker: Broker) -> None:
    made: list[Queue] = []

    together(*[lambda: made.append(broker.create_queue("q"))] * 8)

    made[0].put(b"1")
    assert {queue.qsize() for queue in made} == {1}
    eventually(lambda: len(attached(made[0])) == 8, "all are attached to it")
