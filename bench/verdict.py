"""Whether a bar is met: only if the whole interval says so."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Literal

from bench.estimate import Estimate
from bench.row import Bar

#: ``open``: the interval holds the bar, or there are too few turns for an interval.
Met = Literal["met", "missed", "open", "for information", "not measured"]


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The result of a bar: the estimate of its figure or, of its ratios, of the least good one."""

    ours: str
    #: The contestant that comes closest, or is ahead; empty if nothing is compared.
    other: str
    bar: str
    unit: str
    estimate: Estimate | None
    met: Met


def judge(bar: Bar, found: Mapping[str, Estimate], higher_is_better: bool = True) -> Verdict:
    """The verdict on a bar; ``higher_is_better`` is that of its figure.

    ``found`` has the estimate of the ratio by label of each other that took part; for a bar that
    does not compare, that of the figure itself by the bar's own label.
    """
    wanted = bar.others or (bar.ours,)
    there = {label: found[label] for label in wanted if label in found}
    if not there:
        return Verdict(bar.ours, "", str(bar), bar.unit, None, "not measured")
    worst = min if higher_is_better else max
    label = worst(there, key=lambda other: there[other].median)
    results = [_met(bar, estimate) for estimate in there.values()]
    return Verdict(
        ours=bar.ours,
        other=label if bar.others else "",
        bar=str(bar),
        unit=bar.unit,
        estimate=there[label],
        met=next(met for met in ("missed", "open", "met", "for information") if met in results),
    )


def _met(bar: Bar, estimate: Estimate) -> Met:
    if not bar.bound:
        return "for information"
    low = -math.inf if estimate.low is None else estimate.low
    high = math.inf if estimate.high is None else estimate.high
    least = -math.inf if bar.least is None else bar.least
    most = math.inf if bar.most is None else bar.most
    if high < least or low > most:
        return "missed"
    return "met" if least <= low and high <= most else "open"
