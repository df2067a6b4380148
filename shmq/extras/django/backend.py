"""The backend of Django's tasks."""

from __future__ import annotations

import time
from typing import Any, Final

from django.utils import timezone
from django.utils.crypto import get_random_string

from shmq.api.table import MAX_TTL
from shmq.errors import InvalidName, InvalidOption
from shmq.extras.django.framework import (
    BaseTaskBackend,
    InvalidTask,
    TaskResultDoesNotExist,
    normalize_json,
    task_enqueued,
)
from shmq.extras.django.place import BackendOptions, Place
from shmq.extras.django.record import Record

#: For how long the result of a task that never ends is kept after its time, in seconds.
_UNFINISHED: Final = 30 * 86_400.0
#: The latest time of a task, in seconds from now: just under the longest delay of a message.
_LATEST: Final = 1e9 - 60
#: A new result is stored with spaces, a 64th of its size, as room for what its worker adds. So
#: arguments that leave no room for that are rejected to the caller.
_ROOM: Final = 64


class ShmqBackend(BaseTaskBackend):
    """Puts tasks into queues of shmq, and keeps their results in a table.

    The settings may have ``OPTIONS`` with the names of :class:`BackendOptions`. Raises
    ImproperlyConfigured for others.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.shmq = BackendOptions.of(alias, self.options)
        self.place = Place.of(self.shmq)

    def validate_task(self, task: Any) -> None:
        """Raise InvalidTask for a task that this backend cannot run."""
        super().validate_task(task)
        try:
            self.place.name_of(task.queue_name)
        except (InvalidName, TypeError) as error:
            raise InvalidTask(f"queue_name={task.queue_name!r}: {error}") from error
        if task.run_after is not None and task.run_after.timestamp() > time.time() + _LATEST:
            raise InvalidTask(
                f"run_after must be at most {_LATEST:,.0f} s from now, not {task.run_after}"
            )

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Put the task into its queue; returns its result, which is not there yet.

        Raises InvalidTask, TypeError or ValueError for arguments that JSON does not hold, and what
        :meth:`shmq.Queue.put` raises.
        """
        self.validate_task(task)
        record = Record(
            id=get_random_string(32),
            task=task.module_path,
            backend=self.alias,
            queue_name=task.queue_name,
            priority=int(task.priority),
            run_after=None if task.run_after is None else task.run_after.isoformat(),
            args=normalize_json(list(args)),
            kwargs=normalize_json(dict(kwargs)),
            enqueued_at=timezone.now().isoformat(),
        )
        now, at = time.time(), None if task.run_after is None else task.run_after.timestamp()
        later = 0.0 if at is None else max(0.0, at - now)
        # The result is there before the task, so that a worker finds it.
        text = record.text()
        room = " " * (len(text) // _ROOM)
        self.place.results.set(record.id, text + room, self._compute_unfinished_ttl(later))
        try:
            self.place.put(record.queue_name, record.body(), record.priority, at if later else None)
        except BaseException:
            self.place.results.delete(record.id)
            raise
        result = record.result(task)
        task_enqueued.send(type(self), task_result=result)
        return result

    def _compute_unfinished_ttl(self, later: float) -> float | None:
        ttl = _UNFINISHED + later
        return None if self.shmq.result_ttl is None or ttl > MAX_TTL else ttl

    def get_result(self, result_id: str) -> Any:
        """The result by its id. Raises TaskResultDoesNotExist."""
        return self.record(result_id).result()

    def record(self, result_id: str) -> Record:
        """The stored task by its id. Raises TaskResultDoesNotExist."""
        try:
            stored = self.place.results.get(result_id)
        except InvalidOption:  # no key of a table
            stored = None
        if stored is None:
            raise TaskResultDoesNotExist(result_id)
        return Record.of(stored)

    def store(self, record: Record) -> None:
        """Store what has become of a task. Raises what `Record.text` and ``Table.set`` raise."""
        ttl = self.shmq.result_ttl if record.is_finished else self._compute_unfinished_ttl(0.0)
        self.place.results.set(record.id, record.text(), ttl)
