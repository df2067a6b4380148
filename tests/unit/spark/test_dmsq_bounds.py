"""Which rows of files are wanted: options and filters, without Spark."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from pyspark.sql import datasource as ds

from shmq.spark.dmsq.bounds import Bounds
from shmq.spark.dmsq.files import LEAST, MOST, cut, shares
from shmq.spark.dmsq.options import OPTIONS
from shmq.spark.shared import options
from shmq.spark.shared.options import BATCH

NOON = dt.datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=dt.UTC)
MICROS = 1_769_860_800_000_005
ALL = Bounds()


def of(**given: str) -> Bounds:
    return Bounds.of(options.parse(OPTIONS, given, BATCH, form="dmsq"))


def test_without_options_everything_is_within() -> None:
    assert of() == ALL
    assert not ALL.empty


def test_what_options_end_at_does_not_belong_to_it() -> None:
    found = of(startingSequence="10", endingSequence="20")
    assert (found.first, found.last) == (10, 19)
    found = of(startingTimestamp="1769860800000", endingTimestamp="2026-01-31T12:00:01Z")
    assert (found.since, found.until) == (MICROS - 5, MICROS - 5 + 999_999)


def test_a_time_without_a_zone_is_in_utc() -> None:
    assert of(startingTimestamp="2026-01-31T12:00:00") == of(startingTimestamp="1769860800000")
    assert of(startingTimestamp="2026-01-31T13:00+01:00") == of(startingTimestamp="1769860800000")


@pytest.mark.parametrize(
    ("wanted", "first", "last"),
    [
        (ds.EqualTo(("offset",), 7), 7, 7),
        (ds.EqualNullSafe(("offset",), 7), 7, 7),
        (ds.GreaterThan(("offset",), 7), 8, ALL.last),
        (ds.GreaterThanOrEqual(("offset",), 7), 7, ALL.last),
        (ds.LessThan(("offset",), 7), 0, 6),
        (ds.LessThanOrEqual(("offset",), 7), 0, 7),
        (ds.LessThan(("offset",), 0), 0, -1),
        (ds.GreaterThan(("offset",), -5), 0, ALL.last),
        (ds.IsNotNull(("offset",)), 0, ALL.last),
    ],
)
def test_filters_of_sequence_numbers_narrow(wanted: ds.Filter, first: int, last: int) -> None:
    found = ALL.narrowed(wanted)
    assert found is not None
    assert (found.first, found.last) == (first, last)
    assert found.empty == (first > last)


@pytest.mark.parametrize(
    ("wanted", "since", "until"),
    [
        (ds.EqualTo(("timestamp",), NOON), MICROS, MICROS),
        (ds.GreaterThan(("timestamp",), NOON), MICROS + 1, ALL.until),
        (ds.GreaterThanOrEqual(("timestamp",), NOON), MICROS, ALL.until),
        (ds.LessThan(("timestamp",), NOON), ALL.since, MICROS - 1),
        (ds.LessThanOrEqual(("timestamp",), NOON), ALL.since, MICROS),
    ],
)
def test_filters_of_times_narrow(wanted: ds.Filter, since: int, until: int) -> None:
    found = ALL.narrowed(wanted)
    assert found is not None
    assert (found.since, found.until) == (since, until)


def test_filters_of_queues_narrow() -> None:
    found = ALL.narrowed(ds.In(("topic",), ("a", "b")))
    assert found is not None
    assert found.has("a")
    assert not found.has("c")
    both = found.narrowed(ds.EqualTo(("topic",), "b"))
    assert both is not None
    assert not both.has("a")
    none = both.narrowed(ds.EqualTo(("topic",), "a"))
    assert none is not None
    assert none.empty


@pytest.mark.parametrize(
    "wanted",
    [
        ds.EqualTo(("priority",), 1),
        ds.EqualTo(("offset", "inner"), 1),
        ds.In(("offset",), (1, 2)),
        ds.IsNull(("offset",)),
        ds.Not(ds.EqualTo(("offset",), 1)),
        ds.EqualTo(("timestamp",), NOON.replace(tzinfo=None)),
        ds.EqualTo(("offset",), None),
        ds.GreaterThan(("topic",), "a"),
        ds.StringStartsWith(("topic",), "a"),
        ds.IsNotNull(("key",)),
    ],
)
def test_what_bounds_cannot_say_is_left_to_spark(wanted: ds.Filter) -> None:
    assert ALL.narrowed(wanted) is None


@pytest.mark.parametrize(
    ("first", "spread", "count", "expected"),
    [
        (0, (0, 1, []), 4, [(0, 99)]),
        (0, (1, 10, [5] * 10), 1, [(0, 99)]),
        (0, (1, 10, [5] * 10), 2, [(0, 50), (51, 99)]),
        (30, (1, 10, [5] * 10), 2, [(30, 50), (51, 99)]),
        (0, (1, 10, [100, *[0] * 9]), 2, [(0, 10), (11, 99)]),
        (0, (1, 10, [*[0] * 9, 100]), 2, [(0, 99)]),
    ],
)
def test_numbers_are_cut_into_ranges_of_about_as_many_bytes(
    first: int, spread: Any, count: int, expected: list[tuple[int, int]]
) -> None:
    assert cut(first, 99, spread, count) == expected


def test_slices_are_as_many_as_asked_for_and_never_too_small_unasked() -> None:
    assert shares([100, 300], 4) == [1, 3]
    assert shares([0, 0], 4) == [1, 1]
    assert shares([LEAST - 1], None) == [1]
    assert shares([10 * MOST], None)[0] >= 10
