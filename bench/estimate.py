"""The median of many turns, and an interval that holds it with 95 % confidence.

The interval is that of the order statistics: it assumes nothing about how the turns are
distributed. Turns of one visit share their processes and the machine's mood, so that they say
less than their number promises. The interval therefore also covers that of the medians of the
visits.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence

#: The probability that either end of an interval may miss the median.
TAIL = 0.025
#: The least number of values whose median has such an interval: from the least to the most.
FEWEST = 6


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A median, or another quantile, with its interval; without an end where turns were too few."""

    median: float
    low: float | None
    high: float | None
    turns: int


def below(count: int, quantile: float = 0.5) -> int | None:
    """The place of the lower end of the interval of a quantile among ``count`` ordered values.

    None if even the least value may lie above the quantile too often.
    """
    passed = 0.0
    for place in range(count + 1):
        passed += math.exp(
            math.lgamma(count + 1)
            - math.lgamma(place + 1)
            - math.lgamma(count - place + 1)
            + place * math.log(quantile)
            + (count - place) * math.log1p(-quantile)
        )
        if passed > TAIL:
            return place - 1 if place else None
    return None


def interval(values: Sequence[float], quantile: float = 0.5) -> tuple[float | None, float | None]:
    """The interval of a quantile of independent values; None for an end that is unknown."""
    ordered = sorted(values)
    low, high = below(len(ordered), quantile), below(len(ordered), 1 - quantile)
    return (None if low is None else ordered[low], None if high is None else ordered[-1 - high])


def middle(values: Sequence[float], quantile: float = 0.5) -> float:
    """The quantile of the values: for 0.5 the median."""
    if quantile == 0.5:
        return statistics.median(values)
    return sorted(values)[min(len(values) - 1, int(quantile * len(values)))]


def estimate(visits: Sequence[Sequence[float]], quantile: float = 0.5) -> Estimate:
    """The quantile of all turns, which are given by visit. Raises ValueError without any turn."""
    turns = [turn for visit in visits for turn in visit]
    if not turns:
        raise ValueError("there is no turn to estimate a median from")
    low, high = interval(turns, quantile)
    each = [middle(visit, quantile) for visit in visits if visit]
    least, most = interval(each)
    least, most = (min(each) if least is None else least, max(each) if most is None else most)
    return Estimate(
        middle(turns, quantile),
        None if low is None else min(low, least),
        None if high is None else max(high, most),
        len(turns),
    )
