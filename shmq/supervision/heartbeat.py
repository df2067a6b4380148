"""The heartbeat of a process for its supervisor."""

from __future__ import annotations

import mmap
import os
import threading
import time
from multiprocessing import reduction
from pathlib import Path
from typing import Any, Final

__all__ = ["BEAT", "Heartbeat", "is_stopped"]

#: How often a process beats, in seconds: several times within the shortest limit.
BEAT: Final = 0.2

_WORD: Final = 8


class Heartbeat:
    """A count in memory that a process shares with its supervisor.

    Only the process writes it. Can be pickled for a process that is being spawned.
    """

    def __init__(self, fd: int | None = None) -> None:
        self._fd = os.memfd_create("shmq-heartbeat", os.MFD_CLOEXEC) if fd is None else fd
        if fd is None:
            os.ftruncate(self._fd, _WORD)
        self._word = memoryview(mmap.mmap(self._fd, _WORD)).cast("Q")

    @property
    def count(self) -> int:
        """The number of beats so far."""
        return self._word[0]

    def beat(self) -> None:
        """Count one beat."""
        self._word[0] += 1

    def beat_from_a_thread(self) -> None:
        """Beat from a separate thread, for a process that may wait for a disk indefinitely."""

        def beat() -> None:
            while True:
                self.beat()
                time.sleep(BEAT)

        threading.Thread(target=beat, name="shmq heartbeat", daemon=True).start()

    def __reduce__(self) -> tuple[Any, ...]:
        return _attached, (reduction.DupFd(self._fd),)


def _attached(fd: Any) -> Heartbeat:
    return Heartbeat(fd.detach())


def is_stopped(pid: int) -> bool:
    """Whether a signal or a tracer has stopped the process: proc(5), stat."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[0] in {b"T", b"t"}
