"""Taskiq's results in a table of shmq."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from taskiq import AsyncResultBackend, TaskiqResult
from taskiq.abc.serializer import TaskiqSerializer
from taskiq.depends.progress_tracker import TaskProgress
from taskiq.exceptions import ResultGetError, TaskiqResultTimeoutError
from taskiq.serializers import JSONSerializer

from shmq.api.table import Table, TableDurability
from shmq.client.shared.blocking_calls import run_blocking
from shmq.extras.frameworks.task_queues import Connection
from shmq.extras.frameworks.task_table import ResultNotStored, TaskTable, shorten_key
from shmq.extras.taskiq.formatter import dump_model
from shmq.model.table.entry import check_ttl

if TYPE_CHECKING:
    from shmq.client.remote.address import Tls

T = TypeVar("T")


class ShmqResultBackend(AsyncResultBackend[T]):
    """Keeps results in the table ``table``, for ``result_ttl`` seconds (None: for ever).

    If a result cannot be stored, because the serializer does not support it or it is larger than
    16 MiB, an error is stored instead, and the worker logs why.

    ``url``, ``token`` and ``tls`` are as for `ShmqBroker`, ``durability`` as for a table of shmq.
    With ``keep_results=False`` a result is deleted when it is got. ``serializer`` is by default
    JSON; nothing is unpickled unless the application gives taskiq's pickle serializer.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        tls: Tls = None,
        table: str = "taskiq-results",
        durability: TableDurability = "memory",
        result_ttl: float | None = 86_400.0,
        keep_results: bool = True,
        serializer: TaskiqSerializer | None = None,
    ) -> None:
        self._table = TaskTable(Connection(url, token, tls), table, durability)
        self._ttl = check_ttl(result_ttl)
        self._keep = keep_results
        self._serializer = serializer or JSONSerializer()

    async def shutdown(self) -> None:
        """Close the connection."""
        await run_blocking(self._table.close)

    async def set_result(self, task_id: str, result: TaskiqResult[T]) -> None:
        """Store the result, or the error ResultNotStored with which it was rejected."""
        try:
            await self._set(task_id, dump_model(result, "return_value"))
        except Exception as error:
            failed = TaskiqResult[Any](
                is_err=True,
                return_value=None,
                execution_time=result.execution_time,
                error=ResultNotStored.of(error),
            )
            await self._set(task_id, dump_model(failed, "return_value"))
            raise

    async def is_result_ready(self, task_id: str) -> bool:
        """Whether there is a result."""
        return await self._get(task_id) is not None

    async def get_result(self, task_id: str, with_logs: bool = False) -> TaskiqResult[T]:
        """The result. Raises ResultGetError if there is none."""
        found = await self._get(task_id)
        if found is None:
            raise ResultGetError
        return await self._decode_result(task_id, found, with_logs)

    async def wait_result(
        self, task_id: str, timeout: float | None, with_logs: bool = False
    ) -> TaskiqResult[T]:
        """The result, once it is there: asleep, where taskiq's own `wait_result` looks again.

        Raises TaskiqResultTimeoutError after ``timeout`` seconds. Without a limit if it is None or,
        as for taskiq's own, negative.
        """
        found = await self._get(task_id)
        if found is None:
            limit = None if timeout is None or timeout < 0 else timeout
            found = await self._table.table.await_(shorten_key(task_id), limit)
        if found is None:
            raise TaskiqResultTimeoutError(timeout=timeout)
        return await self._decode_result(task_id, found, with_logs)

    async def set_progress(self, task_id: str, progress: TaskProgress[Any]) -> None:
        """Store the progress."""
        await self._set(_make_progress_key(task_id), dump_model(progress, "meta"))

    async def get_progress(self, task_id: str) -> TaskProgress[Any] | None:
        """The progress; None if there is none."""
        found = await self._get(_make_progress_key(task_id))
        if found is None:
            return None
        return TaskProgress[Any].model_validate(self._serializer.loadb(found))

    async def _decode_result(self, task_id: str, found: bytes, with_logs: bool) -> TaskiqResult[T]:
        if not self._keep:
            await self._run(lambda table: table.delete(shorten_key(task_id)))
        result = TaskiqResult[T].model_validate(self._serializer.loadb(found))
        if not with_logs:
            result.log = None
        return result

    async def _get(self, key: str) -> Any:
        return await self._run(lambda table: table.get(shorten_key(key)))

    async def _run(self, call: Callable[[Table], Any]) -> Any:
        return await run_blocking(self._table.run, call)

    async def _set(self, key: str, value: Any) -> None:
        encoded = self._serializer.dumpb(value)
        await run_blocking(self._table.store, shorten_key(key), encoded, self._ttl)


def _make_progress_key(task_id: str) -> str:
    """The key of a task's progress."""
    return f"{task_id}.progress"
