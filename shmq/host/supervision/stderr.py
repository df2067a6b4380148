"""What supervisors and their processes write to stderr: the log, and stacks on demand."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import signal
from typing import Final

from shmq.host.supervision.audit import escaped, rfc3339
from shmq.host.supervision.signals import SHOW_STACK

#: The forms that a line of the log may have.
LOG_FORMATS: Final = ("text", "json")

_STDERR: Final = 2
_FORM = "%(asctime)s shmq %(message)s"
_VARIABLE: Final = "SHMQ_LOG_FORMAT"


def default_log_format() -> str:
    """The form that ``SHMQ_LOG_FORMAT`` names; ``text`` without it."""
    return os.environ.get(_VARIABLE) or LOG_FORMATS[0]


def default_log_level() -> str:
    """The lowest level that ``SHMQ_LOG`` names; ``info`` without it."""
    return os.environ.get("SHMQ_LOG") or "info"


def set_log_format(form: str) -> None:
    """Write the log in this form from now on, in this process and those that it starts."""
    os.environ[_VARIABLE] = form


class JsonFormatter(logging.Formatter):
    """An event of the log as one line of JSON, with the fields of an audit event as keys."""

    def format(self, record: logging.LogRecord) -> str:
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


class _JournalFormatter(logging.Formatter):
    """Lines for the journal of systemd, which has the time: the priority first, sd-daemon(3)."""

    def __init__(self, form: logging.Formatter) -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        levels = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
        priority = next((number for level, number in levels if record.levelno >= level), 7)
        return "\n".join(f"<{priority}>{line}" for line in self._form.format(record).split("\n"))


def _is_journal() -> bool:
    """Whether stderr is the journal: systemd.exec(5), ``JOURNAL_STREAM``."""
    try:
        status = os.fstat(_STDERR)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def _make_formatter() -> logging.Formatter:
    journal = _is_journal()
    text = logging.Formatter("%(message)s" if journal else _FORM)
    form = JsonFormatter() if default_log_format() == "json" else text
    return _JournalFormatter(form) if journal else form


def show_on_stderr(name: str, level: int = logging.INFO) -> None:
    """Show the events of the logger ``name`` on stderr, unless it or the root logger has handlers.

    The ``level`` is set if the logger has none yet.
    """
    logger = logging.getLogger(name)
    if logging.getLogger().handlers or logger.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(_make_formatter())
    logger.addHandler(handler)
    logger.propagate = False
    if logger.level == logging.NOTSET:
        logger.setLevel(level)


def show_stack_on_demand() -> None:
    """Write the stacks to stderr at `SHOW_STACK` from now on, whatever the threads do.

    One that was blocked since the process was started is delivered now.
    """
    with contextlib.suppress(OSError, ValueError, AttributeError):  # stderr is closed
        faulthandler.register(SHOW_STACK, file=_STDERR, all_threads=True)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (SHOW_STACK,))
