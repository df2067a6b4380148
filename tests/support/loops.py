"""The event loops on which the asyncio API is tested."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

_T = TypeVar("_T")

#: Makes a loop. Raises ImportError if its kind is not installed.
NewLoop = Callable[[], asyncio.AbstractEventLoop]


def _uvloop() -> asyncio.AbstractEventLoop:
    import uvloop

    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


LOOPS: dict[str, NewLoop] = {"asyncio": asyncio.new_event_loop, "uvloop": _uvloop}


class Loop:
    """Runs coroutines on one kind of loop, a new loop each time."""

    def __init__(self, new: NewLoop) -> None:
        self.new = new

    def __call__(self, work: Coroutine[Any, Any, _T]) -> _T:
        try:
            runner = asyncio.Runner(loop_factory=self.new)
            runner.get_loop()
        except BaseException:
            work.close()
            raise
        with runner:
            return runner.run(work)


async def until(condition: Callable[[], bool]) -> None:
    """Return once the condition holds; the test's watchdog ends an endless wait."""
    while not condition():  # noqa: ASYNC110 - it waits for a change in shared memory
        await asyncio.sleep(0.002)


@contextlib.asynccontextmanager
async def occupied_pool() -> AsyncIterator[None]:
    """The running loop's default pool has one thread, which is occupied within the block."""
    loop, release = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    occupied = loop.run_in_executor(None, release.wait)
    try:
        yield
    finally:
        release.set()
        await occupied
