"""What a handle holds is freed with it, and not when the garbage collector runs."""

from __future__ import annotations

import gc
import weakref

import shmq


def test_a_queue_that_is_closed_and_forgotten_is_unmapped_at_once(namespace: str) -> None:
    gc.disable()
    try:
        with shmq.connect(namespace) as broker:
            queue = broker.create_queue("q", dead_letter=None)
            found = weakref.ref(queue)
            queue.close()
            del queue
            assert found() is None
    finally:
        gc.enable()
