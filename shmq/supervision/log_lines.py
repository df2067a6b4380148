"""Logging of supervisors and their processes to stderr, if nothing else is configured."""

from __future__ import annotations

import logging

__all__ = ["show_on_stderr"]

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
