"""Sends the acknowledgements that consumers have collected, in case their next call is late.

A consumer sends them in batches during its calls. If its next call is late because the application
works on a message, the flusher sends them within 10 ms: a thread of the process that sleeps while
there are none.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref

from shmq.errors import ShmqError
from shmq.native import _core

__all__ = ["new_acks"]

_ROUND = 0.005
_IDLE_ROUNDS = 100


class _AckFlusher(_core.AckFlusher):
    """The thread, and the consumers' buffers that it sends."""

    def __init__(self) -> None:
        self._all: weakref.WeakSet[_core.Acks] = weakref.WeakSet()
        self.renew()

    def renew(self) -> None:
        """Start anew, also in the child of a fork, which lacks the thread."""
        self._lock = threading.Lock()
        self._wakeup = threading.Event()
        self._thread: threading.Thread | None = None
        self.awake = False

    def new_acks(self, most: int) -> _core.Acks:
        """Room for ``most`` acknowledgements, each sent at most 10 ms after it was collected."""
        acks = _core.Acks(most, self)
        with self._lock:
            self._all.add(acks)
        return acks

    def wake(self) -> None:
        """Wake the flusher, because acknowledgements are being collected."""
        self.awake = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._walk, name="shmq ack flusher", daemon=True)
            self._thread.start()
        self._wakeup.set()

    def _walk(self) -> None:
        wakeup = self._wakeup
        while True:
            wakeup.wait()
            wakeup.clear()
            idle = 0
            while idle < _IDLE_ROUNDS:
                time.sleep(_ROUND)
                idle = 0 if self._round() else idle + 1
            self.awake = False
            self._round()  # those collected just before

    def _round(self) -> bool:
        """Send what was collected; whether there was anything."""
        with self._lock:
            gathering = [acks for acks in self._all if acks.count]
        for acks in gathering:
            if acks.is_due():
                with contextlib.suppress(ShmqError, OSError):
                    acks.send()
        return bool(gathering)


_flusher = _AckFlusher()
new_acks = _flusher.new_acks
os.register_at_fork(after_in_child=_flusher.renew)
