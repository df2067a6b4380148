"""The event loop that the calls over nats:// wait for."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import threading

import pytest

pytest.importorskip("nats")

from shmq.extras.nats.client.loop_thread import LoopThread
from tests.support.waiting import PATIENCE, eventually


def test_a_call_that_is_interrupted_before_it_begins_leaves_no_coroutine() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    busy, free = threading.Event(), threading.Event()

    def hold() -> None:
        busy.set()
        assert free.wait(PATIENCE)

    def interrupt() -> None:
        ready = LoopThread.get().loop._ready  # type: ignore[attr-defined]
        for _ in range(30_000):
            if any(".start(" in repr(handle) for handle in tuple(ready)):
                break
            free.wait(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    LoopThread.get().loop.call_soon_threadsafe(hold)
    assert busy.wait(PATIENCE)
    interrupting = threading.Thread(target=interrupt)
    call = wait()
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        LoopThread.get().run(call)
    free.set()
    interrupting.join()
    eventually(lambda: inspect.getcoroutinestate(call) == inspect.CORO_CLOSED, "it is closed")
