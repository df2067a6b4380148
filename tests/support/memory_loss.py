"""Simulates a reboot: the memory of a namespace is lost, and recovered from its files."""

from __future__ import annotations

from pathlib import Path

from shmq.api.names import SHM
from shmq.disk.persistence.recovery import recover
from shmq.disk.storage.disk import Disk
from shmq.host.namespace.data_directory import DataDirectory


def lose_memory(namespace: str) -> None:
    """Remove the namespace's shared memory, as a reboot does."""
    for path in SHM.iterdir():
        if f"shmq@{namespace}@" in path.name and not path.name.startswith(("sem.", "bell.")):
            path.unlink(missing_ok=True)


def bring_back(namespace: str, folder: Path) -> None:
    """Recover the namespace from the files, as the start of a writer does."""
    directory = DataDirectory(namespace, Disk(folder))
    directory.ready()
    try:
        recover(directory)
    finally:
        directory.close()
