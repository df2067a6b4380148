"""Wakes a supervisor that waits for its processes."""

from __future__ import annotations

import contextlib
import os
import threading

__all__ = ["WakeupPipe"]


class WakeupPipe:
    """A pipe to wait on. Signal handlers and other threads may write to it."""

    def __init__(self) -> None:
        self._bell, self._ring = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._ringing = threading.RLock()  # a signal may arrive during `give`

    def fileno(self) -> int:
        """The descriptor that is readable from `give` until `clear`."""
        return self._bell

    def give(self) -> None:
        """Wake the waiter. After `close` it does nothing."""
        with self._ringing, contextlib.suppress(BlockingIOError):
            if self._ring >= 0:
                os.write(self._ring, b"!")

    def clear(self) -> None:
        """Empty the pipe, before the waiter checks what has changed."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._bell, 4096):
                continue

    def close(self) -> None:
        """Close the pipe."""
        with self._ringing:
            os.close(self._bell)
            os.close(self._ring)
            self._ring = -1
