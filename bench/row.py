"""A row of the table: one kind of work, its contestants, and its bars.

A turn of a :class:`Contestant` yields a number for each :class:`Figure` of the row. Turns are
short and interleaved, so that other load on the machine affects all contestants alike. The
result of a contestant is the median of its turns.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

#: The subject of the table, its peers, the limit in C, and the overhead of the measurement.
Role = Literal["shmq", "peer", "limit", "harness"]

#: The median of each figure, by its key, for each contestant, by its label.
Medians = Mapping[str, Mapping[str, float]]


@dataclasses.dataclass(frozen=True)
class Figure:
    """A number that a turn yields."""

    key: str
    unit: str
    higher_is_better: bool = True


RATE = Figure("rate", "messages/s")


class Contestant(abc.ABC):
    """One participant of a row."""

    label: str
    role: Role = "peer"
    note: str = ""
    #: The most turns that it has in a run; None: as many as the others.
    turns: int | None = None

    def missing(self) -> str | None:
        """Why it cannot take part here; None if it can."""
        return None

    def calibrate(self, seconds: float) -> None:
        """Choose the work of a turn so that a turn takes about this many seconds."""

    def tiny(self) -> Contestant:
        """The same contestant with just enough work to show that it functions."""
        return self

    def sized(self, rows: int) -> Contestant:  # noqa: ARG002
        """The same contestant with that many rows a turn, if it can be chosen."""
        return self

    @abc.abstractmethod
    def turn(self) -> dict[str, float]:
        """Measure and verify once; a number for each figure of the row."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The result of a bar; ``met`` is None if a figure was not measured."""

    bar: str
    measured: str
    met: bool | None


@dataclasses.dataclass(frozen=True)
class Bar:
    """A promise of the row."""

    text: str
    judge: Callable[[Medians], tuple[str, bool]]

    def verdict(self, medians: Medians) -> Verdict:
        """Whether the bar is met; missing figures raise nothing."""
        try:
            measured, met = self.judge(medians)
        except (KeyError, ValueError):
            return Verdict(self.text, "not measured", None)
        return Verdict(self.text, measured, met)


@dataclasses.dataclass(frozen=True)
class Row:
    """One kind of work."""

    key: str
    title: str
    contestants: Sequence[Contestant]
    figures: Sequence[Figure] = (RATE,)
    bars: Sequence[Bar] = ()
    #: What limits shmq in this row, for the documents.
    limit: str = ""


def number(value: float) -> str:
    """A figure with three significant digits: 3.12 M, 812 k, 4.56."""
    for least, letter in ((1e6, " M"), (1e4, " k")):
        if abs(value) >= least:
            scaled = value / (1e6 if letter == " M" else 1e3)
            return f"{_three(scaled)}{letter}"
    return _three(value)


def _three(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


# ---- bars ----


def at_least(label: str, bar: float, unit: str = "/s", key: str = "rate") -> Bar:
    """The contestant's figure reaches the bar."""

    def judge(medians: Medians) -> tuple[str, bool]:
        found = medians[label][key]
        return f"{number(found)}{unit}", found >= bar

    return Bar(f"{label}: at least {number(bar)}{unit}", judge)


def at_most(label: str, bar: float, unit: str, key: str) -> Bar:
    """The contestant's figure stays below the bar."""

    def judge(medians: Medians) -> tuple[str, bool]:
        found = medians[label][key]
        return f"{number(found)} {unit}", found <= bar

    return Bar(f"{label}: at most {number(bar)} {unit}", judge)


def above(label: str, others: Sequence[str], key: str = "rate") -> Bar:
    """The contestant's figure is above those of all others that took part."""

    def judge(medians: Medians) -> tuple[str, bool]:
        best = max((name for name in others if name in medians), key=lambda n: medians[n][key])
        ratio = medians[label][key] / medians[best][key]
        return f"{ratio:.2f} x {best}", ratio > 1

    return Bar(f"{label}: above every peer", judge)


def times(label: str, other: str, least: float, key: str = "rate") -> Bar:
    """The contestant's figure is at least ``least`` times another's."""

    def judge(medians: Medians) -> tuple[str, bool]:
        ratio = medians[label][key] / medians[other][key]
        return f"{ratio:.2f} x", ratio >= least

    return Bar(f"{label}: at least {least:g} x {other}", judge)


def times_best(label: str, others: Sequence[str], least: float, key: str = "rate") -> Bar:
    """The contestant's figure is at least ``least`` times the best of the others."""

    def judge(medians: Medians) -> tuple[str, bool]:
        best = max((name for name in others if name in medians), key=lambda n: medians[n][key])
        ratio = medians[label][key] / medians[best][key]
        return f"{ratio:.2f} x {best}", ratio >= least

    return Bar(f"{label}: at least {least:g} x the best peer", judge)


def within(label: str, other: str, most: float, key: str) -> Bar:
    """The contestant's figure is at most ``most`` times another's."""

    def judge(medians: Medians) -> tuple[str, bool]:
        ratio = medians[label][key] / medians[other][key]
        return f"{ratio:.2f} x", ratio <= most

    return Bar(f"{label}: at most {most:g} x {other}", judge)


def flat(labels: Sequence[str], tolerance: float, key: str) -> Bar:
    """The figure, a cost, rises by at most ``tolerance`` above the first label's."""

    def judge(medians: Medians) -> tuple[str, bool]:
        first = medians[labels[0]][key]
        ratios = [medians[label][key] / first for label in labels]
        return f"{max(ratios):.2f} x at worst", max(ratios) <= 1 + tolerance

    return Bar(f"each at most {1 + tolerance:g} x {labels[0]}", judge)
