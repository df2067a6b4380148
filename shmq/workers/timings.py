"""How long the handlers of all worker processes took: a histogram for each outcome."""

from __future__ import annotations

import dataclasses
import itertools
import multiprocessing
from collections.abc import Sequence
from typing import Any, Final, Literal, get_args

#: How a handler ended: it returned, wants the message again, rejected it, or raised.
Outcome = Literal["done", "retry", "reject", "failed"]
OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)

#: The upper bounds of the buckets, in seconds; one more has all that took longer.
BOUNDS: Final = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
#: The buckets, and the sum of the seconds.
_ROW: Final = len(BOUNDS) + 2


@dataclasses.dataclass(frozen=True, slots=True)
class Timing:
    """The handlers of one outcome: how many there were up to each bound, and their seconds."""

    outcome: Outcome
    #: Rising; the last is the count of all.
    counts: tuple[int, ...]
    seconds: float


class Timings:
    """The rows of one place for a process in shared memory, which only that process writes.

    A process that takes the place of another goes on with its numbers. It is passed to a process
    when that starts.
    """

    def __init__(self) -> None:
        # Without a lock: there is one writer, and a reader may see a message in its bucket before
        # it is in the sum.
        context = multiprocessing.get_context("spawn")
        self._numbers: Any = context.RawArray("d", _ROW * len(OUTCOMES))

    def add(self, outcome: Outcome, seconds: float) -> None:
        """Count one handler."""
        at = OUTCOMES.index(outcome) * _ROW
        bucket = next((n for n, most in enumerate(BOUNDS) if seconds <= most), len(BOUNDS))
        self._numbers[at + bucket] += 1
        self._numbers[at + _ROW - 1] += seconds

    @staticmethod
    def sum(places: Sequence[Timings]) -> list[Timing]:
        """The histograms of all places together, one for each outcome."""
        rows = [place._numbers[:] for place in places]
        totals = [sum(column) for column in zip(*rows, strict=True)]
        return [
            Timing(outcome, tuple(int(count) for count in itertools.accumulate(row[:-1])), row[-1])
            for n, outcome in enumerate(OUTCOMES)
            if (row := totals[n * _ROW : (n + 1) * _ROW])
        ]
