"""The event loops that the asynchronous side is tested on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")

#: Makes a loop, or says that there is none of its kind.
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
    """Return once it holds; the test's watchdog ends a wait in vain."""
    while not condition():  # noqa: ASYNC110 - what it waits for happens in shared memory
        await asyncio.sleep(0.002)
