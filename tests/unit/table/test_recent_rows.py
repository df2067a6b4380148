"""The rows of a table that a process keeps: which are found, and how many."""

from __future__ import annotations

from shmq.model.table.entry import Stored
from shmq.model.table.recent_rows import UNKNOWN, RecentRows, Row


def row(size: int) -> Row:
    return Row(Stored(0, bytes(size)), None)


def test_a_row_is_found_at_the_count_at_which_it_was_added_and_at_no_other() -> None:
    rows = RecentRows()
    rows.add(2, "k", row(1))
    rows.add(2, "absent", None)
    assert [rows.find(2, "k"), rows.find(2, "absent")] == [row(1), None]
    assert [rows.find(changes, "k") for changes in (0, 4)] == [UNKNOWN, UNKNOWN]
    rows.add(4, "other", row(1))
    assert [rows.find(changes, "k") for changes in (2, 4)] == [UNKNOWN, UNKNOWN]


def test_a_row_that_was_added_at_an_unknown_count_is_not_found() -> None:
    rows = RecentRows()
    rows.add(0, "k", row(1))
    assert rows.find(0, "k") is UNKNOWN


def test_a_change_of_this_process_keeps_the_rows_that_it_did_not_change() -> None:
    rows = RecentRows()
    for key in ("same", "new", "unknown"):
        rows.add(2, key, row(1))
    rows.advance(2, 4, {"new": row(2), "unknown": UNKNOWN, "gone": None})
    found = [rows.find(4, key) for key in ("same", "new", "unknown", "gone")]
    assert found == [row(1), row(2), UNKNOWN, None]
    rows.advance(6, 8, {"k": row(3)})  # another process has changed the table in between
    assert [rows.find(8, "same"), rows.find(8, "k")] == [UNKNOWN, row(3)]


def test_the_oldest_rows_make_room_for_new_ones_and_large_ones_are_not_kept() -> None:
    rows = RecentRows()
    for number in range(1000):
        rows.add(2, f"k{number}", row(10_000))
    found = [rows.find(2, f"k{number}") is not UNKNOWN for number in range(1000)]
    assert found == [False] * (1000 - sum(found)) + [True] * sum(found)
    assert 50 < sum(found) <= (1 << 20) // 10_000
    rows.add(2, "k999", row(20_000))
    assert rows.find(2, "k999") is UNKNOWN
    for number in range(100_000):  # the same row again and again takes no more room
        rows.add(2, "k", row(number % 7))
    assert rows.find(2, "k998") == row(10_000)
