"""Limits how long a thread waits for locks: a thread that serves many must not wait for one."""

from __future__ import annotations

from shmq.native import _core, _group, _stream

__all__ = ["limit_lock_waits"]


def limit_lock_waits(seconds: float) -> None:
    """Raise LockTimeout in this thread after so many seconds of waiting for a lock; 0: default.

    This applies to the locks of queues, partitions and groups, whatever the timeout of the
    operation is.
    """
    for module in (_core, _stream, _group):
        module.set_patience(seconds)
