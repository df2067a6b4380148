"""The median of many turns and its interval."""

from __future__ import annotations

import random

import pytest

from bench.estimate import FEWEST, Estimate, below, estimate, interval


@pytest.mark.parametrize(
    ("count", "place"),
    # The ranks of the tables of the sign test for 5 %, two-sided, counted from 0.
    [(0, None), (5, None), (6, 0), (8, 0), (9, 1), (15, 3), (25, 7), (100, 39)],
)
def test_the_interval_has_the_known_ranks(count: int, place: int | None) -> None:
    assert below(count) == place


def test_of_too_few_turns_nothing_is_known() -> None:
    assert estimate([[3.0, 1.0, 2.0, 5.0, 4.0]]) == Estimate(3.0, None, None, 5)
    assert estimate([[float(n) for n in range(FEWEST)]]) == Estimate(2.5, 0.0, 5.0, FEWEST)
    with pytest.raises(ValueError, match="no turn"):
        estimate([[], []])


def test_the_ends_of_another_quantile_are_asked_for_apart() -> None:
    few = [float(n) for n in range(20)]
    assert interval(few, 0.95) == (16.0, None)
    many = [float(n) for n in range(400)]
    low, high = interval(many, 0.95)
    assert low is not None and high is not None
    assert 366 <= low <= 372 and 388 <= high <= 390
    assert estimate([many], 0.95).median == 380.0


def test_an_interval_misses_the_median_in_at_most_one_of_twenty() -> None:
    draw = random.Random(7)
    missed = 0
    for _ in range(2000):
        low, high = interval([draw.lognormvariate(0, 1) for _ in range(40)])
        assert low is not None and high is not None
        missed += not low <= 1 <= high
    assert 20 <= missed <= 100


def test_visits_that_differ_widen_the_interval() -> None:
    draw = random.Random(7)

    def visit(middle: float) -> list[float]:
        return [draw.gauss(middle, 0.01) for _ in range(50)]

    alike = estimate([visit(1.0) for _ in range(6)])
    moody = estimate([visit(1.0 + 0.1 * n) for n in range(6)])
    assert alike.low is not None and alike.high is not None
    assert alike.high - alike.low < 0.02
    assert moody.low is not None and moody.high is not None
    assert moody.low < 1.01 and moody.high > 1.49
