"""How long the calling thread waits for locks: a thread that serves many waits little for one."""

from __future__ import annotations

from shmq.native import _core, _group, _stream

__all__ = ["limit_lock_waits"]


def limit_lock_waits(seconds: float) -> None:
    """From now on this thread waits so long for a lock, then LockTimeout is raised; 0: as others.

    It holds for the locks of queues, of partitions and of groups, whatever the timeout of the
    operation is.
    """
    for module in (_core, _stream, _group):
        module.set_patience(seconds)
