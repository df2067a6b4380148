"""How long an anonymous queue lives: as long as anyone has a handle, and no longer."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import stat
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq.mp import JoinableQueue, Queue, SimpleQueue
from tests.support.processes import SHM, Start, files_of, run_script
from tests.support.waiting import eventually

from .conftest import queues_of

METHODS = ("fork", "spawn", "forkserver")
KINDS = (Queue, JoinableQueue, SimpleQueue)


def relay(pipe: Connection, q: Any) -> Any:
    """Put what is heard, then get what another puts."""
    q.put(pipe.recv())
    pipe.send("put")
    pipe.recv()
    return q.get()


def make_and_tell(pipe: Connection, count: int) -> None:
    """Make queues and keep them until killed."""
    queues = [Queue() for _ in range(count)]
    queues[0].put("kept")
    pipe.send([q._store.name for q in queues])
    pipe.recv()


def make_for_child(pipe: Connection, method: str) -> None:
    """Make a queue that a child of one's own uses, too."""
    q = Queue()
    context: Any = multiprocessing.get_context(method)
    child = context.Process(target=put_until_told, args=(q,))
    child.start()
    pipe.send((q._store.name, q.get(), child.pid))
    pipe.recv()


def put_until_told(q: Any) -> None:
    q.put("from the child")
    signal.pause()


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_handle_takes_all_of_it_along(kind: Any, own_namespace: str) -> None:
    q = kind()
    q.put(1)
    copy = pickle.loads(pickle.dumps(q))
    assert files_of(own_namespace) != []
    del q
    gc.collect()
    assert copy.get() == 1
    del copy
    gc.collect()
    assert files_of(own_namespace) == []


def test_only_its_user_may_touch_it(own_namespace: str) -> None:
    q = JoinableQueue()
    q.put(1)
    q._store.wakeups()
    names = files_of(own_namespace)
    modes = {stat.S_IMODE((SHM / name).stat().st_mode) for name in names}
    assert len(names) == 9  # of the namespace 3, two segments, two semaphores of each
    assert modes == {0o600}


@pytest.mark.prove
def test_a_queue_costs_little_and_leaves_no_descriptor(own_namespace: str) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    Queue().put(1)
    gc.collect()
    before = descriptors()
    for _ in range(20):
        q = JoinableQueue()
        q.put(1)
        q.task_done()
        pickle.loads(pickle.dumps(q)).get()
    taken = sum((SHM / name).stat().st_blocks * 512 for name in files_of(own_namespace))
    assert taken < 256 * 1024
    del q
    gc.collect()
    assert descriptors() <= before


@pytest.mark.prove
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_processes_keep_a_queue_that_its_maker_has_dropped(
    kind: Any, method: str, start: Start, own_namespace: str
) -> None:
    q = kind()
    first, second = (start(relay, q, method=method) for _ in range(2))
    del q
    gc.collect()
    first.tell("one")
    second.tell("two")
    first.hear()
    second.hear()
    first.tell()
    second.tell()
    assert {first.ends(), second.ends()} == {"one", "two"}
    assert queues_of(own_namespace) == []


def test_a_maker_that_ends_leaves_nothing(own_namespace: str) -> None:
    run_script(
        "import shmq.mp as mp\n"
        "kept = [kind() for kind in (mp.Queue, mp.JoinableQueue, mp.SimpleQueue)]\n"
        "for queue in kept: queue.put(b'x' * 100_000)\n"
        "process = mp.Process(target=kept[0].put, args=(1,))\n"
        "process.start()\n"
        "process.join()\n"
    )
    assert files_of(own_namespace) == []


def test_the_next_maker_removes_what_a_killed_one_left(own_namespace: str, start: Start) -> None:
    child = start(make_and_tell, 3)
    names = child.hear()
    child.kill()
    assert all(any(name in file for file in files_of(own_namespace)) for name in names)

    q = Queue()

    left = files_of(own_namespace)
    assert not any(name in file for file in left for name in names)
    assert any(q._store.name in file for file in left)


@pytest.mark.prove
@pytest.mark.parametrize("method", METHODS)
def test_a_queue_of_a_killed_maker_that_a_child_still_has_stays(
    method: str, own_namespace: str, start: Start
) -> None:
    child = start(make_for_child, method, method="spawn")
    name, said, grandchild = child.hear()
    try:
        assert said == "from the child"
        child.kill()

        Queue()

        assert any(name in file for file in files_of(own_namespace))
    finally:
        os.kill(grandchild, signal.SIGKILL)
    eventually(lambda: has_ended(grandchild), "the grandchild ends")
    Queue()
    assert not any(name in file for file in files_of(own_namespace))


def has_ended(pid: int) -> bool:
    try:
        return "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True


def test_a_handle_can_be_sent_through_a_queue(start: Start) -> None:
    calls: Any = Queue()
    child = start(answer_calls, calls)
    for number in range(5):
        reply: Any = Queue()
        calls.put((number, reply))
        assert reply.get() == number * 2
    calls.put(None)
    assert child.ends() is None


def answer_calls(pipe: Connection, calls: Any) -> None:
    for number, reply in iter(calls.get, None):
        reply.put(number * 2)


def test_a_handle_of_a_queue_that_is_gone_cannot_be_unpickled() -> None:
    q = Queue()
    pickled = pickle.dumps(q)
    del q
    gc.collect()
    with pytest.raises(shmq.NoSuchQueue, match="was removed when its last handle was closed"):
        pickle.loads(pickled)


def test_a_plain_fork_uses_a_queue_and_does_not_end_it(own_namespace: str) -> None:
    q = Queue()
    pid = os.fork()
    if not pid:
        q.put("from the child")
        del q
        gc.collect()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert q.get() == "from the child"
    q.put(1)
    assert q.get() == 1


def test_a_namespace_can_be_chosen(own_namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHMQ_MP_NAMESPACE")
    code = "import shmq.mp.store as s; print(s.default_namespace())"
    assert run_script(code) == f"mp-{os.geteuid()}\n"
    monkeypatch.setenv("SHMQ_MP_NAMESPACE", "no good")
    with pytest.raises(shmq.InvalidName, match="no good"):
        Queue()


@pytest.mark.prove
def test_queues_are_made_and_dropped_by_many_threads_at_once(own_namespace: str) -> None:
    script = (
        "import threading, shmq.mp as mp\n"
        "def work():\n"
        "    for number in range(30):\n"
        "        queue = mp.Queue(); queue.put(number); assert queue.get() == number\n"
        "threads = [threading.Thread(target=work) for _ in range(4)]\n"
        "[thread.start() for thread in threads]; [thread.join() for thread in threads]\n"
    )
    run_script(script)
    assert files_of(own_namespace) == []


@pytest.mark.prove
@pytest.mark.parametrize("wait", ["getter.get()", "putter.put(2)", "putter.put(b'x' * 10_000)"])
def test_a_daemon_thread_that_waits_ends_with_its_process(own_namespace: str, wait: str) -> None:
    run_script(
        "import threading, time, shmq.mp as mp\n"
        "getter, putter = mp.Queue(), mp.Queue(1)\n"
        "putter.put(1)\n"
        "def work():\n"
        f"    thread = threading.Thread(target=lambda: {wait}, daemon=True)\n"
        "    thread.start()\n"
        "    time.sleep(0.1)\n"
        "process = mp.Process(target=work)\n"
        "process.start()\n"
        "process.join()\n"
        "work()\n"
    )
    assert queues_of(own_namespace) == []
