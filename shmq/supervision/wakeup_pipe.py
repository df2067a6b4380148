"""Wakes a supervisor that waits for its processes."""

from __future__ import annotations

import contextlib
import os
import threading

__all__ = ["WakeupPipe"]


class WakeupPipe:
    """A pipe to wait on. Signal handlers and other threads may write to it."""

    def __init__(self) -> None:
        self._read_end, self._write_end = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._writing = threading.RLock()  # a signal may arrive during `give`

    def fileno(self) -> int:
        """The descriptor that is readable from `give` until `clear`."""
        return self._read_end

    def give(self) -> None:
        """Wake the waiter. After `close` it does nothing."""
        with self._writing, contextlib.suppress(BlockingIOError):
            if self._write_end >= 0:
                os.write(self._write_end, b"!")

    def clear(self) -> None:
        """Empty the pipe, before the waiter checks what has changed."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read_end, 4096):
                continue

    def close(self) -> None:
        """Close the pipe."""
        with self._writing:
            os.close(self._read_end)
            os.close(self._write_end)
            self._write_end = -1
