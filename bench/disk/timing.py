"""Percentiles of the durations of many steps."""

from __future__ import annotations

from collections.abc import Sequence


def share(taken: Sequence[int], part: float) -> float:
    """The time in µs that this share of the steps, given in ns, did not exceed."""
    ordered = sorted(taken)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] / 1e3
