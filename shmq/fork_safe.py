"""Locks that a forked child can use, no matter which thread of its parent held them.

A child has a copy of each lock of its parent, but only the thread that forked. A lock that another
thread held at that moment would never be released.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

#: Renewed in the child of a fork.
_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def new_lock() -> threading.RLock:
    """Create a reentrant lock that is free in a forked child, unless the forking thread holds it.

    What it guards may be half-changed in the child: its owner renews that, or keeps it usable at
    every moment.
    """
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def _renew() -> None:
    for lock in list(_locks):
        if not lock._is_owned():
            lock._at_fork_reinit()


# Before the handlers of all modules that import this one, which may use their locks.
os.register_at_fork(after_in_child=_renew)
