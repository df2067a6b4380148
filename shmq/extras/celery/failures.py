"""Failures of tasks that no worker runs to an end, stored for those who wait for their results.

Celery stores nothing for a message that its worker cannot read, and does not know of the one that
its queue makes a dead letter. Only a process that uses Celery may import this module.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from celery import current_app, signals
from celery.app.task import Context, Task

log = logging.getLogger("shmq")


def _store_rejected(message: Any, exc: Exception | None, **_: Any) -> None:
    """Store why the worker has rejected a message: its content type, a header without a meaning."""
    if exc is not None:
        store_failure(message, exc)


signals.task_rejected.connect(_store_rejected)

if Task.Request == "celery.worker.request:Request":  # the application has no class of its own
    Task.Request = "shmq.extras.celery.request:Request"


def store_failure(message: Any, error: Exception) -> None:
    """Store the failure of the task of a message of kombu, unless it ignores its result.

    Its chord, its chain and its errbacks learn of it, if the message can be read. The task's ID is
    in the headers; a message without one is not a task of Celery's protocol 2.
    """
    task_id = message.headers.get("id")
    if not isinstance(task_id, str) or not isinstance(message.headers.get("task"), str):
        return
    try:
        current_app.backend.mark_as_failure(
            task_id, error, request=_make_context(message), store_result=_is_stored(message.headers)
        )
    except Exception:  # the message is settled already, and the worker has others to run
        log.exception("the failure of task %s is not stored: %r", task_id, error)


def _make_context(message: Any) -> Context:
    properties = {key: message.properties.get(key) for key in ("correlation_id", "reply_to")}
    return Context({**message.headers, **_read_embedded(message), **properties})


def _read_embedded(message: Any) -> Mapping[str, Any]:
    """The chord, chain and errbacks of a task; nothing of a body that cannot be read."""
    try:
        _, _, embedded = message.payload
    except Exception:  # noqa: BLE001 - of any serializer
        return {}
    return embedded if isinstance(embedded, Mapping) else {}


def _is_stored(headers: Mapping[str, Any]) -> bool:
    """Whether the task stores its errors: by its call, or else by its declaration."""
    task = current_app.tasks.get(headers["task"])
    ignored = headers.get("ignore_result")
    if ignored is None:
        ignored = task is not None and task.ignore_result
    return not ignored or (task is not None and task.store_errors_even_if_ignored)
