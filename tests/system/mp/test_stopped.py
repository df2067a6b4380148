"""A process that is stopped while it counts the tasks of a joinable queue."""

from __future__ import annotations

import pytest

from shmq import LockTimeout, mp
from tests.support.stopped import stopped_inside

pytestmark = pytest.mark.prove

#: Holds the lock of a queue's words, stopped.
HOLD = """
import os, signal, sys
from pathlib import Path
from shmq.mp.mutex import Mutex
with Mutex(Path(sys.argv[1])):
    os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_no_process_waits_for_it_without_a_bound() -> None:
    queue: mp.JoinableQueue = mp.JoinableQueue()
    queue.put(1)
    queue.get()
    with stopped_inside(HOLD, queue._store.mutex._path) as holder:
        with pytest.raises(LockTimeout) as caught:
            queue.task_done()
        told = (caught.value.pid, caught.value.state)
        assert told == (holder.pid, "stopped"), caught.value
        del caught
    queue.task_done()
    queue.join()
    queue.close()
