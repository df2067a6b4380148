"""Processes stopped inside a critical section, and locks with damaged words."""

from __future__ import annotations

import contextlib
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.layout import place_of

__all__ = [
    "Lock",
    "lock_of_partition",
    "locks_of_group",
    "locks_of_queue",
    "stopped_inside",
]

ROOT = Path(__file__).resolve().parents[2]
SHM = Path("/dev/shm")

#: The size of glibc's mutex on x86-64; on aarch64 its beginning has the same layout.
MUTEX_BYTES = 40

_HOLD = """
import ctypes, mmap, os, signal, sys
with open(sys.argv[1], "r+b") as file:
    memory = mmap.mmap(file.fileno(), 0)
place = (ctypes.c_char * 40).from_buffer(memory, int(sys.argv[2]))
assert ctypes.CDLL(None).pthread_mutex_lock(place) == 0
os.kill(os.getpid(), signal.SIGSTOP)
assert ctypes.CDLL(None).pthread_mutex_unlock(place) == 0
"""


@dataclass(frozen=True)
class Lock:
    """A robust mutex in a file of shared memory."""

    path: Path
    offset: int

    @contextlib.contextmanager
    def memory(self) -> Iterator[memoryview]:
        """The bytes of the mutex, for reading and damaging."""
        with self.path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as whole:
            view = memoryview(whole)[self.offset : self.offset + MUTEX_BYTES]
            try:
                yield view
            finally:
                view.release()

    def write(self, at: int, word: int) -> None:
        """Overwrite the 32-bit word at byte ``at``."""
        with self.memory() as bytes_:
            bytes_[at : at + 4] = (word & 0xFFFFFFFF).to_bytes(4, sys.byteorder)

    def read(self, at: int) -> int:
        """The 32-bit word at byte ``at``."""
        with self.memory() as bytes_:
            return int.from_bytes(bytes_[at : at + 4], sys.byteorder)

    @contextlib.contextmanager
    def held_by_stopped(self) -> Iterator[subprocess.Popen[bytes]]:
        """A stopped process that holds the lock; it is killed at the end."""
        with stopped_inside(_HOLD, self.path, self.offset) as process:
            yield process


def locks_of_queue(namespace: str, queue: str) -> dict[str, Lock]:
    """The two locks of a queue, by side."""
    path = SHM / f"shmq@{namespace}@{queue}"
    return {
        "gets": Lock(path, place_of("lock").start),
        "puts": Lock(path, place_of("put_lock").start),
    }


def lock_of_partition(namespace: str, stream: str, partition: int = 0) -> Lock:
    """The lock for appends to a partition."""
    return Lock(
        SHM / f"log.shmq@{namespace}@{stream}@{partition}",
        place_of("lock", "shmq_log_header").start,
    )


def locks_of_group(namespace: str, group: str) -> list[Lock]:
    """The locks of all groups of that name."""
    found = SHM.glob(f"group.shmq@{namespace}@*@{group}")
    at = place_of("lock", "shmq_group_state_header").start
    return [Lock(path, at) for path in sorted(found)]


@contextlib.contextmanager
def stopped_inside(code: str, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs Python source until the source stops it; it is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"it ended with status {status}"
        yield process
    finally:
        process.kill()
        process.wait()
