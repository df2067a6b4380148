"""Taskiq's own tests with shmq in place of its broker in memory.

`test_taskiq.py` copies this module as the ``conftest.py`` beside those tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import taskiq
from taskiq import AsyncBroker, AsyncTaskiqTask, BrokerMessage, TaskiqEvents, TaskiqResult
from taskiq.exceptions import TaskiqResultTimeoutError, UnknownTaskError
from taskiq.receiver import Receiver
from taskiq.utils import maybe_awaitable

import shmq
from shmq.extras.taskiq import ShmqBroker, ShmqResultBackend

from .utils import TARGET

#: The brokers of the current test.
BROKERS: list[SuiteBroker] = []


class SuiteBroker(ShmqBroker):
    """A broker over shmq with a worker in the same event loop, from the first task on."""

    result_backend: ShmqResultBackend[Any]

    def __init__(self) -> None:
        self.name = uuid4().hex
        super().__init__(TARGET, queue=self.name)
        self.result_backend = ShmqResultBackend(TARGET, table=self.name)
        self._finish = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        BROKERS.append(self)

    async def startup(self) -> None:
        """Fire the events of a client and of a worker, as the broker in memory does."""
        await super().startup()
        for handler in self.event_handlers[TaskiqEvents.WORKER_STARTUP]:
            await maybe_awaitable(handler(self.state))

    async def shutdown(self) -> None:
        """Fire the events of a client and of a worker, as the broker in memory does."""
        for handler in self.event_handlers[TaskiqEvents.WORKER_SHUTDOWN]:
            await maybe_awaitable(handler(self.state))
        await super().shutdown()

    async def kick(self, message: BrokerMessage) -> None:
        """Put the task, and see that there is a worker."""
        if self.find_task(message.task_name) is None:
            raise UnknownTaskError(task_name=message.task_name)
        if self._worker is None:
            receiver = Receiver(self, max_async_tasks=30, run_startup=False)
            self._worker = asyncio.create_task(receiver.listen(self._finish))
        await super().kick(message)

    async def wait_all(self) -> None:
        """Return once every task was acknowledged."""
        while True:
            if not self._running_tasks:
                return
            await asyncio.sleep(0.01)

    @property
    def _running_tasks(self) -> int:
        stats = self._shared.queue(self.name).stats()
        return stats.depth + stats.delayed + stats.in_flight

    def close(self) -> None:
        """Close what is connected."""
        self._shared.close()
        self.result_backend._table.close()


_wait_result = AsyncTaskiqTask.wait_result


async def wait_result(task: AsyncTaskiqTask[Any], *how: Any, **more: Any) -> TaskiqResult[Any]:
    """As taskiq's: here a result counts once its task was acknowledged, as one in memory does.

    No result is missing while a task is left, however long a busy machine takes for it.
    """
    while True:
        left = any(broker._running_tasks for broker in BROKERS)
        try:
            found = await _wait_result(task, *how, **more)
        except TaskiqResultTimeoutError:
            if not left:
                raise
        else:
            for broker in BROKERS:
                await broker.wait_all()
            return found


taskiq.InMemoryBroker = SuiteBroker  # type: ignore[assignment, misc]
AsyncTaskiqTask.wait_result = wait_result  # type: ignore[assignment, method-assign]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop."""
    return "asyncio"


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """At the end, when the event loop has cancelled the workers, nothing of the test is left."""
    yield
    while BROKERS:
        BROKERS.pop().close()
    AsyncBroker.global_task_registry.clear()
    with shmq.connect(TARGET) as broker:
        for name in reversed(broker.queue_names()):
            broker.delete_queue(name)
        for name in broker.list_tables():
            broker.delete_table(name)
