"""Sizes and times as people write them."""

from __future__ import annotations

import datetime as dt

import pytest

from shmq.units import brief, moment_of, seconds_of, size_of


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [
        ("4096", 4096), (" 64k ", 65536), ("64K", 65536), ("64 KiB", 65536), ("64kb", 64000),
        ("1.5GiB", 3 << 29), ("1t", 1 << 40), ("7b", 7), ("1.5", None), ("-1", None), ("", None),
        ("1X", None), ("k", None), ("1e3", None), ("9" * 19, None),
    ],
)  # fmt: skip
def test_a_size(text: str, bytes_: int | None) -> None:
    assert size_of(text) == bytes_


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30.0), ("0.5", 0.5), ("500ms", 0.5), ("1 s", 1.0), ("5m", 300.0), ("10min", 600.0),
        ("2h", 7200.0), ("1D", 86400.0), ("-1s", None), ("", None), ("1y", None), ("s", None),
    ],
)  # fmt: skip
def test_a_time(text: str, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 s"), (1e-12, "0 s"), (2e-9, "0.002 µs"), (0.25, "250 ms"), (90, "1.5 min")],
)
def test_a_short_time_in_words(seconds: float, text: str) -> None:
    assert brief(seconds) == text


NOON = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-31T12:00:00Z", NOON), (" 2026-01-31 12:00 ", NOON),
        ("2026-01-31T13:00:00+01:00", NOON), ("2026-01-31", NOON.replace(hour=0)),
        ("yesterday", None), ("12:00", None), ("", None),
    ],
)  # fmt: skip
def test_a_moment(text: str, moment: dt.datetime | None) -> None:
    found = moment_of(text)
    assert found == moment
    assert found is None or found.tzinfo is not None
