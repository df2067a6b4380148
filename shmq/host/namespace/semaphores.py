"""The POSIX semaphores on which waiters sleep: two for each queue, and a process's wakeups.

They only wake waiters: the segment decides which waiter gets what, so a lost or superfluous
sem_post costs at most one slice of a wait. They are named by the queue's id, not its name, so
that a new queue of an old name never shares them with waiters of the old one.

A wakeup semaphore (its file is called "bell") serves a process that waits on many queues at once:
an event loop, a ``shmq.wait``. Its name has the process's number in the namespace, so that other
processes can remove it once that process is dead.

The core creates and removes them, and sleeps on them: ``shmq/core/base/semaphore.h``.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Final

from shmq.api.names import listed
from shmq.errors import descriptors
from shmq.native import _core

_WAKEUP: Final = re.compile(r"([0-9a-f]{1,16})\.[0-9]+")


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


def wakeup_prefix(namespace: str) -> str:
    """The prefix of the names of the namespace's wakeup semaphores."""
    return f"/shmq@{namespace}@bell."


def make_wakeup(namespace: str, process: int, number: int) -> str:
    """Create a wakeup semaphore of that process, for this user only; returns its name.

    The process must not have used the number before. Raises OSError(ENOSPC).
    """
    name = f"{wakeup_prefix(namespace)}{process:016x}.{number}"
    _make(name)
    return name


def wakeup_owner(namespace: str, file: str) -> int | None:
    """The number of the process whose wakeup semaphore the file is; None if it is none."""
    stem = f"sem.{wakeup_prefix(namespace)[1:]}"
    numbers = _WAKEUP.fullmatch(file.removeprefix(stem)) if file.startswith(stem) else None
    return None if numbers is None else int(numbers[1], 16)


def remove_wakeup(name: str) -> None:
    """Remove the semaphore, if it exists and belongs to this user."""
    with contextlib.suppress(PermissionError):
        _core.remove_semaphore(name)


def sweep_wakeups(namespace: str, is_alive: Callable[[int], bool]) -> None:
    """Remove the wakeup semaphores of dead processes; ``is_alive`` takes their numbers."""
    for entry in listed():
        process = wakeup_owner(namespace, entry)
        if process is not None and not is_alive(process):
            remove_wakeup(f"/{entry[4:]}")
