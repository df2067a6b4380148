"""The disk that loses power, on logs of a few lines whose states can be counted by hand."""

from __future__ import annotations

import random

import pytest

from tests.prove.powerloss.events import (
    Allocate,
    Create,
    Event,
    MakeDirectory,
    Rename,
    Sync,
    SyncDirectory,
    Truncate,
    Unlink,
    Write,
)
from tests.prove.powerloss.model import SECTOR, DiskModel
from tests.prove.powerloss.states import NOISE, Choice, crash_states

A, B = b"a" * SECTOR, b"b" * SECTOR
NOTHING = bytes(SECTOR)

#: A file of which the name and two sectors of zeros are certain.
READY: tuple[Event, ...] = (
    Create("f", 1),
    Write(1, 0, bytes(2 * SECTOR)),
    Sync(1),
    SyncDirectory(""),
)


def after(*events: Event, most: int = 1000) -> Choice:
    model = DiskModel()
    for event in events:
        model.apply(event)
    return crash_states(model, most, random.Random(1))


def left(*events: Event) -> set[tuple[tuple[str, bytes], ...]]:
    """Every state after the events, as the names with their contents."""
    choice = after(*events)
    assert choice.complete
    found = [tuple(sorted(state.files.items())) for state in choice.states]
    assert len(found) == len({state.digest for state in choice.states})
    return set(found)


def held(*events: Event) -> set[bytes]:
    """What the only file may hold after the events."""
    return {dict(files)["f"] for files in left(*events)}


def test_what_was_synced_with_its_name_is_certain() -> None:
    events = Create("f", 1), Write(1, 0, A), Sync(1), SyncDirectory("")
    assert left(*events) == {(("f", A),)}


def test_a_name_is_not_certain_by_the_sync_of_its_file() -> None:
    assert left(Create("f", 1), Write(1, 0, A), Sync(1)) == {(), (("f", A),)}


def test_a_file_whose_name_alone_is_certain_may_be_empty_or_cut_or_show_what_is_stale() -> None:
    found = held(Create("f", 1), SyncDirectory(""), Write(1, 0, A + b"bb"))
    tail = {b"bb", b"\0\0", NOISE[:2]}
    head = {A, NOTHING, NOISE}
    assert b"" in found
    assert found - {b""} <= {one + two for one in head for two in tail}
    assert {A + b"bb", A + b"\0\0", NOTHING + b"bb", NOISE + b"bb", A + NOISE[:2]} <= found


def test_each_sector_of_an_unsynced_write_is_there_or_not_whatever_the_others_are() -> None:
    assert held(*READY, Write(1, 0, A + B)) == {NOTHING + NOTHING, A + NOTHING, NOTHING + B, A + B}


def test_a_sector_is_never_torn() -> None:
    assert held(*READY, Write(1, 100, b"xy")) == {
        bytes(2 * SECTOR),
        bytes(100) + b"xy" + bytes(2 * SECTOR - 102),
    }


def test_a_later_write_may_be_there_without_an_earlier_one() -> None:
    found = held(*READY, Write(1, 0, A), Write(1, SECTOR, B))
    assert NOTHING + B in found


def test_a_sector_written_twice_has_any_of_its_contents() -> None:
    found = held(*READY, Write(1, 0, A), Write(1, 0, B))
    assert found == {NOTHING + NOTHING, A + NOTHING, B + NOTHING}


def test_a_sync_is_one_of_the_last_content_only() -> None:
    assert held(*READY, Write(1, 0, A), Write(1, 0, B), Sync(1)) == {B + NOTHING}


def test_a_sync_says_nothing_of_other_files() -> None:
    other = Create("g", 2), Write(2, 0, A), SyncDirectory(""), Sync(1)
    assert len(left(*READY, *other)) > 1


def test_what_a_failed_sync_should_have_written_stays_in_doubt() -> None:
    failed = *READY, Write(1, 0, A), Sync(1, failed=True)
    either = {NOTHING + NOTHING, A + NOTHING}
    assert held(*failed) == either
    assert held(*failed, Sync(1)) == either
    assert held(*failed, Write(1, SECTOR, B), Sync(1)) == {NOTHING + B, A + B}


def test_what_is_written_again_after_a_failed_sync_is_certain_after_the_next() -> None:
    failed = *READY, Write(1, 0, A), Sync(1, failed=True)
    assert held(*failed, Write(1, 0, A), Sync(1)) == {A + NOTHING}
    # Of a sector that is written again in part, the other part is as doubtful as before.
    partly = held(*failed, Write(1, 0, b"xy"), Sync(1))
    assert partly == {b"xy" + NOTHING[2:] + NOTHING, b"xy" + A[2:] + NOTHING}


def test_a_length_is_certain_after_a_sync_only() -> None:
    longer = *READY, Allocate(1, 3 * SECTOR)
    assert held(*longer) == {bytes(2 * SECTOR), bytes(3 * SECTOR)}
    assert held(*longer, Sync(1)) == {bytes(3 * SECTOR)}


def test_an_allocated_part_reads_as_zeros_where_its_data_are_missing() -> None:
    found = held(*READY, Allocate(1, 3 * SECTOR), Sync(1), Write(1, 2 * SECTOR, A))
    assert found == {bytes(3 * SECTOR), bytes(2 * SECTOR) + A}


def test_a_part_that_was_not_allocated_may_show_what_a_deleted_file_left() -> None:
    deleted = Create("old", 2), Write(2, 0, B), Sync(2), Unlink("old"), SyncDirectory("")
    events = *deleted, Create("f", 1), SyncDirectory(""), Write(1, 0, A)
    assert held(*events) == {b"", NOTHING, A, B}


def test_a_cut_may_be_there_or_not() -> None:
    full = *READY, Write(1, 0, A + B), Sync(1), Truncate(1, SECTOR)
    assert {A + B, A} <= held(*full)
    assert held(*full, Sync(1)) == {A}


def test_each_name_given_or_taken_is_there_or_not_whatever_the_others_are() -> None:
    both = left(*READY, Create("g", 2), Unlink("f"))
    names = {tuple(name for name, _ in files) for files in both}
    assert names == {(), ("f",), ("g",), ("f", "g")}


def test_a_rename_may_be_half_there() -> None:
    found = left(*READY, Rename("f", "g"))
    names = {tuple(name for name, _ in files) for files in found}
    assert names == {(), ("f",), ("g",), ("f", "g")}
    assert left(*READY, Rename("f", "g"), SyncDirectory("")) == {(("g", bytes(2 * SECTOR)),)}


def test_a_rename_over_a_file_leaves_the_old_one_or_the_new_one() -> None:
    second = Create("g", 2), Write(2, 0, A), Sync(2)
    found = {dict(files).get("f") for files in left(*READY, *second, Rename("g", "f"))}
    assert found == {bytes(2 * SECTOR), A}


def test_a_failed_sync_of_the_directory_leaves_its_names_in_doubt_until_made_anew() -> None:
    failed = *READY, Unlink("f"), SyncDirectory("", failed=True)
    assert left(*failed, SyncDirectory("")) == {(), (("f", bytes(2 * SECTOR)),)}
    again = Create("f", 2), SyncDirectory("")
    assert left(*failed, *again) == {(("f", b""),)}


def test_what_is_in_a_directory_is_gone_with_its_name() -> None:
    events = (MakeDirectory("d"), Create("d/f", 1), Write(1, 0, A), Sync(1), SyncDirectory("d"))
    assert left(*events) == {(), (("d/f", A),)}
    assert left(*events, SyncDirectory("")) == {(("d/f", A),)}


def test_of_more_states_than_may_be_tried_some_are_chosen_and_it_says_so() -> None:
    choice = after(*READY, Write(1, 0, b"x" * 20 * SECTOR), most=200)
    assert not choice.complete
    assert len(choice.states) == len({state.digest for state in choice.states}) == 200
    contents = {state.files["f"] for state in choice.states}
    assert b"x" * 20 * SECTOR in contents
    assert bytes(2 * SECTOR) in contents
    # Each sector is missing in some state in which all others are there.
    for n in range(2):
        hole = b"x" * n * SECTOR + NOTHING + b"x" * (19 - n) * SECTOR
        assert hole in contents


@pytest.mark.parametrize("most", [1, 2, 7, 50])
def test_no_more_states_are_chosen_than_wanted(most: int) -> None:
    events = *READY, Write(1, 0, A + B), Create("g", 2), Write(2, 0, A + B)
    assert len(after(*events, most=most).states) <= most
