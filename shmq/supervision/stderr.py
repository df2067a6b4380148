"""What supervisors and their processes write to stderr: the log, and stacks on demand."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import signal
from typing import Final

from shmq.supervision.audit import escaped, rfc3339

__all__ = [
    "LOG_FORMATS",
    "SHOW_STACK",
    "JsonFormatter",
    "default_log_format",
    "set_log_format",
    "show_on_stderr",
    "show_stack_on_demand",
]

#: The signal at which a process writes the stacks of its threads to stderr.
SHOW_STACK: Final = signal.SIGUSR2

#: The forms that a line of the log may have.
LOG_FORMATS: Final = ("text", "json")

_STDERR: Final = 2
_FORM = "%(asctime)s shmq %(message)s"
_VARIABLE: Final = "SHMQ_LOG_FORMAT"


def default_log_format() -> str:
    """The form that ``SHMQ_LOG_FORMAT`` names; ``text`` without it."""
    return os.environ.get(_VARIABLE) or LOG_FORMATS[0]


def set_log_format(form: str) -> None:
    """Write the log in this form from now on, in this process and those that it starts."""
    os.environ[_VARIABLE] = form


class JsonFormatter(logging.Formatter):
    """An event of the log as one line of JSON, with the fields of an audit event as keys."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        line = {
            "time": rfc3339(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return escaped({**line, **getattr(record, "audit", {})})


def show_on_stderr(name: str, level: int = logging.INFO) -> None:
    """Show the events of the logger ``name`` on stderr, unless it or the root logger has handlers.

    The ``level`` is set if the logger has none yet.
    """
    logger = logging.getLogger(name)
    if logging.getLogger().handlers or logger.handlers:
        return
    handler = logging.StreamHandler()
    json = default_log_format() == "json"
    handler.setFormatter(JsonFormatter() if json else logging.Formatter(_FORM))
    logger.addHandler(handler)
    logger.propagate = False
    if logger.level == logging.NOTSET:
        logger.setLevel(level)


def show_stack_on_demand() -> None:
    """Write the stacks to stderr at `SHOW_STACK` from now on, whatever the threads do."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # there is no stderr
        faulthandler.register(SHOW_STACK, file=_STDERR, all_threads=True)
