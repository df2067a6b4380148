"""shutdown: queue.Queue.shutdown of Python 3.13, across processes."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import pytest

from shmq.mp import JoinableQueue, Queue, ShutDown, SimpleQueue
from tests.support.processes import Start
from tests.support.waiting import PATIENCE, eventually

KINDS = [Queue, JoinableQueue, SimpleQueue]


def waits(pipe: Connection, q: Any, what: str, *arguments: Any) -> str:
    """Call a method that waits; what came of it."""
    pipe.send("waits")
    try:
        getattr(q, what)(*arguments)
    except ShutDown:
        return "ShutDown"
    return "returned"


def test_it_is_the_standard_librarys_error_where_that_has_it() -> None:
    assert (getattr(queue, "ShutDown", None) is ShutDown) == (sys.version_info >= (3, 13))


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_shutdown_what_was_put_is_still_got(kind: Callable[[], Any]) -> None:
    q = kind()
    q.put(1)
    q.put(bytes(100_000))
    assert not q.is_shutdown
    q.shutdown()
    assert q.is_shutdown
    with pytest.raises(ShutDown):
        q.put(3)
    assert q.get() == 1
    assert q.get() == bytes(100_000)
    for _ in range(2):
        with pytest.raises(ShutDown):
            q.get()


@pytest.mark.parametrize("kind", KINDS)
def test_after_an_immediate_shutdown_nothing_is_got(kind: Callable[[], Any]) -> None:
    q = kind()
    q.put(1)
    q.shutdown(immediate=True)
    assert q.empty()
    with pytest.raises(ShutDown):
        q.get()
    with pytest.raises(ShutDown):
        q.put(1)


def test_no_time_changes_what_a_shut_queue_says() -> None:
    q: Any = Queue(1)
    q.put(1)
    q.shutdown()
    calls: list[Callable[[], object]] = [
        lambda: q.put(2, False),
        lambda: q.put(2, True, 0.01),
        lambda: q.put_nowait(2),
    ]
    for refused in calls:
        with pytest.raises(ShutDown):
            refused()
    assert q.get_nowait() == 1
    calls = [lambda: q.get(False), lambda: q.get(True, 0.01), lambda: q.get(timeout=PATIENCE)]
    for refused in calls:
        with pytest.raises(ShutDown):
            refused()


def test_an_immediate_shutdown_may_follow_another_and_is_not_taken_back() -> None:
    q = Queue()
    q.put(1)
    q.shutdown()
    q.shutdown(immediate=True)
    q.shutdown()
    with pytest.raises(ShutDown):
        q.get()


def test_a_closed_queue_says_that_it_is_closed() -> None:
    q = Queue()
    q.shutdown()
    q.close()
    with pytest.raises(ValueError, match="is closed"):
        q.put(1)
    with pytest.raises(ValueError, match="is closed"):
        q.get()


@pytest.mark.prove
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("immediate", [False, True])
def test_it_ends_the_waits_of_other_processes_for_objects(
    kind: Callable[[], Any], method: str, immediate: bool, start: Start
) -> None:
    q = kind()
    children = [start(waits, q, "get", method=method) for _ in range(2)]
    for child in children:
        child.hear()
    q.shutdown(immediate)
    assert [child.ends() for child in children] == ["ShutDown", "ShutDown"]


@pytest.mark.parametrize("immediate", [False, True])
def test_it_ends_the_waits_of_other_processes_for_room(immediate: bool, start: Start) -> None:
    q = Queue(1)
    q.put(1)
    children = [start(waits, q, "put", obj) for obj in (2, bytes(100_000))]
    for child in children:
        child.hear()
    eventually(lambda: q._store.queue.stats().waiting_put == 2, "both wait")
    q.shutdown(immediate)
    assert [child.ends() for child in children] == ["ShutDown", "ShutDown"]


def test_any_process_can_shut_a_queue_down(start: Start) -> None:
    q = Queue()
    child = start(waits, q, "shutdown")
    child.hear()
    assert child.ends() == "returned"
    with pytest.raises(ShutDown):
        q.get()


def test_an_immediate_shutdown_counts_what_it_discards_as_done(start: Start) -> None:
    q = JoinableQueue()
    for number in range(5):
        q.put(number)
    q.get()
    child = start(waits, q, "join")
    child.hear()
    q.shutdown(immediate=True)
    assert q._store.unfinished() == 1  # the one that was got
    assert not child.has_spoken()
    q.task_done()
    assert child.ends() == "returned"
    with pytest.raises(ValueError, match="called too many times"):
        q.task_done()


def test_a_shutdown_leaves_tasks_to_be_done() -> None:
    q = JoinableQueue()
    q.put(1)
    q.shutdown()
    q.get()
    joiner = threading.Thread(target=q.join)
    joiner.start()
    q.task_done()
    joiner.join()


def test_what_is_put_during_an_immediate_shutdown_does_not_stay() -> None:
    q = JoinableQueue()
    gate = threading.Barrier(4)

    def put() -> None:
        gate.wait()
        with pytest.raises(ShutDown):
            while True:
                q.put(1)

    putters = [threading.Thread(target=put) for _ in range(3)]
    for putter in putters:
        putter.start()
    gate.wait()
    q.shutdown(immediate=True)
    for putter in putters:
        putter.join()
    q.join()
    assert q.empty()
