"""The number of connections over all workers."""

from __future__ import annotations

import mmap
import os
from multiprocessing import reduction
from typing import Any, Final

__all__ = ["ConnectionCounts"]

_WORD: Final = 8


class ConnectionCounts:
    """One number for each worker, in memory that all of them share.

    Only its own worker writes a number. Two workers that check at the same moment may both find
    room for the last connection. Can be pickled for a process that is being spawned.
    """

    def __init__(self, rows: int, fd: int | None = None) -> None:
        self.rows = rows
        self._fd = os.memfd_create("shmq-census", os.MFD_CLOEXEC) if fd is None else fd
        if fd is None:
            os.ftruncate(self._fd, rows * _WORD)
        self._words = memoryview(mmap.mmap(self._fd, rows * _WORD)).cast("Q")

    def total(self) -> int:
        """The connections of all workers."""
        return sum(self._words)

    def write(self, row: int, count: int) -> None:
        """Set the number of a worker's connections."""
        self._words[row] = count

    def __reduce__(self) -> tuple[Any, ...]:
        return _attached, (self.rows, reduction.DupFd(self._fd))


def _attached(rows: int, fd: Any) -> ConnectionCounts:
    return ConnectionCounts(rows, fd.detach())
