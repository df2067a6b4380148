"""The load of consumers: how much work waits, with the assumptions that the formulas make.

Times are in seconds, rates per second. Sources: J. D. C. Little, "A Proof for the Queuing Formula
L = λW" (1961); A. K. Erlang's C formula for M/M/c; the factor for other distributions of work by
A. O. Allen and J. Cunneen. Work is taken as lognormal, which two percentiles determine.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Final

#: The 99th percentile of the normal distribution.
_Z99: Final = 2.3263478740408408
#: The part of the consumers' time that is planned to be work.
TARGET: Final = 0.7
#: The largest ratio of the percentiles: a median below it is raised, as a lognormal one is never 0.
_MOST_APART: Final = 1000.0
#: So many consumers have no queue to speak of, and the sum over them would take long.
_MOST_SUMMED: Final = 100_000

ASSUMPTIONS: Final[tuple[str, ...]] = (
    "Little's law (in flight = rate × time) holds for any system that keeps up.",
    (
        "The wait is that of M/M/c with Allen and Cunneen's factor: messages come independently "
        "(Poisson), consumers are equal, none idles while a message waits, and work is lognormal."
    ),
    "Bursts that are not independent wait longer: capacity is made for the peak and the outage.",
)


def _compute_median_and_sigma(p50: float, p99: float) -> tuple[float, float]:
    median = max(p50, p99 / _MOST_APART)
    return median, math.log(max(p99 / median, 1.0)) / _Z99 if median else 0.0


def mean_of(p50: float, p99: float) -> float:
    """The mean of the lognormal distribution with these percentiles, and p99 at most."""
    median, sigma = _compute_median_and_sigma(p50, p99)
    return max(min(median * math.exp(sigma * sigma / 2), p99), p50)


def spread_of(p50: float, p99: float) -> float:
    """The squared coefficient of variation of that distribution; 1 for the exponential one."""
    _, sigma = _compute_median_and_sigma(p50, p99)
    return math.expm1(sigma * sigma)


def consumers_for(rate: float, work: float) -> int:
    """How many consumers spend :data:`TARGET` of their time on work at that rate; at least 1."""
    return max(1, math.ceil(rate * work / TARGET - 1e-9))


def erlang_c(consumers: int, offered: float) -> float:
    """The part of the messages that wait, at ``offered`` = rate × work; 1 if too many come."""
    if offered >= consumers:
        return 1.0
    if consumers > _MOST_SUMMED:
        return 0.0
    blocked = 1.0
    for one in range(1, consumers + 1):  # Erlang B, by its recursion
        blocked = offered * blocked / (one + offered * blocked)
    busy = offered / consumers
    return blocked / (1 - busy * (1 - blocked))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A rate of messages, the consumers that share it, and their work on one."""

    rate: float
    consumers: int
    #: Mean work on a message.
    work: float
    #: Its squared coefficient of variation.
    spread: float

    @property
    def most(self) -> float:
        """The rate that the consumers can do at most; infinite if they need no time."""
        return self.consumers / self.work if self.work else math.inf

    @property
    def busy(self) -> float:
        """The part of the consumers' time that is work; above 1 they do not keep up."""
        return self.rate / self.most

    @property
    def in_flight(self) -> float:
        """Messages that are worked on at a time, by Little's law; all consumers at most."""
        return min(self.rate * self.work, float(self.consumers))

    @property
    def wait(self) -> float:
        """The mean time in the queue; infinite if they do not keep up."""
        if not self.rate or not self.work:
            return 0.0
        if self.busy >= 1:
            return math.inf
        wait = erlang_c(self.consumers, self.rate * self.work) / (self.most - self.rate)
        return wait * (1 + self.spread) / 2

    @property
    def waiting(self) -> float:
        """Messages that wait, by Little's law; infinite if they do not keep up."""
        return self.rate * self.wait if self.rate else 0.0

    def at(self, rate: float) -> Load:
        """The same at another rate."""
        return dataclasses.replace(self, rate=rate)

    def curve(self, points: int) -> list[tuple[float, float]]:
        """Rates up to 98 % of the most, each with its wait."""
        if not self.work:
            return []
        rates = [self.most * 0.98 * at / points for at in range(1, points + 1)]
        return [(rate, self.at(rate).wait) for rate in rates]
