"""Procedures without I/O, and the two ways to perform their steps.

A procedure is a generator: it yields each piece of I/O that it needs as a `Step`, and receives the
result. It never waits by itself, so a call and its twin for asyncio share it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Final, TypeVar

from shmq.lazy_imports import late_imports
from shmq.native import _clock as time

_T = TypeVar("_T")

#: The pause between two attempts of a task that cannot get a lock, in seconds: each attempt may
#: block its event loop for as long as it waits for the lock.
LOCK_PAUSE: Final = 0.1

#: One piece of I/O: a function that blocks its thread, and one that suspends its task.
Step = tuple[Callable[[], Any], Callable[[], Awaitable[Any]]]

#: A procedure that returns the type given.
Steps = Generator[Step, Any, _T]


def run(steps: Steps[_T]) -> _T:
    """Perform the procedure in this thread."""
    try:
        step = next(steps)
        while True:
            try:
                result = step[0]()
            except BaseException as error:  # noqa: BLE001 - the procedure raises it
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        found: _T = end.value
        return found


async def arun(steps: Steps[_T]) -> _T:
    """Perform the procedure in the running task."""
    try:
        step = next(steps)
        while True:
            try:
                result = await step[1]()
            except BaseException as error:  # noqa: BLE001 - the procedure raises it
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        found: _T = end.value
        return found


def blocking(call: Callable[[], Any]) -> Step:
    """A call that blocks: a task has it made by a thread, to its end even if it is cancelled."""
    return call, lambda: run_to_end(call)


def run_to_end(call: Callable[[], _T]) -> Awaitable[_T]:
    """The result of a call that a thread makes, to its end even if the task is cancelled."""
    with late_imports:
        from shmq.client.shared import blocking_calls  # noqa: PLC0415 - it imports asyncio

    return blocking_calls.run_to_end(call)


def pause(seconds: float) -> Step:
    """Sleep."""
    return (lambda: time.sleep(seconds), lambda: _sleep(seconds))


def _sleep(seconds: float) -> Awaitable[None]:
    with late_imports:
        from shmq.client.shared import loop_timer  # noqa: PLC0415 - it imports asyncio

    return loop_timer.sleep(seconds)
