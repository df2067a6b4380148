"""The messages of a worker that are not acknowledged yet, and why the tasks of some have failed."""

from __future__ import annotations

import contextlib
from typing import Any

from taskiq import TaskiqMessage, TaskiqMiddleware, TaskiqResult
from taskiq.exceptions import NoResultError

import shmq
from shmq.client.shared.blocking_calls import run_blocking
from shmq.model.failure import describe_error


class MessagesInHand(TaskiqMiddleware):
    """A middleware that knows the messages by their task IDs: taskiq reports failures by those.

    Taskiq has no way to return a message. What was not acknowledged when the worker ends returns
    to its queue then: here with the exception of its task.
    """

    def __init__(self) -> None:
        super().__init__()
        self._messages: dict[str, shmq.Message] = {}
        self._failures: dict[str, shmq.Failure] = {}

    def hold(self, task_id: str, message: shmq.Message) -> None:
        """Remember a message that is about to be delivered."""
        self._messages[task_id] = message
        self._failures.pop(task_id, None)  # that of an earlier message of the task

    def release(self, task_id: str, message: shmq.Message) -> None:
        """Forget a message that was acknowledged."""
        if self._messages.get(task_id) is message:
            del self._messages[task_id]
            self._failures.pop(task_id, None)

    def on_error(
        self,
        message: TaskiqMessage,
        result: TaskiqResult[Any],  # noqa: ARG002 - as taskiq calls it
        exception: BaseException,
    ) -> None:
        """Note why a task has failed, unless it only wants no result."""
        if message.task_id in self._messages and not isinstance(exception, NoResultError):
            self._failures[message.task_id] = describe_error(exception)

    async def shutdown(self) -> None:
        """Return the messages of failed tasks, when the worker's tasks have ended."""
        await run_blocking(self._return_failed)

    def _return_failed(self) -> None:
        # A task that still runs may fail, or be acknowledged, in the event loop meanwhile.
        while self._failures:
            task_id, failure = self._failures.popitem()
            message = self._messages.pop(task_id, None)
            if message is not None:
                with contextlib.suppress(shmq.ShmqError):  # its lease is over: it has returned
                    message.nack(0, error=failure)
        self._messages.clear()
