"""A log that a client cannot flood with its mistakes."""

from __future__ import annotations

import logging
import time
from typing import Any, Final

__all__ = ["RateLimitedLog"]

#: How long one line of a kind suppresses further ones, in seconds.
PAUSE: Final = 1.0


class RateLimitedLog:
    """Logs at most one line of each kind a second, and how many were left out since."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._kinds: dict[str, tuple[float, int]] = {}

    def warning(self, form: str, *values: Any) -> None:
        """Log a warning as a logger does; the kind is the ``form``."""
        until, left_out = self._kinds.get(form, (0.0, 0))
        now = time.monotonic()
        if now < until:
            self._kinds[form] = (until, left_out + 1)
            return
        self._kinds[form] = (now + PAUSE, 0)
        more = f" (and {left_out} more since the last such line)" if left_out else ""
        self._log.warning(form + "%s", *values, more)
