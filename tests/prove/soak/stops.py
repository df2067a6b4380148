"""Processes that stand still for a while, as in a debugger or a frozen cgroup."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import TypeVar

import shmq

T = TypeVar("T")

#: How soon a full disk is tried again, in seconds.
PAUSE = 0.05


class Stops:
    """The processes that are stopped now, and when each goes on."""

    def __init__(self) -> None:
        self._until: dict[int, float] = {}
        #: How many were ever stopped.
        self.count = 0

    def stop(self, pid: int, seconds: float) -> None:
        """Stop a process for so long; `resume` lets it go on."""
        if pid in self._until:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            self._until[pid] = time.monotonic() + seconds
            self.count += 1

    def leave(self, pid: int) -> None:
        """Let a process stand still for good, also if it is stopped for a while."""
        self._until.pop(pid, None)

    def resume(self, *, everything: bool = False) -> None:
        """Let processes go on whose time is over, or all of them."""
        now = time.monotonic()
        for pid, until in list(self._until.items()):
            if everything or until <= now:
                del self._until[pid]
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


def delete(operation: Callable[[], object]) -> None:
    """Delete, again while the disk has no room for a note of that; it may be deleted already."""
    while True:
        try:
            insist(operation)
        except (shmq.NoSuchQueue, shmq.NoSuchStream):
            return
        except shmq.ShmqError as error:
            if "No space left" not in str(error):
                raise
            time.sleep(PAUSE)
        else:
            return


def insist(operation: Callable[[], T]) -> T:
    """Carry the operation out, again while a stopped process holds a lock: nothing is done then."""
    while True:
        with contextlib.suppress(shmq.LockTimeout):
            return operation()
