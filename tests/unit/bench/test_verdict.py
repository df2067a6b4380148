"""How a bar is judged."""

from __future__ import annotations

import pytest

from bench.estimate import Estimate
from bench.row import TIMES, Bar, at_least, at_most, beside, number, times, within
from bench.verdict import Met, judge


def between(low: float | None, high: float | None) -> Estimate:
    return Estimate(((low or 0) + (high or 0)) / 2, low, high, 40)


@pytest.mark.parametrize(
    ("bar", "low", "high", "met"),
    [
        (times("ours", "peer", 1.5), 1.5, 1.7, "met"),
        (times("ours", "peer", 1.5), 1.4, 1.9, "open"),
        (times("ours", "peer", 1.5), 1.3, 1.5, "open"),
        (times("ours", "peer", 1.5), 1.3, 1.4, "missed"),
        (within("ours", "peer", 1.3, "p50"), 1.1, 1.3, "met"),
        (within("ours", "peer", 1.3, "p50"), 1.2, 1.4, "open"),
        (within("ours", "peer", 1.3, "p50"), 1.4, 1.5, "missed"),
        (times("ours", "peer", 1.5), None, None, "open"),
        (within("ours", "peer", 1.3, "p50"), 1.1, None, "open"),
        (within("ours", "peer", 1.3, "p50"), 1.4, None, "missed"),
        (beside("ours", "peer"), 1.4, 1.5, "for information"),
    ],
)
def test_a_ratio_is_judged_by_its_whole_interval(
    bar: Bar, low: float | None, high: float | None, met: Met
) -> None:
    assert judge(bar, {"peer": between(low, high)}).met == met


@pytest.mark.parametrize(
    ("bar", "met"),
    [
        (at_least("ours", 2e6), "met"),
        (at_least("ours", 2.1e6), "open"),
        (at_least("ours", 3.1e6), "missed"),
        (at_most("ours", 3e6, "messages/s", "rate"), "met"),
        (at_most("ours", 1.9e6, "messages/s", "rate"), "missed"),
    ],
)
def test_a_figure_is_judged_by_its_whole_interval(bar: Bar, met: Met) -> None:
    verdict = judge(bar, {"ours": between(2e6, 3e6)})
    assert (verdict.met, verdict.other) == (met, "")


def test_of_several_peers_the_best_is_named_and_every_one_counts() -> None:
    bar = times("ours", ["slow", "quick", "unsure", "absent"], 1.5)
    found = {"slow": between(8, 9), "quick": between(1.6, 1.7), "unsure": between(1.4, 2.4)}
    verdict = judge(bar, found)
    assert (verdict.other, verdict.met) == ("quick", "open")
    assert judge(bar, found | {"quick": between(1.1, 1.2)}).met == "missed"
    assert judge(bar, found | {"unsure": between(2, 3)}).met == "met"
    costs = {"slow": between(0.1, 0.2), "quick": between(1.1, 1.2)}
    cheap = within("ours", ["slow", "quick"], 1.3, "p50")
    assert judge(cheap, costs, higher_is_better=False).other == "quick"


def test_without_figures_nothing_is_said() -> None:
    verdict = judge(times("ours", "absent", 1), {})
    assert (verdict.met, verdict.estimate) == ("not measured", None)


def test_a_bar_says_what_it_promises() -> None:
    assert str(times("ours", "peer", 1.5)) == f"≥ 1.5 {TIMES}"
    assert str(at_most("ours", 50, "ms", "time")) == "≤ 50 ms"
    assert str(Bar("ours", ("peer",), least=0.8, most=1.2)) == f"≥ 0.8 {TIMES}, ≤ 1.2 {TIMES}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3_123_456, "3.12 M"),
        (14_000_000, "14 M"),
        (118e6, "118 M"),
        (812_345, "812 k"),
        (12_345, "12.3 k"),
        (3011, "3011"),
        (4.56789, "4.57"),
    ],
)
def test_a_figure_has_three_digits(value: float, text: str) -> None:
    assert number(value) == text
