"""Runs one task, and stores what has become of it."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import traceback
from typing import Any, Final

from django.db import close_old_connections, reset_queries
from django.utils import timezone

import shmq
from shmq.extras.django.backend import ShmqBackend
from shmq.extras.django.framework import (
    TaskContext,
    TaskResultDoesNotExist,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from shmq.extras.django.record import Record

log = logging.getLogger("shmq.workers")

#: The longest id of a worker that Django stores.
_LONGEST_ID: Final = 64


class WorkerDied(Exception):
    """Each process that began the task has died with it: it was killed, or ran out of time."""


def run(backend: ShmqBackend, message: shmq.Message) -> None:
    """Run the task of a message. Raises :class:`~shmq.Reject` for one that cannot be run."""
    try:
        given = Record.of(message.body)
    except shmq.ShmqError as error:
        raise reject(message, error, backend) from None
    record = _load_known(backend, given)
    if record.status == TaskResultStatus.SUCCESSFUL or (
        record.is_finished and message.delivery_count > 1
    ):
        return  # a process died between its end and its acknowledgement
    if record.is_finished:
        record = given  # a dead letter that was sent back: it starts again
    try:
        task = record.load()
    except Exception as error:
        _record_failure(backend, record, error)
        raise shmq.Reject(f"task {record.task} cannot be loaded: {error}") from error
    if message.delivery_count > backend.shmq.max_attempts:
        why = f": {message.last_error}" if message.last_error else ""
        died = WorkerDied(f"{backend.shmq.max_attempts} processes have died with it{why}")
        _record_failure(backend, record, died)
        _send_signal(backend, record, task)
        raise shmq.Reject(str(died))
    _execute(backend, record, task)


def reject(message: shmq.Message, error: Exception, *backends: ShmqBackend) -> shmq.Reject:
    """The rejection of a message that none of the backends can read.

    If one of them has the result of its task, the task has failed with the error.
    """
    body = message.body
    task_id = body.get("id") if isinstance(body, dict) else None
    for backend in backends:
        if not isinstance(task_id, str):
            break
        with contextlib.suppress(TaskResultDoesNotExist, shmq.InvalidOption):
            record = backend.record(task_id)
            if not record.is_finished:
                _record_failure(backend, record, error)
            break
    return shmq.Reject(str(error))


def _load_known(backend: ShmqBackend, given: Record) -> Record:
    """What is stored of the task; if its time has expired, what the message has of it."""
    try:
        return backend.record(given.id)
    except (TaskResultDoesNotExist, shmq.InvalidOption):
        return given


def _execute(backend: ShmqBackend, record: Record, task: Any) -> None:
    record.status = TaskResultStatus.RUNNING.value
    record.last_attempted_at = timezone.now().isoformat()
    record.started_at = record.started_at or record.last_attempted_at
    record.worker_ids.append(f"{socket.gethostname()[: _LONGEST_ID - 12]}-{os.getpid()}")
    backend.store(record)
    result = record.result(task)
    task_started.send(sender=type(backend), task_result=result)
    try:
        record.return_value = _call(task, result)
    except KeyboardInterrupt:
        raise  # a second signal: the task is delivered again
    except BaseException as error:  # noqa: BLE001 - SystemExit, too: it is the task's failure
        _record_failure(backend, record, error)
        log.info("task %s %s failed: %s", record.task, record.id, error)
    else:
        record.status = TaskResultStatus.SUCCESSFUL.value
        record.finished_at = timezone.now().isoformat()
        _store(backend, record)
    _send_signal(backend, record, task)


def _call(task: Any, result: Any) -> Any:
    """What the task returns, as JSON has it."""
    context = (TaskContext(task_result=result),) if task.takes_context else ()
    _renew_databases()
    try:
        return normalize_json(task.call(*context, *result.args, **result.kwargs))
    finally:
        _renew_databases()


def _renew_databases() -> None:
    """What Django does between two requests: connections that are too old or broken are closed."""
    reset_queries()
    close_old_connections()


def _record_failure(backend: ShmqBackend, record: Record, error: BaseException) -> None:
    kind = type(error)
    trace = "".join(traceback.format_exception(error))
    record.errors.append([f"{kind.__module__}.{kind.__qualname__}", trace])
    record.status = TaskResultStatus.FAILED.value
    record.finished_at = timezone.now().isoformat()
    _store(backend, record)


def _store(backend: ShmqBackend, record: Record) -> None:
    """Store the end of a task; what cannot be stored has failed, and is not run again."""
    try:
        backend.store(record)
    except (shmq.ShmqError, TypeError, ValueError, RecursionError) as error:
        log.exception("the result of task %s %s cannot be stored", record.task, record.id)
        record.return_value, record.status = None, TaskResultStatus.FAILED.value
        kind = type(error)
        record.errors = [[f"{kind.__module__}.{kind.__qualname__}", str(error)]]
        with contextlib.suppress(shmq.ShmqError):
            backend.store(record)


def _send_signal(backend: ShmqBackend, record: Record, task: Any) -> None:
    """Send the signal of the task's end."""
    task_finished.send(type(backend), task_result=record.result(task))
