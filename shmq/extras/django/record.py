"""A task with its result, as it is stored: JSON."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from datetime import datetime
from typing import Any, Final

from django.utils.module_loading import import_string

from shmq.errors import InvalidOption
from shmq.extras.django.framework import Task, TaskError, TaskResult, TaskResultStatus

_STATES: Final = frozenset(TaskResultStatus.values)


@dataclasses.dataclass(kw_only=True)
class Record:
    """A task that was enqueued, and what has become of it. Times are texts of ISO 8601."""

    id: str
    #: Where the task is found: ``module.name``.
    task: str
    backend: str
    queue_name: str
    priority: int
    run_after: str | None
    args: list[Any]
    kwargs: dict[str, Any]
    enqueued_at: str
    status: str = TaskResultStatus.READY.value
    started_at: str | None = None
    last_attempted_at: str | None = None
    finished_at: str | None = None
    #: The class of each error, and its traceback.
    errors: list[list[str]] = dataclasses.field(default_factory=list)
    worker_ids: list[str] = dataclasses.field(default_factory=list)
    return_value: Any = None

    @classmethod
    def of(cls, stored: Any) -> Record:
        """The record of a message's body, or of `text`. Raises :class:`~shmq.InvalidOption`."""
        if isinstance(stored, str):
            with contextlib.suppress(ValueError):
                stored = json.loads(stored)
        if not isinstance(stored, dict):
            raise InvalidOption(f"a task is a map, and not a {type(stored).__name__}")
        names = {field.name for field in dataclasses.fields(cls)}
        try:
            made = cls(**{name: value for name, value in stored.items() if name in names})
        except TypeError as error:
            raise InvalidOption(f"the map is not a task: {error}") from None
        made.check()
        return made

    def check(self) -> None:
        """Raise :class:`~shmq.InvalidOption` for a value that no task has."""
        for name in ("id", "task", "backend", "queue_name", "enqueued_at", "status"):
            if not isinstance(getattr(self, name), str):
                raise InvalidOption(f"the task's {name} is {getattr(self, name)!r:.80}, and no str")
        if self.status not in _STATES:
            raise InvalidOption(f"the task's status is {self.status[:80]!r}")
        if not isinstance(self.args, list) or not isinstance(self.kwargs, dict):
            raise InvalidOption("the task's args are no list, or its kwargs no map")
        if not isinstance(self.priority, int):
            raise InvalidOption(f"the task's priority is {self.priority!r:.80}")

    def body(self) -> dict[str, Any]:
        """The values for a message."""
        return dataclasses.asdict(self)

    def text(self) -> str:
        """The values as JSON in ASCII. Raises TypeError, ValueError and RecursionError.

        A table's msgpack holds neither integers over 64 bits nor lone surrogates. A result may have
        NaN and infinities, which are not JSON: only `of` reads the text.
        """
        return json.dumps(self.body())

    @property
    def is_finished(self) -> bool:
        """Whether the task has succeeded or failed."""
        return self.status in {TaskResultStatus.FAILED, TaskResultStatus.SUCCESSFUL}

    def load(self) -> Any:
        """The task itself, with its priority, queue and time.

        Raises ImportError, and :class:`~shmq.InvalidOption` if what it names is not a task.
        """
        found = import_string(self.task)
        if not isinstance(found, Task):
            raise InvalidOption(f"{self.task} is not a task, but a {type(found).__name__}")
        return found.using(
            priority=self.priority,
            queue_name=self.queue_name,
            run_after=_time(self.run_after),
            backend=self.backend,
        )

    def result(self, task: Any = None) -> Any:
        """The result as Django shows it, of the task that `load` has loaded."""
        made = TaskResult(
            task=self.load() if task is None else task,
            id=self.id,
            status=TaskResultStatus(self.status),
            enqueued_at=_time(self.enqueued_at),
            started_at=_time(self.started_at),
            finished_at=_time(self.finished_at),
            last_attempted_at=_time(self.last_attempted_at),
            args=self.args,
            kwargs=self.kwargs,
            backend=self.backend,
            errors=[
                TaskError(exception_class_path=path, traceback=trace) for path, trace in self.errors
            ],
            worker_ids=list(self.worker_ids),
        )
        object.__setattr__(made, "_return_value", self.return_value)
        return made


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
