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

from shmq.host.namespace.namespace import Namespace
from tests.support.layout import place_of

ROOT = Path(__file__).resolve().parents[2]
SHM = Path("/dev/shm")

#: The bit of a lock's word that says that others sleep for it.
AWAITED = 1

_HOLD = """
import os, signal, sys
from pathlib import Path
from tests.support.stopped import Lock
lock = Lock(Path(sys.argv[1]), int(sys.argv[2]))
lock.take()
os.kill(os.getpid(), signal.SIGSTOP)
lock.write(0)
"""

#: What `stopped_inside` runs to hold the registry lock of a namespace.
IN_REGISTRY = """
import os, signal, sys
from shmq.host.namespace.namespace import Namespace
with Namespace.of(sys.argv[1]).locked():
    os.kill(os.getpid(), signal.SIGSTOP)
"""


@dataclass(frozen=True)
class Lock:
    """A lock of the core, a struct shmq_mutex, in a file of shared memory."""

    path: Path
    offset: int

    @contextlib.contextmanager
    def memory(self) -> Iterator[memoryview]:
        """The bytes of its word."""
        with self.path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as whole:
            view = memoryview(whole)[self.offset : self.offset + 8]
            try:
                yield view
            finally:
                view.release()

    @property
    def namespace(self) -> Namespace:
        """The namespace of the file."""
        return Namespace.of(self.path.name.split("@")[1])

    def write(self, word: int) -> None:
        """Overwrite the word."""
        with self.memory() as bytes_:
            bytes_[:] = word.to_bytes(8, sys.byteorder)

    def holder(self) -> int:
        """The number of the process that holds it; 0 if none."""
        with self.memory() as bytes_:
            return int.from_bytes(bytes_, sys.byteorder) >> 1

    def take(self) -> None:
        """Take it for this process, from nobody."""
        number = self.namespace.processes.own_number()
        assert not self.holder()
        self.write(number << 1)

    @contextlib.contextmanager
    def held_by_stopped(self) -> Iterator[subprocess.Popen[bytes]]:
        """A stopped process that holds the lock; it is killed at the end."""
        with stopped_inside(_HOLD, self.path, self.offset) as process:
            yield process


def dead_process(namespace: str) -> int:
    """The number of a process of the namespace that is dead."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writer, str(Namespace.of(namespace).processes.own_number()).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as told:
        return int(told.read())


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
