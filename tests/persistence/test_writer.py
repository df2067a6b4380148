"""The writer as it runs: threads, queues that come and go, its stop, its death."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import random
import signal
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import shmq
from shmq.persistence.catalog import catalog, segment_name, snapshot_name
from shmq.persistence.directory import DataDirectory
from shmq.persistence.disk import Disk
from shmq.persistence.sizes import Sizes
from shmq.persistence.writer import Writer
from tests.persistence.chain import chain
from tests.persistence.faults import FailingDisk
from tests.processes.tools import PATIENCE, eventually, process

SMALL = Sizes(segment=256 << 10, ahead=16 << 10, commit=64 << 10, chunk=64 << 10)


@contextlib.contextmanager
def writing(namespace: str, disk: Disk, sizes: Sizes = SMALL) -> Iterator[Writer]:
    """A writer that runs in a thread of this process."""
    directory = DataDirectory(namespace, disk)
    writer = Writer(namespace, directory, sizes)
    thread = threading.Thread(target=writer.run)
    thread.start()
    try:
        yield writer
    finally:
        writer.stop()
        thread.join(PATIENCE)
        directory.close()
        assert not thread.is_alive()


def synced(queue: shmq.Queue, writer: Writer | None = None) -> None:
    """Return once all that was put is on disk, and all that was settled, too."""

    def is_so() -> bool:
        stats = queue.stats()
        return stats.journal_lag == 0 and stats.journal_waiting == 0

    eventually(is_so, "all is on disk")


def sequences(disk: Disk, queue: str = "q") -> list[int]:
    return sorted(chain(disk, queue))
