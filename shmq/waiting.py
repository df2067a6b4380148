"""The POSIX semaphores on which a queue's waiters sleep.

They only wake: who may have what is decided in the segment, so a lost or a superfluous
post costs at most one slice of a wait. They are named by the queue's id, not by its
name, so that a new queue of an old name never shares them with waiters of the old one.

posix_ipc makes, finds and removes them. The sleep itself is the core's sem_clockwait:
posix_ipc's timeouts, like sem_timedwait's, run on the wall clock, and would stretch if
that were set back.
"""

from __future__ import annotations

import contextlib
import errno

import posix_ipc

__all__ = ["make_semaphores", "remove_semaphores", "semaphore_names"]


def semaphore_names(namespace: str, queue_id: int) -> tuple[str, str]:
    """The names of a queue's not_empty and not_full."""
    stem = f"/shmq@{namespace}@{queue_id:016x}"
    return f"{stem}.not_empty", f"{stem}.not_full"


def make_semaphores(namespace: str, queue_id: int) -> tuple[str, str]:
    """Make both, for this user alone. Raises OSError(ENOSPC) if there is no space."""
    names = semaphore_names(namespace, queue_id)
    for name in names:
        try:
            posix_ipc.Semaphore(name, posix_ipc.O_CREX, mode=0o600, initial_value=0).close()
        except posix_ipc.ExistentialError:
            continue
        except posix_ipc.Error as error:
            raise OSError(errno.ENOSPC, f"cannot make the semaphore {name}: {error}") from error
    return names


def remove_semaphores(namespace: str, queue_id: int) -> None:
    """Remove both, as far as they exist."""
    for name in semaphore_names(namespace, queue_id):
        with contextlib.suppress(posix_ipc.ExistentialError):
            posix_ipc.unlink_semaphore(name)
