"""multiprocessing's resource tracker: it never hears of a queue, so it never unlinks one."""

from __future__ import annotations

import os
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory

import pytest

from shmq import Broker, Queue
from shmq.native import _core
from tests.support.processes import SHM, Start, drain, files_of, is_sound, run_script

USES = {
    "attaches": """
import sys, shmq
queue = shmq.connect(sys.argv[1]).queue("q")
message = queue.get()
""",
    "makes a queue": """
import sys, shmq
shmq.connect(sys.argv[1]).create_queue("made").put(b"1")
""",
    "shares memory of its own": """
import sys, shmq
from multiprocessing.shared_memory import SharedMemory
queue = shmq.connect(sys.argv[1]).queue("q")
own = SharedMemory(create=True, size=4096)
view = queue.get().view
own.close()
own.unlink()
""",
    "starts processes that attach": """
import multiprocessing, sys, shmq

def put(queue):
    queue.put(b"from the child")

if __name__ == "__main__":
    queue = shmq.connect(sys.argv[1]).queue("q")
    for method in "fork", "spawn", "forkserver":
        context = multiprocessing.get_context(method)
        child = context.Process(target=queue.put, args=(method.encode(),))
        child.start()
        child.join()
        assert child.exitcode == 0
""",
    "is killed with the tracker running": """
import os, signal, sys, shmq
from multiprocessing import resource_tracker
resource_tracker.ensure_running()
queue = shmq.connect(sys.argv[1]).queue("q")
message = queue.get()
if os.fork() == 0:
    os.kill(os.getpid(), signal.SIGKILL)
os.wait()
""",
}


@pytest.mark.prove
@pytest.mark.parametrize("use", USES)
def test_a_queue_outlives_every_process_that_used_it(
    namespace: str, queue: Queue, use: str
) -> None:
    queue.put(b"1")
    before = files_of(namespace)

    run_script(USES[use], namespace)

    assert set(before) <= set(files_of(namespace))
    assert b"1" in drain(queue)
    is_sound(queue)


def test_the_tracker_is_not_even_started() -> None:
    code = """
import sys, shmq
from multiprocessing import resource_tracker
with shmq.connect(sys.argv[1]) as broker:
    queue = broker.create_queue("q")
    queue.put(bytes(20_000))
    view = queue.get().view
    broker.queue("q.dlq").close()
    broker.delete_queue("q")
assert resource_tracker._resource_tracker._fd is None
"""
    run_script(code, f"test-tracker-{os.getpid()}")


def test_a_queues_segment_is_an_ordinary_shared_memory_object(
    namespace: str, broker: Broker, queue: Queue
) -> None:
    name = f"shmq@{namespace}@q"
    queue.put(b"a body to be found in memory")

    memory = SharedMemory(name)
    try:
        # The tracker believes that a process that opens a block also owns it.
        resource_tracker.unregister(f"/{name}", "shared_memory")
        assert memory.size == (SHM / name).stat().st_size
        assert memory.buf is not None
        assert bytes(memory.buf[:8]) == _core.LAYOUT_VERSION.to_bytes(4, "little") + b"QMHS"
        assert b"a body to be found in memory" in bytes(memory.buf)
    finally:
        memory.close()

    assert drain(queue) == [b"a body to be found in memory"]


@pytest.mark.prove
def test_a_queue_may_be_pickled_to_a_process_that_shares_memory_too(
    queue: Queue, start: Start
) -> None:
    child = start(share_and_put, queue, method="spawn")

    size = child.ends()

    assert size >= 4096
    assert drain(queue) == [b"1"]


def share_and_put(pipe: object, queue: Queue) -> int:
    memory = SharedMemory(create=True, size=4096)
    try:
        queue.put(b"1")
        return memory.size
    finally:
        memory.close()
        memory.unlink()
