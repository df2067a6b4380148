"""The shared memory of a namespace, and how to lose it."""

from __future__ import annotations

import re
from pathlib import Path

from shmq.api.names import SHM


def files(namespace: str) -> list[Path]:
    """All files of the namespace in shared memory: segments, semaphores, its own file."""
    its = re.compile(rf"(\w+\.)?shmq@{re.escape(namespace)}(@.*)?")
    return sorted(path for path in SHM.iterdir() if its.fullmatch(path.name))


def lose(namespace: str) -> None:
    """Remove these files, as a reboot does. Attached processes keep their unlinked mappings."""
    for path in files(namespace):
        path.unlink(missing_ok=True)
