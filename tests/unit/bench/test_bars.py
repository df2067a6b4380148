"""How a bar is judged."""

from __future__ import annotations

import pytest

from bench.row import (
    Bar,
    Verdict,
    above,
    at_least,
    at_most,
    flat,
    number,
    times,
    times_best,
    within,
)

MEDIANS = {"ours": {"rate": 3e6, "p50": 4.0}, "theirs": {"rate": 2e6, "p50": 2.0}}


@pytest.mark.parametrize(
    ("bar", "measured", "met"),
    [
        (at_least("ours", 3e6), "3 M/s", True),
        (at_least("ours", 3.1e6), "3 M/s", False),
        (at_most("ours", 4, "µs", "p50"), "4 µs", True),
        (at_most("ours", 3.9, "µs", "p50"), "4 µs", False),
        (above("ours", ["theirs", "absent"]), "1.50 x theirs", True),
        (above("theirs", ["ours"]), "0.67 x ours", False),
        (times("ours", "theirs", 1.5), "1.50 x", True),
        (times("ours", "theirs", 1.6), "1.50 x", False),
        (times_best("ours", ["theirs", "absent"], 1.5), "1.50 x theirs", True),
        (times_best("ours", ["theirs", "absent"], 1.6), "1.50 x theirs", False),
        (within("ours", "theirs", 2.0, "p50"), "2.00 x", True),
        (within("ours", "theirs", 1.9, "p50"), "2.00 x", False),
        (flat(["theirs", "ours"], 1.0, "p50"), "2.00 x at worst", True),
        (flat(["theirs", "ours"], 0.2, "p50"), "2.00 x at worst", False),
    ],
)
def test_a_bar_is_met_or_missed(bar: Bar, measured: str, met: bool) -> None:
    assert bar.verdict(MEDIANS) == Verdict(bar.text, measured, met)


@pytest.mark.parametrize(
    "bar",
    [
        at_least("absent", 1),
        times("ours", "absent", 1),
        above("ours", ["absent"]),
        times_best("ours", ["absent"], 4),
    ],
)
def test_a_bar_without_figures_is_neither(bar: Bar) -> None:
    assert bar.verdict(MEDIANS).met is None


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
