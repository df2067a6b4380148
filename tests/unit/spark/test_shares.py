"""How a batch is divided among the places that have rows waiting, and a read into tasks."""

from __future__ import annotations

import math

import hypothesis
import hypothesis.strategies as st
import pytest

from shmq.spark.shared.shares import divide, task_counts

COUNTS = st.lists(st.integers(0, 10_000), min_size=1, max_size=20)
WAITING = COUNTS.map(lambda counts: dict(enumerate(counts)))
LIMITS = st.integers(1, 10_000)
TURNS = st.none() | st.integers(-1, 20)


@pytest.mark.parametrize(
    ("counts", "limit", "shares"),
    [
        ([5, 5], None, [5, 5]),
        ([5, 5], 20, [5, 5]),
        ([30, 10], 8, [6, 2]),
        ([30, 90], 40, [10, 30]),
        ([1, 10, 100], 4, [1, 1, 2]),
        ([80, 20, 0], 50, [40, 10, 0]),
        ([1, 1000], 10, [1, 9]),
        ([1, 1, 1], 2, [1, 1, 0]),
        ([0, 9], 3, [0, 3]),
        ([100_000, *[5] * 9], 200, [191, *[1] * 9]),
        ([0, 0], 3, [0, 0]),
        ([1 << 62, 1 << 62], 1 << 40, [1 << 39, 1 << 39]),
    ],
)
def test_shares_follow_what_waits_and_each_place_has_one_row(
    counts: list[int], limit: int | None, shares: list[int]
) -> None:
    found, _ = divide(dict(enumerate(counts)), limit)
    assert [found.get(index, 0) for index in range(len(counts))] == shares


@hypothesis.given(WAITING, LIMITS, TURNS)
def test_a_batch_is_as_large_as_its_limit_allows_and_leaves_out_no_place_that_fits(
    waiting: dict[int, int], limit: int, turn: int | None
) -> None:
    shares, _ = divide(waiting, limit, turn)
    assert sum(shares.values()) == min(limit, sum(waiting.values()))
    assert all(0 <= share <= waiting[place] for place, share in shares.items())
    served = sum(share > 0 for share in shares.values())
    assert served == min(limit, sum(count > 0 for count in waiting.values()))


@hypothesis.given(WAITING, LIMITS)
def test_a_place_where_more_waits_gets_no_less_except_for_one_row_of_the_remainder(
    waiting: dict[int, int], limit: int
) -> None:
    shares, _ = divide(waiting, limit)
    for one, share in shares.items():
        for other, more in shares.items():
            if waiting[one] <= waiting[other]:
                assert share <= more + 1


@hypothesis.given(
    st.lists(st.integers(1, 1000), min_size=1, max_size=20), st.integers(1, 20), TURNS,
    st.data(),
)  # fmt: skip
def test_every_waiting_place_has_its_turn_within_as_many_batches_as_that_takes(
    counts: list[int], limit: int, turn: int | None, data: st.DataObject
) -> None:
    """The first place waits all the time; others are refilled, emptied, added and removed."""
    hypothesis.assume(len(counts) >= limit)
    waiting = dict(enumerate(counts))
    watched = data.draw(st.sampled_from(sorted(waiting)))
    for _ in range(math.ceil(len(counts) / limit)):
        shares, turn = divide(waiting, limit, turn)
        if shares.get(watched):
            return
        for place in waiting:
            if place != watched:
                waiting[place] = data.draw(st.integers(0, 1000))
    pytest.fail(f"place {watched} got no row")


def test_the_remainder_goes_around_too() -> None:
    waiting, turn = dict.fromkeys(range(3), 100), None
    got = dict.fromkeys(waiting, 0)
    for _ in range(3):
        shares, turn = divide(waiting, 4, turn)
        got = {place: got[place] + shares[place] for place in got}
    assert got == dict.fromkeys(waiting, 4)


def test_the_rotation_goes_on_after_a_place_that_is_gone() -> None:
    _, turn = divide({"a": 9, "b": 9, "c": 9}, 2)
    assert turn == "b"
    assert divide({"a": 9, "c": 9, "d": 9}, 1, turn) == ({"c": 1, "d": 0, "a": 0}, "c")
    assert divide({"a": 1, "c": 1}, 5, turn)[1] is None


@hypothesis.given(COUNTS, st.integers(1, 10_000))
def test_there_are_as_many_tasks_as_asked_for_if_there_are_rows_for_them(
    sizes: list[int], least: int
) -> None:
    counts = task_counts(sizes, least)
    filled = [size for size in sizes if size]
    assert sum(counts) == min(max(least, len(filled)), sum(sizes))
    assert all(min(size, 1) <= count <= size for size, count in zip(sizes, counts, strict=True))
