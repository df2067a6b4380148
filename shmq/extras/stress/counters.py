"""Counters and latency histograms that the workers write and their parent reads.

They are in memory shared by fork. Each row has one writer at a time. The counts of a killed worker
stay. A histogram's bucket is 1/64 of a power of two wide: an error of 1.6 % at most.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Sequence

_BITS = 6
_SMALL = 1 << _BITS

#: Enough for 2 ** 42 ns, over an hour; a longer latency counts in the last bucket.
BUCKETS = (42 - _BITS + 1) << _BITS


def bucket_of(ns: int) -> int:
    """The bucket of a latency in ns."""
    if ns < _SMALL:
        return max(ns, 0)
    shift = ns.bit_length() - _BITS - 1
    return min((shift << _BITS) + (ns >> shift), BUCKETS - 1)


def upper_bound(bucket: int) -> int:
    """The largest latency in the bucket, in ns."""
    if bucket < _SMALL:
        return bucket
    shift = (bucket >> _BITS) - 1
    return ((bucket - (shift << _BITS) + 1) << shift) - 1


def percentile(counts: Sequence[int], part: float) -> int:
    """The latency in ns that ``part`` (0 to 1) of the counts do not exceed; 0 without any."""
    rank = part * sum(counts)
    seen = 0
    for bucket, count in enumerate(counts):
        seen += count
        if count and seen >= rank:
            return upper_bound(bucket)
    return 0


def sum_counts(all_counts: Iterable[Iterable[int]]) -> list[int]:
    """The sum of the histograms."""
    return [sum(column) for column in zip(*all_counts, strict=True)]


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
