"""Latency histograms. A bucket is 1/64 of a power of two wide: an error of 1.6 % at most."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["BUCKETS", "bucket_of", "merged", "percentile", "upper_bound"]

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


def merged(all_counts: Iterable[Iterable[int]]) -> list[int]:
    """The sum of the histograms."""
    return [sum(column) for column in zip(*all_counts, strict=True)]
