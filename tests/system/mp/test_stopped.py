"""A process that is stopped while it counts the tasks of a joinable queue."""

from __future__ import annotations

import os

import pytest

from shmq import LockTimeout, mp
from tests.support.stopped import stopped_inside

pytestmark = pytest.mark.prove

#: Holds the lock of a queue's words, stopped.
HOLD = """
import os, signal, sys
from pathlib import Path
from shmq.mp.mutex import Mutex
os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[int(sys.argv[2])]})
with Mutex(Path(sys.argv[1])):
    os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.parametrize("core", [0, -1])
def test_no_process_waits_for_it_without_a_bound(core: int) -> None:
    """The kernel lists locks by the core that took them: the handle's, and that of the mutex."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(cores)[core]})
    try:
        queue: mp.JoinableQueue = mp.JoinableQueue()
    finally:
        os.sched_setaffinity(0, cores)
    queue.put(1)
    queue.get()
    with stopped_inside(HOLD, queue._store.mutex._path, -1 - core) as holder:
        with pytest.raises(LockTimeout) as caught:
            queue.task_done()
        told = (caught.value.pid, caught.value.state)
        assert told == (holder.pid, "stopped"), caught.value
        del caught
    queue.task_done()
    queue.join()
    queue.close()
