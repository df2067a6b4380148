"""What supervisors and their processes write to stderr: the log, and stacks on demand."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import signal
from typing import Final

__all__ = ["SHOW_STACK", "show_on_stderr", "show_stack_on_demand"]

#: The signal at which a process writes the stacks of its threads to stderr.
SHOW_STACK: Final = signal.SIGUSR2

_STDERR: Final = 2
_FORM = "%(asctime)s shmq %(message)s"


def show_on_stderr(name: str, level: int = logging.INFO) -> None:
    """Show the events of the logger ``name`` on stderr, unless it or the root logger has handlers.

    The ``level`` is set if the logger has none yet.
    """
    logger = logging.getLogger(name)
    if logging.getLogger().handlers or logger.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(_FORM))
    logger.addHandler(handler)
    logger.propagate = False
    if logger.level == logging.NOTSET:
        logger.setLevel(level)


def show_stack_on_demand() -> None:
    """Write the stacks to stderr at `SHOW_STACK` from now on, whatever the threads do."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # there is no stderr
        faulthandler.register(SHOW_STACK, file=_STDERR, all_threads=True)
