"""The heartbeat of a process for its supervisor, and its stacks on demand."""

from __future__ import annotations

import contextlib
import faulthandler
import mmap
import os
import signal
import threading
import time
from multiprocessing import reduction
from pathlib import Path
from typing import Any, Final

__all__ = ["BEAT", "SHOW_STACK", "Heartbeat", "is_stopped", "show_stack_on_demand"]

#: How often a process beats, in seconds: several times within the shortest limit.
BEAT: Final = 0.2
#: The signal at which a process writes the stacks of its threads to stderr.
SHOW_STACK: Final = signal.SIGUSR2

_WORD: Final = 8
_STDERR: Final = 2


class Heartbeat:
    """A count in memory that a process shares with its supervisor.

    Only the process writes it. Can be pickled for a process that is being spawned.
    """

    def __init__(self, fd: int | None = None) -> None:
        self._fd = os.memfd_create("shmq-pulse", os.MFD_CLOEXEC) if fd is None else fd
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

        threading.Thread(target=beat, name="shmq pulse", daemon=True).start()

    def __reduce__(self) -> tuple[Any, ...]:
        return _attached, (reduction.DupFd(self._fd),)


def _attached(fd: Any) -> Heartbeat:
    return Heartbeat(fd.detach())


def show_stack_on_demand() -> None:
    """Write the stacks to stderr at `SHOW_STACK` from now on, whatever the threads do."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # there is no stderr
        faulthandler.register(SHOW_STACK, file=_STDERR, all_threads=True)


def is_stopped(pid: int) -> bool:
    """Whether a signal or a tracer has stopped the process: proc(5), stat."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[0] in {b"T", b"t"}
