"""What the workers log, as lines on stderr where the application has set up nothing else."""

from __future__ import annotations

import logging

__all__ = ["show_on_stderr"]

_FORM = "%(asctime)s shmq %(message)s"


def show_on_stderr() -> None:
    """Show what is logged, a line an event, unless the application's root logger does."""
    logger = logging.getLogger("shmq.workers")
    if logging.getLogger().handlers or logger.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(_FORM))
    logger.addHandler(handler)
    logger.propagate = False
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)
