"""Sends the acknowledgements that clients have buffered, in time."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import Callable

from shmq.errors import ShmqError
from shmq.fork_safe import new_lock
from shmq.native import _clock as time
from shmq.native import _core

#: How often the flusher looks for acknowledgements to send, in seconds, and after how many looks
#: without any it sleeps until it is woken.
_ROUND = 0.005
_IDLE_ROUNDS = 100


class _AckFlusher(_core.AckFlusher):
    """A thread that sends buffered acknowledgements which no call has sent.

    A consumer sends them in batches during its calls, and acknowledgements that ride leave with the
    next request of their handle. If that call is late because the application works on a message,
    the flusher sends them within 10 ms. It sleeps while there are none.
    """

    def __init__(self) -> None:
        self._all: weakref.WeakSet[_core.Acks] = weakref.WeakSet()
        self._lock = new_lock()
        self.renew()

    def renew(self) -> None:
        """Start again, also in the child of a fork, which lacks the thread."""
        self._wakeup = threading.Event()
        self._thread: threading.Thread | None = None
        self.awake = False

    def add(self, acks: _core.Acks) -> None:
        """Send these from now on when they are due."""
        with self._lock:
            self._all.add(acks)

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

    def send_all(self) -> None:
        """Send everything that is buffered: the interpreter ends."""
        self._round(at_once=True)

    def _round(self, *, at_once: bool = False) -> bool:
        """Send what is due, or everything; whether anything was buffered."""
        with self._lock:
            gathering = [acks for acks in self._all if acks.count]
        for acks in gathering:
            if at_once or acks.is_due():
                with contextlib.suppress(ShmqError, OSError):
                    acks.send()
        return bool(gathering)


_flusher = _AckFlusher()
os.register_at_fork(after_in_child=_flusher.renew)
atexit.register(_flusher.send_all)


def new_acks(most: int, report: Callable[[_core.Answer], object] | None = None) -> _core.Acks:
    """Room for ``most`` acknowledgements, each sent at most 10 ms after it was buffered.

    Those with a ``report`` ride with the next request of their connection: see ``Wire.ride``. It is
    called with the answer of the server that refuses some.
    """
    acks = _core.Acks(most, _flusher, report)
    _flusher.add(acks)
    return acks
