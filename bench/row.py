"""A row of the table: one kind of work, its contestants, and its bars.

Turns are short, 10 to 20 ms, and played in pairs: one of shmq and one of another contestant right
after each other, in an order that is drawn. The ratio of each pair is kept, so that a machine
that is slow for a second is slow for both sides of the ratio.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal

#: The subject of the table, its peers, the limit in C, and the overhead of the measurement.
Role = Literal["shmq", "peer", "limit", "harness"]

#: Plays a turn of so much work; the number for each figure, and :data:`SECONDS`.
Turn = Callable[[int], Mapping[str, float]]

#: The key of how long the clock ran in a turn, in seconds.
SECONDS = "seconds"
TIMES = "\N{MULTIPLICATION SIGN}"
AT_LEAST, AT_MOST = "\N{GREATER-THAN OR EQUAL TO}", "\N{LESS-THAN OR EQUAL TO}"


@dataclasses.dataclass(frozen=True)
class Figure:
    """A number that a turn yields."""

    key: str
    unit: str
    higher_is_better: bool = True
    #: The quantile of the turns that is shown: 0.5 is the median.
    quantile: float = 0.5


RATE = Figure("rate", "messages/s")


class Contestant(abc.ABC):
    """One participant of a row."""

    label: str
    role: Role = "peer"
    note: str = ""
    #: The least and the most work of a turn; the same if a turn cannot be made shorter.
    least: int = 1
    most: int = 1

    def missing(self) -> str | None:
        """Why it cannot take part here; None if it can."""
        return None

    def tiny(self) -> Contestant:
        """The same contestant with just enough work to show that it functions."""
        return self

    def sized(self, rows: int) -> Contestant:  # noqa: ARG002
        """The same contestant with that many rows a turn, if it can be chosen."""
        return self

    @abc.abstractmethod
    def opened(self) -> AbstractContextManager[Turn]:
        """Make what its turns need, for the block. Each turn verifies what it measured."""


@dataclasses.dataclass(frozen=True)
class Bar:
    """A promise of the row, or a comparison for information if it has neither bound.

    Without ``others`` it is about the figure of ``ours``; with them about ``ours`` divided by
    each of the others in turn, so about the best of them.
    """

    ours: str
    others: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    key: str = RATE.key
    unit: str = ""

    @property
    def bound(self) -> bool:
        """Whether it promises anything."""
        return self.least is not None or self.most is not None

    def __str__(self) -> str:
        unit = f" {TIMES}" if self.others else f" {self.unit}".rstrip()
        ends = ((AT_LEAST, self.least), (AT_MOST, self.most))
        shown = [f"{sign} {number(end)}{unit}" for sign, end in ends if end is not None]
        return ", ".join(shown)


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
    #: Its part of the time of a run, beside 1 of the others.
    share: float = 1.0
    #: The most visits of a run; None: as many as the others.
    visits: int | None = None
    #: Seconds of a turn; None: those of the table.
    turn: float | None = None

    def compared(self) -> Iterator[tuple[Bar, str, str]]:
        """Each bar that compares, with either label."""
        for bar in self.bars:
            for other in bar.others:
                yield bar, bar.ours, other


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


def at_least(label: str, bar: float, unit: str = "messages/s", key: str = RATE.key) -> Bar:
    """The contestant's figure reaches the bar."""
    return Bar(label, least=bar, unit=unit, key=key)


def at_most(label: str, bar: float, unit: str, key: str) -> Bar:
    """The contestant's figure stays below the bar."""
    return Bar(label, most=bar, unit=unit, key=key)


def times(label: str, others: str | Sequence[str], least: float, key: str = RATE.key) -> Bar:
    """The contestant's figure is at least ``least`` times that of each of the others."""
    return Bar(label, _labels(others), least=least, key=key)


def within(label: str, others: str | Sequence[str], most: float, key: str) -> Bar:
    """The contestant's figure, a cost, is at most ``most`` times that of each of the others."""
    return Bar(label, _labels(others), most=most, key=key)


def beside(label: str, others: str | Sequence[str], key: str = RATE.key) -> Bar:
    """The contestant's figure beside those of the others, without a promise."""
    return Bar(label, _labels(others), key=key)


def _labels(others: str | Sequence[str]) -> tuple[str, ...]:
    return (others,) if isinstance(others, str) else tuple(others)
