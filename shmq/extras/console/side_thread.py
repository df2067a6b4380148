"""Work beside the event loop."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any, TypeVar

import anyio
import anyio.to_thread

T = TypeVar("T")


async def in_thread(
    work: Callable[..., T], *given: Any, limiter: anyio.CapacityLimiter | None = None
) -> T:
    """The result of ``work(*given)`` in a thread. Raises what it raises."""
    return await anyio.to_thread.run_sync(_run, work, given, limiter=limiter)


def _run(work: Callable[..., T], given: tuple[Any, ...]) -> T:
    """Empties the frames of an error: a thread of anyio keeps its last one until its next work.

    With the frames it would keep the streams that they had open, a descriptor for each partition.
    """
    try:
        return work(*given)
    except Exception as error:
        link: BaseException | None = error
        while link is not None:
            traceback.clear_frames(link.__traceback__)
            link = link.__cause__ or link.__context__
        raise
