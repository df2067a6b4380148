"""Numbers, times and sizes as the pages write them."""

from __future__ import annotations

import pytest

from shmq import units
from shmq.extras.console.pages import rendering


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"),
        (0.44, "0.4 s"),
        (59.0, "59 s"),
        (90, "1.5 min"),
        (7200, "2 h"),
        (259_200, "3 days"),
        (None, ""),
    ],
)
def test_a_length_of_time_has_its_largest_unit(seconds: float | None, said: str) -> None:
    assert units.span(seconds) == said


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "0 bytes"), (1023, "1,023 bytes"), (1536, "1.5 KiB"), (1 << 50, "1024.0 TiB"), (None, "")],
)
def test_a_size_has_its_largest_unit(count: int | None, said: str) -> None:
    assert units.size(count) == said


def test_a_moment_that_no_calendar_has_is_a_number() -> None:
    assert rendering.moment(0) == "1970-01-01 00:00:00 UTC"
    assert rendering.moment(1e300) == "1e+300"
    assert rendering.moment(None) == ""


def test_one_has_no_plural() -> None:
    assert rendering.amount(1, "message") == "1 message"
    assert rendering.amount(2000, "message") == "2,000 messages"
    assert units.rate(0.25) == "0.2"
    assert units.rate(1234.5) == "1,234"
    assert rendering.option(None) == "none"
    assert rendering.option(True) == "yes"
