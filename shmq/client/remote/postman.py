"""Sends the acknowledgements that consumers have gathered, when nobody else does.

A consumer sends them in batches, as its calls go by. One whose next call is long in coming,
because its application works on a message, has them sent within 10 ms by the postman: a
thread of the process that sleeps while there are none.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref

from shmq.core import _core
from shmq.errors import ShmqError

__all__ = ["look_after"]

_ROUND = 0.005
_IDLE_ROUNDS = 100

_all: weakref.WeakSet[_core.Acks] = weakref.WeakSet()
_lock = threading.Lock()
_bell = threading.Event()
_thread: threading.Thread | None = None


def look_after(acks: _core.Acks) -> None:
    """See to it that what gathers there is sent."""
    with _lock:
        _all.add(acks)


def _ring() -> None:
    """Acknowledgements gather, and the postman sleeps."""
    global _thread
    _core.set_postman(True)
    if _thread is None:
        _thread = threading.Thread(target=_walk, name="shmq postman", daemon=True)
        _thread.start()
    _bell.set()


def _walk() -> None:
    while True:
        _bell.wait()
        _bell.clear()
        idle = 0
        while idle < _IDLE_ROUNDS:
            time.sleep(_ROUND)
            idle = 0 if _round() else idle + 1
        _core.set_postman(False)
        _round()  # what began to gather just before


def _round() -> bool:
    """Whether anything had gathered."""
    found = False
    with _lock:
        gathering = [acks for acks in _all if acks.count]
    for acks in gathering:
        found = True
        if acks.is_due():
            with contextlib.suppress(ShmqError, OSError):
                acks.send()
    return found


def _in_child() -> None:
    global _thread, _lock, _bell
    _thread, _lock, _bell = None, threading.Lock(), threading.Event()
    _core.set_postman(False)


_core.install_postman(_ring)
os.register_at_fork(after_in_child=_in_child)
