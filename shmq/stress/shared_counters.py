"""Counters that the workers write and their parent reads, in memory shared by fork.

Each row has one writer at a time. The counts of a killed worker stay.
"""

from __future__ import annotations

import mmap

from shmq.stress.latency import BUCKETS

__all__ = ["SharedCounters"]

_WORD = 8
_HEAD = 2
_ROW = 2 + BUCKETS


class SharedCounters:
    """``rows`` rows, each a count, the longest latency in ns, and a histogram of latencies."""

    def __init__(self, rows: int) -> None:
        self._memory = mmap.mmap(-1, (_HEAD + rows * _ROW) * _WORD)
        self._words = memoryview(self._memory).cast("Q")
        self.rows = rows

    @property
    def stopped(self) -> bool:
        """Whether the producers should end."""
        return bool(self._words[0])

    def stop(self) -> None:
        """Tell the producers to end."""
        self._words[0] = 1

    @property
    def draining(self) -> bool:
        """Whether the consumers should end once the queue is empty."""
        return bool(self._words[1])

    def drain(self) -> None:
        """Tell the consumers to end once the queue is empty."""
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
        """The counts of a row's latencies by bucket; the view is writable."""
        start = _HEAD + row * _ROW + 2
        return self._words[start : start + BUCKETS]
