"""The wakeups of processes: FIFOs on which an event loop, or a wait for many queues, sleeps.

They only wake: what a queue holds decides who gets what, so a lost or superfluous post costs at
most one slice of a wait. The path has the process's number in the namespace, so that other
processes can remove it once that process is dead. ``shmq/core/queue/wakeup.h`` has the rest.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from shmq.host.namespace.folder import file_prefix, folder_of, list_folder
from shmq.native.directories import new_file_mode

_NUMBERS: Final = re.compile(r"([0-9a-f]{1,16})\.[0-9]+")


def _stem(namespace: str) -> str:
    return f"{file_prefix(namespace, 'bell.')}@"


def wakeup_prefix(namespace: str) -> str:
    """The prefix of the paths of the namespace's wakeups."""
    return f"{folder_of(namespace)}/{_stem(namespace)}"


def make_wakeup(namespace: str, process: int, number: int) -> str:
    """Create a wakeup of that process, for those who share the namespace; returns its path.

    The process must not have used the number before. Raises OSError(ENOSPC).
    """
    path = f"{wakeup_prefix(namespace)}{process:016x}.{number}"
    mode = new_file_mode(path)
    os.mkfifo(path, 0o600)
    Path(path).chmod(mode)  # whatever the umask; no process opens it before it is announced
    return path


def wakeup_owner(namespace: str, file: str) -> int | None:
    """The number of the process whose wakeup the file is; None if it is not one."""
    stem = _stem(namespace)
    numbers = _NUMBERS.fullmatch(file.removeprefix(stem)) if file.startswith(stem) else None
    return None if numbers is None else int(numbers[1], 16)


def remove_wakeup(path: str) -> None:
    """Remove the file, if it exists and this user may."""
    with contextlib.suppress(FileNotFoundError, PermissionError):
        Path(path).unlink()


def sweep_wakeups(namespace: str, is_alive: Callable[[int], bool]) -> None:
    """Remove the wakeups of dead processes; ``is_alive`` takes their numbers."""
    for entry in list_folder(namespace):
        process = wakeup_owner(namespace, entry)
        if process is not None and not is_alive(process):
            remove_wakeup(str(folder_of(namespace) / entry))
