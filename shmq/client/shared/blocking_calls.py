"""Calls that block, made for event loops: never by their default pool."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _create_pool() -> ThreadPoolExecutor:
    """Create threads as needed, without a limit: idle ones are used first.

    A limit, as that of an event loop's default pool, makes calls wait for calls: those that wait
    for a message or for room would occupy the threads of those that provide it.
    """
    return ThreadPoolExecutor(max_workers=sys.maxsize, thread_name_prefix="shmq call")


_pool = _create_pool()
_lanes: dict[str, ThreadPoolExecutor] = {}


async def run_blocking(call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Return the result of a call that blocks, made by a thread of shmq's own.

    A drop-in for ``asyncio.to_thread``, whose pool has a few threads that the application uses too.
    """
    run: Callable[[], Any] = functools.partial(
        contextvars.copy_context().run, call, *args, **kwargs
    )
    found: _T = await asyncio.get_running_loop().run_in_executor(_pool, run)
    return found


async def run_in_turn(lane: str, call: Callable[..., _T], *args: Any) -> _T:
    """Return the result of a short call; the thread of its lane makes one call after the other.

    If the task is cancelled, a call that has not started is not made.
    """
    pool = _lanes.get(lane) or _lanes.setdefault(lane, ThreadPoolExecutor(1, f"shmq {lane}"))
    return await asyncio.get_running_loop().run_in_executor(pool, call, *args)


async def run_to_end(call: Callable[[], _T]) -> _T:
    """Return the result of a call that blocks, and is made even if the task is cancelled.

    Nobody hears of the outcome then: that it fails is no error of the event loop.
    """
    made = asyncio.ensure_future(run_blocking(call))
    made.add_done_callback(_take_outcome)
    return await asyncio.shield(made)


def _take_outcome(made: asyncio.Future[Any]) -> None:
    if not made.cancelled():
        made.exception()


def _renew_pool() -> None:
    global _pool  # noqa: PLW0603 - the child of a fork has none of its parent's threads
    _pool = _create_pool()
    _lanes.clear()


os.register_at_fork(after_in_child=_renew_pool)
