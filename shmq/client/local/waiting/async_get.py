"""The asyncio operations of a queue that wait."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

from shmq import api
from shmq.errors import Empty, Full, LockTimeout
from shmq.lazy_imports import late_imports
from shmq.native import _core

_T = TypeVar("_T")

_Attempt = Callable[[], api.Message | None]


@functools.cache
def _load_waits() -> ModuleType:
    with late_imports:
        from shmq.client.local.waiting import loop_waits  # noqa: PLC0415 - it imports asyncio

    return loop_waits


def without_lock(attempt: _Attempt, timeout: float | None) -> api.Message | None:
    """The result of the attempt; None if it could not get a lock and the caller can wait."""
    try:
        return attempt()
    except LockTimeout:
        if timeout == 0:
            raise
        return None


async def wait_for(
    queue: Any, event: int, attempt: Callable[[], _T | None], timeout: float | None
) -> _T | None:
    """The first result of ``attempt``, which has failed once; None if the timeout passed."""
    if timeout == 0:
        queue.look_for_dead()
        return attempt()
    queue.look_before_wait()
    found: _T | None = await _load_waits().wait_for(queue.namespace, queue, event, attempt, timeout)
    return found


async def get(queue: Any, timeout: float | None) -> api.Message:
    """Wait for a message of a queue that was empty. Raises Empty."""
    attempt: _Attempt = queue.try_get
    message = await wait_for(queue, _core.EVENT_NOT_EMPTY, attempt, timeout)
    if message is None:
        raise Empty(f"no message came to queue {queue.name!r} within {timeout} s")
    return message


async def get_chosen(queue: Any, meant: _core.Filter, timeout: float | None) -> api.Message:
    """Wait for a message that matches the filter. Raises Empty."""

    def attempt() -> api.Message | None:
        found: list[api.Message] = queue.select(meant, 1)
        return found[0] if found else None

    message = without_lock(attempt, timeout)
    if message is None:
        message = await wait_for(queue, _core.EVENT_ARRIVED, attempt, timeout)
    if message is None:
        raise Empty(
            f"no message that `where` means came to queue {queue.name!r} within {timeout} s"
        )
    return message


async def put(queue: Any, prepared: _core.PreparedPut, timeout: float | None) -> api.Put:
    """Put into a queue that was full. Raises Full."""
    refusal: list[Full] = []

    def attempt() -> api.Put | None:
        try:
            put: api.Put = queue.try_put(prepared)
        except Full as full:
            refusal[:] = [full]
            return None
        return put

    found: api.Put | None = await _load_waits().wait_for(
        queue.namespace, queue, _core.EVENT_NOT_FULL, attempt, timeout
    )
    if found is None:
        raise refusal.pop()
    return found


class AsyncConsumer(api.AsyncConsumer):
    """Implements :class:`shmq.api.AsyncConsumer`. One task at a time may use it."""

    def __init__(
        self, queue: Any, consumer: _core.Consumer, prefetch: int, timeout: float | None, event: int
    ) -> None:
        self._event = event
        self._queue = queue
        self._consumer = consumer
        self._prefetch = prefetch
        self._timeout = timeout
        self._in_a_row = 0
        self._closed = False

    def __aiter__(self) -> AsyncConsumer:
        return self

    async def __anext__(self) -> api.Message:
        if self._closed:
            raise StopAsyncIteration
        if self._in_a_row == self._prefetch:
            import asyncio  # noqa: PLC0415 - callers that await have it loaded

            # Before a message is taken: a task cancelled here has none.
            self._in_a_row = 0
            await asyncio.sleep(0)
        self._in_a_row += 1
        message = without_lock(self._consumer.take, self._timeout)
        if message is None:
            self._in_a_row = 0
            message = await wait_for(self._queue, self._event, self._consumer.take, self._timeout)
        if message is None:
            self.close()
            raise StopAsyncIteration
        return message

    def flush(self) -> None:
        self._consumer.flush()

    def close(self) -> None:
        """Flush, return the messages that were not delivered, and end the iteration."""
        self._closed = True
        self._consumer.close()

    async def aclose(self) -> None:
        self.close()
