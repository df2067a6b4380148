"""The queues that a Python worker of Spark keeps open between its tasks."""

from __future__ import annotations

import contextlib
import grp
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import shmq
from shmq.client.local.queue import LocalQueue
from shmq.spark.shared import queue_pool
from shmq.spark.shared.address import Address
from shmq.spark.shared.queue_pool import borrow_queue
from tests.support.server import serve
from tests.support.waiting import eventually

THREAD = "shmq-queue-pool"


@pytest.fixture(autouse=True)
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[queue_pool.QueuePool]:
    """The pool of this process, empty; its queues stay open until the test ends."""
    pool = queue_pool._POOL
    empty(pool)
    eventually(lambda: pool._closing is None, "the thread of other tests' reads has ended")
    monkeypatch.setattr(queue_pool, "_IDLE", 1e6)
    # A thread that sleeps until a queue is due would outlive the test.
    monkeypatch.setattr(pool, "_closing", threading.current_thread())
    yield pool
    empty(pool)


def empty(pool: queue_pool.QueuePool) -> None:
    """Close its queues."""
    for queue_id in list(pool._idle):
        found = pool.take(queue_id)
        if found is not None:
            found.close()


def read(queue: shmq.Queue) -> list[bytes]:
    """The bodies in the queue, as a batch read has them."""
    columns, _ = queue.bulk().read_columns()
    ends = columns.body_offsets
    return [bytes(columns.bodies[ends[n] : ends[n + 1]]) for n in range(columns.count)]


@contextlib.contextmanager
def task(url: str, name: str = "orders") -> Iterator[LocalQueue]:
    """A task that has the queue, and its handle."""
    with borrow_queue(Address(url), name) as queue:
        assert isinstance(queue, LocalQueue)
        yield queue


def borrowed(url: str, name: str = "orders") -> LocalQueue:
    """The handle of a task that has ended."""
    with task(url, name) as queue:
        return queue


def in_child(work: Callable[[], None]) -> int:
    """Do it in a forked child; returns its exit code."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def mappings(namespace: str) -> list[str]:
    """The mappings of the memory of the namespace's deleted queues in this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in lines if namespace in line and line.endswith("(deleted)")]


def test_the_next_task_reads_through_the_same_handle(broker: shmq.Broker, namespace: str) -> None:
    broker.create_queue("orders").put(b"tea")
    first = borrowed(namespace)
    with task(namespace) as queue:
        assert queue is first
        assert read(queue) == [b"tea"]


def test_two_tasks_at_once_have_handles_of_their_own(
    broker: shmq.Broker, namespace: str, pool: queue_pool.QueuePool
) -> None:
    broker.create_queue("orders")
    with task(namespace) as one, task(namespace) as other:
        assert one is not other
    assert len(pool) == 1
    assert [one.closed, other.closed] == [False, True]


def test_a_queue_that_was_deleted_and_created_again_is_another_one(
    broker: shmq.Broker, namespace: str, pool: queue_pool.QueuePool
) -> None:
    broker.create_queue("orders").put(b"old")
    before = borrowed(namespace)
    broker.delete_queue("orders")
    broker.create_queue("orders").put(b"new")
    with task(namespace) as queue:
        assert queue is not before
        assert read(queue) == [b"new"]
    assert borrowed(namespace) is queue
    assert len(pool) == 2  # until the old one is due


def test_a_deleted_queue_is_not_found_and_soon_closed(
    broker: shmq.Broker, namespace: str, pool: queue_pool.QueuePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_pool, "_CHECK", 0.01)
    monkeypatch.setattr(pool, "_closing", None)
    broker.create_queue("orders").close()
    handles = [borrowed(namespace)]
    broker.delete_queue("orders")
    with pytest.raises(shmq.NoSuchQueue, match="orders"):
        borrowed(namespace)
    eventually(lambda: handles[0].closed, "it is closed before it has been idle for long")
    handles.clear()
    eventually(lambda: not mappings(namespace), "its memory is unmapped")


def test_a_queue_that_is_deleted_while_it_is_read_is_not_used_again(
    broker: shmq.Broker, namespace: str, pool: queue_pool.QueuePool
) -> None:
    broker.create_queue("orders").put(b"tea")
    with pytest.raises(shmq.QueueDeleted), task(namespace) as queue:
        broker.delete_queue("orders")
        read(queue)
    assert queue.closed
    assert not len(pool)


def test_a_queue_without_tasks_is_closed_and_its_memory_given_back(
    broker: shmq.Broker, namespace: str, pool: queue_pool.QueuePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_pool, "_IDLE", 0.05)
    monkeypatch.setattr(pool, "_closing", None)
    broker.create_queue("orders").close()
    handle = borrowed(namespace)
    eventually(lambda: handle.closed, "the handle is closed")
    del handle
    broker.delete_queue("orders")
    eventually(lambda: not mappings(namespace), "the memory is unmapped")
    eventually(lambda: pool._closing is None, "the thread ends")
    eventually(lambda: THREAD not in [each.name for each in threading.enumerate()], "it has ended")

    broker.create_queue("orders").close()
    handle = borrowed(namespace)  # and a later task starts it again
    eventually(lambda: handle.closed, "the handle is closed")


def test_a_forked_child_has_an_empty_pool_and_leaves_the_handles_of_its_parent(
    broker: shmq.Broker, namespace: str, pool: queue_pool.QueuePool
) -> None:
    queue = broker.create_queue("orders")
    queue.put(b"tea")
    mine = borrowed(namespace)

    def work() -> None:
        assert not len(pool)
        with task(namespace) as own:
            assert own is not mine
            assert read(own) == [b"tea"]

    assert in_child(work) == 0
    assert borrowed(namespace) is mine
    assert read(mine) == [b"tea"]
    assert isinstance(queue, LocalQueue)
    assert os.getpid() in {pid for _, _, pid, *_ in queue.attached()}


def test_tasks_of_several_namespaces_and_of_a_group_read_their_own_queues(
    broker: shmq.Broker, namespace: str
) -> None:
    group = grp.getgrgid(os.getgid()).gr_name
    shared = f"{group}/{namespace}"
    with contextlib.ExitStack() as stack:
        brokers = {namespace: broker, shared: stack.enter_context(shmq.connect(shared))}
        for url, each in brokers.items():
            each.create_queue("orders").put(url)
            stack.callback(each.delete_queue, "orders")
        handles: dict[str, LocalQueue] = {}
        for url in [*brokers, *brokers]:
            with task(url) as queue:
                assert handles.setdefault(url, queue) is queue
                assert read(queue) == [url.encode()]


def test_a_task_that_fails_closes_its_queue(
    broker: shmq.Broker, namespace: str, pool: queue_pool.QueuePool
) -> None:
    broker.create_queue("orders")
    with pytest.raises(ZeroDivisionError), task(namespace) as queue:
        raise ZeroDivisionError
    assert queue.closed
    assert not len(pool)


def test_the_least_recently_used_queues_are_closed_first(
    broker: shmq.Broker, namespace: str, pool: queue_pool.QueuePool
) -> None:
    names = [f"q{n}" for n in range(queue_pool._MOST + 1)]
    for name in names:
        broker.create_queue(name)
    handles = [borrowed(namespace, name) for name in names[:-1]]
    assert borrowed(namespace, names[0]) is handles[0]
    borrowed(namespace, names[-1])
    assert len(pool) == queue_pool._MOST
    assert [handle.closed for handle in handles] == [n == 1 for n in range(len(handles))]


def test_a_queue_of_a_server_is_closed_after_its_task(
    broker: shmq.Broker, namespace: str, pool: queue_pool.QueuePool
) -> None:
    broker.create_queue("orders").put(b"tea")
    with serve(namespace) as server, borrow_queue(Address(server.url), "orders") as queue:
        assert read(queue) == [b"tea"]
    assert not len(pool)
