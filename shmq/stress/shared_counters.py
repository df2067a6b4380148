"""Numbers that the workers write and their starter reads, in memory shared by fork.

Each row has one writer at a time. What a killed worker has written stays.
"""

from __future__ import annotations

import mmap

from shmq.stress.latency import BUCKETS

__all__ = ["SharedCounters"]

_WORD = 8
_HEAD = 2
_ROW = 2 + BUCKETS


class SharedCounters:
    """``rows`` rows of a count, the longest latency in ns, and a histogram of latencies."""

    def __init__(self, rows: int) -> None:
        self._memory = mmap.mmap(-1, (_HEAD + rows * _ROW) * _WORD)
        self._words = memoryview(self._memory).cast("Q")
        self.rows = rows

    @property
    def stopped(self) -> bool:
        """Whether the producers are to end."""
        return bool(self._words[0])

    def stop(self) -> None:
        """Let the producers end."""
        self._words[0] = 1

    @property
    def draining(self) -> bool:
        """Whether the consumers are to end once nothing is left."""
        return bool(self._words[1])

    def drain(self) -> None:
        """Let the consumers end once nothing is left."""
        self._words[1] = 1

    def count_of(self, row: int) -> int:
        """The count of a row."""
        return self._words[_HEAD + row * _ROW]

    def add(self, row: int, count: int) -> None:
        """Raise the count of a row."""
        self._words[_HEAD + row * _ROW] += count

    def longest_of(self, row: int) -> int:
        """The longest latency of a row, in ns."""
        return self._words[_HEAD + row * _ROW + 1]

    def longest(self, row: int, ns: int) -> None:
        """Raise the longest latency of a row."""
        at = _HEAD + row * _ROW + 1
        self._words[at] = max(self._words[at], ns)

    def histogram_of(self, row: int) -> memoryview[int]:
        """The counts of a row's latencies, by bucket; to be written, too."""
        start = _HEAD + row * _ROW + 2
        return self._words[start : start + BUCKETS]
