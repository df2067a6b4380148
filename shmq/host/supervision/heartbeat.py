"""The heartbeat of a process for its supervisor."""

from __future__ import annotations

import mmap
import os
import threading
from multiprocessing import reduction
from typing import Any, Final

from shmq.lazy_imports import late_imports
from shmq.native import _clock as time
from shmq.native._core import reserve_standard

#: How often a process beats, in seconds: several times within the shortest limit.
BEAT: Final = 1.0

_WORD: Final = 8


class SharedNumbers:
    """Numbers in memory that several processes share, 64 bits each; ``NAME`` is that of the memory.

    Can be pickled for a process that is being spawned.
    """

    NAME = "shmq-numbers"

    def __init__(self, count: int = 1, fd: int | None = None) -> None:
        reserve_standard()
        self._fd = os.memfd_create(self.NAME, os.MFD_CLOEXEC) if fd is None else fd
        if fd is None:
            os.ftruncate(self._fd, count * _WORD)
        self.numbers = memoryview(mmap.mmap(self._fd, count * _WORD)).cast("Q")

    def close(self) -> None:
        """Close the descriptor: no further process can be given the numbers."""
        os.close(self._fd)

    def __reduce__(self) -> tuple[Any, ...]:
        return _attach, (type(self), len(self.numbers), reduction.DupFd(self._fd))


def _attach(kind: type[SharedNumbers], count: int, fd: Any) -> SharedNumbers:
    return kind(count, fd.detach())


class Heartbeat(SharedNumbers):
    """A count that a process shares with its supervisor. Only the process writes it."""

    NAME = "shmq-heartbeat"

    @property
    def count(self) -> int:
        """The number of beats so far."""
        return self.numbers[0]

    def beat(self) -> None:
        """Count one beat."""
        self.numbers[0] += 1

    def beat_from_a_thread(self) -> None:
        """Beat from a separate thread, for a process that may wait for a disk indefinitely."""

        def beat() -> None:
            while True:
                self.beat()
                time.sleep(BEAT)

        threading.Thread(target=beat, name="shmq heartbeat", daemon=True).start()


def is_stopped(pid: int) -> bool:
    """Whether a signal or a tracer has stopped the process."""
    with late_imports:
        import psutil  # noqa: PLC0415 - for supervisors alone

    try:
        return psutil.Process(pid).status() in {psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP}
    except (psutil.Error, OSError):
        return False
