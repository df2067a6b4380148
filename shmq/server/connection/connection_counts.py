"""How many connections there are, over all workers."""

from __future__ import annotations

import mmap
import os
from multiprocessing import reduction
from typing import Any, Final

__all__ = ["ConnectionCounts"]

_WORD: Final = 8


class ConnectionCounts:
    """A number for each worker, in memory that all of them share.

    Each is written by one process. Two that look in the same moment may both find room for
    the last connection. Can be pickled for a process that is being spawned.
    """

    def __init__(self, rows: int, fd: int | None = None) -> None:
        self.rows = rows
        self._fd = os.memfd_create("shmq-census", os.MFD_CLOEXEC) if fd is None else fd
        if fd is None:
            os.ftruncate(self._fd, rows * _WORD)
        self._words = memoryview(mmap.mmap(self._fd, rows * _WORD)).cast("Q")

    def total(self) -> int:
        """Connections of all workers."""
        return sum(self._words)

    def write(self, row: int, count: int) -> None:
        """A worker has so many now."""
        self._words[row] = count

    def __reduce__(self) -> tuple[Any, ...]:
        return _attached, (self.rows, reduction.DupFd(self._fd))


def _attached(rows: int, fd: Any) -> ConnectionCounts:
    return ConnectionCounts(rows, fd.detach())
