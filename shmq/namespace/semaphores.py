"""The POSIX semaphores on which waiters sleep: two of each queue, and a process's bells.

They only wake: who may have what is decided in the segment, so a lost or a superfluous
post costs at most one slice of a wait. They are named by the queue's id, not by its
name, so that a new queue of an old name never shares them with waiters of the old one.

A bell is for who waits on many queues, or for many at once: an event loop, a
``shmq.wait``. It bears its process's number in the namespace, so that whoever finds that
process dead can remove it.

posix_ipc makes, finds and removes them. The sleep itself is the core's sem_clockwait:
posix_ipc's timeouts, like sem_timedwait's, run on the wall clock, and would stretch if
that were set back.
"""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Callable
from typing import Final

import posix_ipc

from shmq.api.names import listed
from shmq.errors import descriptors

__all__ = [
    "bell_owner",
    "bell_stem",
    "make_bell",
    "make_semaphores",
    "remove_bell",
    "remove_semaphores",
    "semaphore_names",
    "sweep_bells",
]

_BELL: Final = re.compile(r"([0-9a-f]{1,16})\.[0-9]+")


def semaphore_names(namespace: str, queue_id: int) -> tuple[str, str]:
    """The names of a queue's not_empty and not_full."""
    stem = f"/shmq@{namespace}@{queue_id:016x}"
    return f"{stem}.not_empty", f"{stem}.not_full"


def make_semaphores(namespace: str, queue_id: int) -> tuple[str, str]:
    """Make both, for this user alone. Raises OSError(ENOSPC) if there is no space."""
    names = semaphore_names(namespace, queue_id)
    for name in names:
        _make(name)
    return names


def _make(name: str) -> None:
    try:
        with descriptors:
            posix_ipc.Semaphore(name, posix_ipc.O_CREX, mode=0o600, initial_value=0).close()
    except posix_ipc.ExistentialError:
        return
    except posix_ipc.Error as error:
        raise OSError(errno.ENOSPC, f"cannot make the semaphore {name}: {error}") from error


def remove_semaphores(namespace: str, queue_id: int) -> None:
    """Remove both, as far as they exist."""
    for name in semaphore_names(namespace, queue_id):
        with contextlib.suppress(posix_ipc.ExistentialError):
            posix_ipc.unlink_semaphore(name)


def bell_stem(namespace: str) -> str:
    """What the names of the namespace's bells begin with."""
    return f"/shmq@{namespace}@bell."


def make_bell(namespace: str, process: int, number: int) -> str:
    """Make a bell of that process, for this user alone, and return its name.

    The number is one that the process has not used. Raises OSError(ENOSPC).
    """
    name = f"{bell_stem(namespace)}{process:016x}.{number}"
    _make(name)
    return name


def bell_owner(namespace: str, file: str) -> int | None:
    """The number of the process whose bell that file of /dev/shm is; None if it is no bell."""
    stem = f"sem.{bell_stem(namespace)[1:]}"
    numbers = _BELL.fullmatch(file.removeprefix(stem)) if file.startswith(stem) else None
    return None if numbers is None else int(numbers[1], 16)


def remove_bell(name: str) -> None:
    """Remove it, if it is there and ours."""
    with contextlib.suppress(posix_ipc.ExistentialError, posix_ipc.PermissionsError):
        posix_ipc.unlink_semaphore(name)


def sweep_bells(namespace: str, is_alive: Callable[[int], bool]) -> None:
    """Remove the bells that dead processes have left; ``is_alive`` takes their numbers."""
    for entry in listed():
        process = bell_owner(namespace, entry)
        if process is not None and not is_alive(process):
            remove_bell(f"/{entry[4:]}")
