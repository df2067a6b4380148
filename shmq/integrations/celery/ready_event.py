"""A file descriptor that tells when queues have messages."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Sequence
from typing import Final

import shmq

__all__ = ["ReadyEvent"]

#: The longest wait before the thread looks whether it is still wanted, in seconds.
_SLICE: Final = 0.25
#: The pause between two looks at queues of a server, in seconds.
_PAUSE: Final = 0.02


class ReadyEvent:
    """Becomes readable once any of the queues has a message, until it is cleared.

    A thread waits; it does not survive a fork.
    """

    def __init__(self, queues: Sequence[shmq.Queue]) -> None:
        self._queues = list(queues)
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self._armed = threading.Event()
        self._armed.set()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="shmq-ready", daemon=True)
        self._thread.start()

    def fileno(self) -> int:
        """The descriptor."""
        return self._fd

    def clear(self) -> None:
        """Make it unreadable, until a queue has a message: at once, if one has."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._fd)
        self._armed.set()

    def close(self) -> None:
        """Close the descriptor; the thread ends soon after."""
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._fd)
        self._armed.set()

    def _run(self) -> None:
        while not self._closed:
            self._armed.wait()
            if self._ready():
                self._armed.clear()
                with self._lock:
                    if not self._closed:
                        os.eventfd_write(self._fd, 1)

    def _ready(self) -> bool:
        """Whether a queue has a message, or must be looked at for another reason."""
        try:
            return bool(shmq.wait(self._queues, _SLICE))
        except TypeError:  # queues of a server
            pass
        except shmq.ShmqError:
            return True
        try:
            if any(queue.qsize() for queue in self._queues):
                return True
        except shmq.ShmqError:
            return True
        time.sleep(_PAUSE)
        return False
