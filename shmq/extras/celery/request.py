"""A task as Celery's worker handles it, with its failure for the message that is returned.

Celery settles a message without saying why: its worker's main process knows the exception of a task
that its pool has run, but rejects by the delivery tag alone.
"""

from __future__ import annotations

from typing import Any, Final

from celery.exceptions import Reject, TimeLimitExceeded
from celery.worker.request import ExceptionWithTraceback
from celery.worker.request import Request as CeleryRequest
from kombu.utils.encoding import safe_repr

from shmq.api.message import Failure
from shmq.extras.celery.channel import Message
from shmq.model.failure import describe_error

#: Lines of the frames of a traceback that are stored: the last ones.
_MOST_LINES: Final = 60


class Request(CeleryRequest):
    """A request that notes in its message why its task has failed, before it is settled."""

    def on_failure(self, exc_info: Any, *how: Any, **more: Any) -> Any:
        """Handle an exception of the task, or the death of its process."""
        self._note(_describe(exc_info))
        return super().on_failure(exc_info, *how, **more)

    def on_timeout(self, soft: bool, timeout: float) -> Any:
        """Handle the end of a time limit."""
        if not soft:
            self._note(describe_error(TimeLimitExceeded(timeout)))
        return super().on_timeout(soft, timeout)

    def _note(self, failure: Failure) -> None:
        if isinstance(self.message, Message):
            self.message.failure = failure


def _describe(exc_info: Any) -> Failure:
    """The failure of billiard's exception, whose traceback is text if it comes from the pool."""
    error = exc_info.exception
    if isinstance(error, ExceptionWithTraceback):
        error = error.exc
    if isinstance(error, Reject) and error.reason not in (None, ""):
        error = error.reason
    frames = [line for line in str(exc_info.traceback).splitlines() if line.startswith("  ")]
    trace = "\n".join(frames[-_MOST_LINES:])
    if isinstance(error, BaseException):
        return describe_error(error, trace)
    return Failure("", error if isinstance(error, str) else safe_repr(error), trace)
