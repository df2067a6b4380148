"""Timers of event loops that end although a test has frozen Python's clock."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Protocol

#: A loop of libuv counts whole ms, and rounds what time it is down: so much earlier it may call.
_ROUNDED: Final = 0.001


class Timer(Protocol):
    """A call to come."""

    def cancel(self) -> None:
        """Do not make it."""


def call_later(
    loop: asyncio.AbstractEventLoop, seconds: float, callback: Callable[..., object], *args: Any
) -> Timer:
    """Call ``callback`` in the loop after so many seconds of the kernel's clock, never before.

    A loop reads Python's clock. While that is frozen, a thread waits in its place.
    """
    if time.monotonic() != time.monotonic():
        exact = isinstance(loop, asyncio.BaseEventLoop)
        return loop.call_later(seconds if exact else seconds + _ROUNDED, callback, *args)

    def call() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(callback, *args)

    timer = threading.Timer(seconds, call)
    timer.daemon = True
    timer.start()
    return timer


async def wait(future: asyncio.Future[Any], timeout: float | None) -> bool:
    """Wait until the future is done, for up to ``timeout`` seconds; return whether it is.

    It is not cancelled. A future that was done in time is not awaited: its result is left to the
    caller.
    """
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def end(_: object = None) -> None:
        if not ended.done():
            ended.set_result(None)

    future.add_done_callback(end)
    timer = None if timeout is None else call_later(loop, timeout, end)
    try:
        await ended
    finally:
        future.remove_done_callback(end)
        if timer is not None:
            timer.cancel()
    return future.done()


async def sleep(seconds: float) -> None:
    """Sleep, as ``asyncio.sleep`` does."""
    await wait(asyncio.get_running_loop().create_future(), seconds)


@contextlib.asynccontextmanager
async def limit(seconds: float | None) -> AsyncIterator[None]:
    """Cancel the block after so many seconds, as ``asyncio.timeout`` does. Raises TimeoutError."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as block:
        inside = True

        def end() -> None:
            if inside:
                block.reschedule(loop.time())

        timer = None if seconds is None else call_later(loop, seconds, end)
        try:
            yield
        finally:
            inside = False
            if timer is not None:
                timer.cancel()
