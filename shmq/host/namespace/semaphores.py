"""The POSIX semaphores on which waiters of a queue sleep, two for each.

They only wake waiters: the segment decides which waiter gets what, so a lost or superfluous
sem_post costs at most one slice of a wait. They are named by the queue's id, not its name, so
that a new queue of an old name never shares them with waiters of the old one.

Their files are made and removed here, and the core sleeps on them:
``shmq/core/base/semaphore.h``. In the folder of a group it maps the files, because sem_open(3)
knows only /dev/shm, which is sticky.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from shmq.api.names import SHM, group_of
from shmq.errors import descriptors
from shmq.host.namespace.folder import file_path, file_prefix
from shmq.native import _core
from shmq.native.descriptors import open_file


def semaphore_names(namespace: str, queue_id: int) -> tuple[str, str]:
    """The names of a queue's not_empty and not_full; the paths of the files of a group's."""
    rest = f"@{queue_id:016x}"
    if group_of(namespace) is None:
        stem = f"/{file_prefix(namespace, '')}{rest}"
    else:
        stem = str(file_path(namespace, "sem.", rest))
    return f"{stem}.not_empty", f"{stem}.not_full"


def semaphore_file(name: str) -> str:
    """The path of the file of the semaphore of that name."""
    return f"{SHM}/sem.{name[1:]}" if name.rfind("/") == 0 else name


def make_semaphores(namespace: str, queue_id: int) -> tuple[str, str]:
    """Create both, for those who share the namespace. Raises OSError(ENOSPC) for lack of space."""
    names = semaphore_names(namespace, queue_id)
    for name in names:
        _make(semaphore_file(name))
    return names


def _make(path: str) -> None:
    """Create the file, which nobody opens before its queue is published.

    sem_open(3) would create it under another name first, and link it.
    """
    with contextlib.suppress(FileExistsError), descriptors:
        fd = open_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
        try:
            _core.fill_semaphore(fd)
        finally:
            os.close(fd)


def remove_semaphores(namespace: str, queue_id: int) -> None:
    """Remove both, if they exist."""
    for name in semaphore_names(namespace, queue_id):
        Path(semaphore_file(name)).unlink(missing_ok=True)
