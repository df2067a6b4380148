"""The mood of the machine is sampled and told."""

from __future__ import annotations

import os

from bench.mood import Mood, described


def test_a_sample_says_what_the_machine_does() -> None:
    everywhere = os.sched_getaffinity(0)
    mood = Mood()
    assert set(mood.figures()) == {"steal"}
    crossing = mood.look()
    found = mood.figures()
    assert 0 <= found["steal"] <= 1 and found["load"] >= 0 and found["spread"] >= 1
    if crossing is not None:
        assert 0 < found["crossing_least"] <= found["crossing"] <= found["crossing_most"]
    assert os.sched_getaffinity(0) == everywhere


def test_only_what_was_measured_is_told() -> None:
    assert described({}) == ""
    assert described({"steal": 0.012, "load": 1.5, "spread": 1.07}) == (
        "1.2% of the cores' time stolen; load up to 1.5; "
        "the same arithmetic took up to 1.07 times its best"
    )
    crossing = {"crossing": 61.0, "crossing_least": 50.0, "crossing_most": 90.0}
    assert described(crossing) == "a cache line crossed between the cores in 61 ns (50 to 90)"
