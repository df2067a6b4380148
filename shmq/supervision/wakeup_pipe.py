"""Wakes a supervisor that waits for its processes."""

from __future__ import annotations

import contextlib
import os
import threading

__all__ = ["WakeupPipe"]


class WakeupPipe:
    """A pipe to wait on. Signal handlers and other threads may give it a nudge."""

    def __init__(self) -> None:
        self._bell, self._ring = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._ringing = threading.RLock()  # a signal may come while one is told of

    def fileno(self) -> int:
        """What is readable after a nudge, until it is cleared."""
        return self._bell

    def give(self) -> None:
        """Have the one who waits look. After `close` it does nothing."""
        with self._ringing, contextlib.suppress(BlockingIOError):
            if self._ring >= 0:
                os.write(self._ring, b"!")

    def clear(self) -> None:
        """The one who waited looks now."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._bell, 4096):
                continue

    def close(self) -> None:
        """Nobody waits any more."""
        with self._ringing:
            os.close(self._bell)
            os.close(self._ring)
            self._ring = -1
