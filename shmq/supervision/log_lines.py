"""What supervisors and their processes log, as lines on stderr where nothing else is set up."""

from __future__ import annotations

import logging

__all__ = ["show_on_stderr"]

_FORM = "%(asctime)s shmq %(message)s"


def show_on_stderr(name: str, level: int = logging.INFO) -> None:
    """Show what the logger ``name`` is told, a line an event, unless the root logger does.

    The ``level`` is for a logger that has none yet.
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
