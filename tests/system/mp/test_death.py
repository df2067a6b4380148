"""kill -9 and Ctrl-C at any moment: the others go on, and nothing comes twice."""

from __future__ import annotations

import os
import random
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from shmq.mp import JoinableQueue, Queue
from tests.support.processes import Start
from tests.support.waiting import PATIENCE, eventually


def get_for_ever(pipe: Connection, q: Any, ledger: Path) -> None:
    """Get, and write down what was got, in one write each."""
    with ledger.open("ab", buffering=0) as lines:
        pipe.send("begins")
        while True:
            lines.write(b"%d\n" % q.get()[0])


def put_for_ever(pipe: Connection, q: Any) -> None:
    pipe.send("begins")
    while True:
        q.put(bytes(50_000))
        q.put(1)


def do_tasks_for_ever(pipe: Connection, q: Any) -> None:
    pipe.send("begins")
    while True:
        q.put(1)
        q.get()
        q.task_done()


def wait_for_one(pipe: Connection, q: Any) -> Any:
    pipe.send("waits")
    try:
        return q.get()
    except KeyboardInterrupt:
        return "interrupted"


@pytest.mark.prove
@pytest.mark.parametrize("size", [10, 20_000], ids=["small", "large"])
def test_getters_killed_at_any_moment_cost_at_most_what_they_held(
    size: int, start: Start, tmp_path: Path
) -> None:
    q: Any = Queue()
    ledger = tmp_path / "got"
    kills, put = 8, 0
    for _ in range(kills):
        child = start(get_for_ever, q, ledger)
        child.hear()
        end = time.monotonic() + random.uniform(0.001, 0.05)
        while time.monotonic() < end:
            q.put((put, b"x" * size))
            put += 1
        child.kill()
    while not q.empty():
        with ledger.open("ab") as lines:
            lines.write(b"%d\n" % q.get(timeout=PATIENCE)[0])

    got = [int(line) for line in ledger.read_bytes().split()]
    assert len(set(got)) == len(got)
    assert put - kills <= len(got) <= put
    q._store.queue.check()


@pytest.mark.prove
def test_a_getter_killed_while_it_waits_is_not_missed(start: Start) -> None:
    q: Any = Queue()
    children = [start(wait_for_one, q) for _ in range(3)]
    for child in children:
        child.hear()
    eventually(lambda: q._store.queue.stats().waiting_get == 3, "all wait")
    children[0].kill()
    children[1].kill()

    q.put("there")

    assert children[2].ends() == "there"
    q.put("again")
    assert q.get(timeout=PATIENCE) == "again"


def test_putters_killed_at_any_moment_leave_room(start: Start) -> None:
    q: Any = Queue(5)
    for _ in range(8):
        child = start(put_for_ever, q)
        child.hear()
        end = time.monotonic() + random.uniform(0.001, 0.02)
        while time.monotonic() < end:
            assert q.get(timeout=PATIENCE) in {bytes(50_000), 1}
        child.kill()
    while not q.empty():
        q.get(timeout=PATIENCE)
    for number in range(5):
        q.put(number, timeout=PATIENCE)
    assert [q.get() for _ in range(5)] == list(range(5))
    q._store.queue.check()


@pytest.mark.prove
def test_workers_killed_at_any_moment_never_block_the_count_of_tasks(start: Start) -> None:
    q: Any = JoinableQueue()
    for _ in range(8):
        child = start(do_tasks_for_ever, q)
        child.hear()
        time.sleep(random.uniform(0.001, 0.02))
        child.kill()
    for _ in range(q._store.unfinished()):  # which the dead had not done
        q.task_done()
    q.join()
    with pytest.raises(ValueError, match="too many times"):
        q.task_done()


def test_ctrl_c_ends_a_wait_and_the_queue_goes_on(start: Start) -> None:
    q: Any = Queue()
    child = start(wait_for_one, q)
    child.hear()
    eventually(lambda: q._store.queue.stats().waiting_get == 1, "it waits")
    child.signal(signal.SIGINT)
    assert child.ends() == "interrupted"
    q.put(os.getpid())
    assert q.get() == os.getpid()
