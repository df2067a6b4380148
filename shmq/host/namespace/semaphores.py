"""The POSIX semaphores on which waiters of a queue sleep, two for each.

They only wake waiters: the segment decides which waiter gets what, so a lost or superfluous
sem_post costs at most one slice of a wait. They are named by the queue's id, not its name, so
that a new queue of an old name never shares them with waiters of the old one.

The core creates and removes them, and sleeps on them: ``shmq/core/base/semaphore.h``.
"""

from __future__ import annotations

from shmq.errors import descriptors
from shmq.native import _core


def semaphore_names(namespace: str, queue_id: int) -> tuple[str, str]:
    """The names of a queue's not_empty and not_full."""
    stem = f"/shmq@{namespace}@{queue_id:016x}"
    return f"{stem}.not_empty", f"{stem}.not_full"


def make_semaphores(namespace: str, queue_id: int) -> tuple[str, str]:
    """Create both, for this user only. Raises OSError(ENOSPC) if there is not enough space."""
    names = semaphore_names(namespace, queue_id)
    for name in names:
        _make(name)
    return names


def _make(name: str) -> None:
    with descriptors:
        _core.make_semaphore(name)


def remove_semaphores(namespace: str, queue_id: int) -> None:
    """Remove both, if they exist."""
    for name in semaphore_names(namespace, queue_id):
        _core.remove_semaphore(name)
