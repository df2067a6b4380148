"""The awaitable side of a queue."""

from __future__ import annotations

from typing import Any

from shmq import contract
from shmq.client.hub import wait_for
from shmq.core import _core
from shmq.errors import Empty, Full
from shmq.registry import Namespace

__all__ = ["AsyncConsumer", "get", "put"]


async def get(namespace: Namespace, queue: Any, timeout: float | None) -> contract.Message:
    """Wait for a message of a queue that had none. Raises Empty."""
    queue.look_for_dead()
    message: contract.Message | None = queue.try_get()
    if message is None and timeout != 0:
        message = await wait_for(namespace, queue, _core.EVENT_NOT_EMPTY, queue.try_get, timeout)
    if message is None:
        raise Empty(f"no message came to queue {queue.name!r} within {timeout} s")
    return message


async def get_chosen(
    namespace: Namespace, queue: Any, meant: _core.Filter, timeout: float | None
) -> contract.Message:
    """Wait for a message that the filter lets through. Raises Empty."""

    def attempt() -> contract.Message | None:
        found: list[contract.Message] = queue.choose(meant, 1)
        return found[0] if found else None

    message = attempt()
    if message is None:
        queue.look_for_dead()
        message = attempt()
    if message is None and timeout != 0:
        message = await wait_for(namespace, queue, _core.EVENT_ARRIVED, attempt, timeout)
    if message is None:
        raise Empty(
            f"no message that `where` means came to queue {queue.name!r} within {timeout} s"
        )
    return message


async def put(
    namespace: Namespace, queue: Any, parcel: _core.Parcel, timeout: float | None
) -> contract.Put:
    """Put into a queue that was full. Raises Full."""
    refusal: list[Full] = []

    def attempt() -> contract.Put | None:
        try:
            put: contract.Put = queue.try_put(parcel)
        except Full as full:
            refusal[:] = [full]
            return None
        return put

    found = await wait_for(namespace, queue, _core.EVENT_NOT_FULL, attempt, timeout)
    if found is None:
        raise refusal.pop()
    return found


class AsyncConsumer(contract.AsyncConsumer):
    """See :class:`shmq.contract.AsyncConsumer`. For one task at a time."""

    def __init__(
        self,
        namespace: Namespace,
        queue: Any,
        consumer: _core.Consumer,
        prefetch: int,
        timeout: float | None,
        event: int,
    ) -> None:
        self._namespace = namespace
        self._event = event
        self._queue = queue
        self._consumer = consumer
        self._prefetch = prefetch
        self._timeout = timeout
        self._in_a_row = 0
        self._closed = False

    def __aiter__(self) -> AsyncConsumer:
        return self

    async def __anext__(self) -> contract.Message:
        if self._closed:
            raise StopAsyncIteration
        if self._in_a_row == self._prefetch:
            import asyncio  # noqa: PLC0415 - who awaits has it; others need it not

            # Before a message is taken: one who is cancelled here has none.
            self._in_a_row = 0
            await asyncio.sleep(0)
        self._in_a_row += 1
        message = self._consumer.take()
        if message is None:
            self._in_a_row = 0
            message = await self._wait()
        if message is None:
            self.close()
            raise StopAsyncIteration
        return message

    async def _wait(self) -> contract.Message | None:
        self._queue.look_for_dead()
        message = self._consumer.take()
        if message is None and self._timeout != 0:
            message = await wait_for(
                self._namespace,
                self._queue,
                self._event,
                self._consumer.take,
                self._timeout,
            )
        return message

    def flush(self) -> None:
        """See :class:`shmq.contract.AsyncConsumer`."""
        self._consumer.flush()

    def close(self) -> None:
        """Flush, return what was not handed out, and end the iteration."""
        self._closed = True
        self._consumer.close()

    async def aclose(self) -> None:
        """See :class:`shmq.contract.AsyncConsumer`."""
        self.close()
