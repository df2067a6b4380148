"""Which member is to have which partition."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shmq
from shmq.api import Assignment
from shmq.client.local.group_store import ASSIGNORS, divided, in_turns, ranges, sticky

MEMBERS = st.lists(st.integers(1, 1000), min_size=1, max_size=20, unique=True).map(sorted)
OWNERS = st.lists(st.integers(0, 40), max_size=40)


@pytest.mark.parametrize("name", ASSIGNORS)
@given(members=MEMBERS, owners=OWNERS)
def test_every_partition_has_a_member_and_none_has_more_than_one_more(
    name: str, members: list[int], owners: list[int]
) -> None:
    whom = ASSIGNORS[name](members, owners)

    assert len(whom) == len(owners)
    assert set(whom) <= set(members)
    counts = Counter(whom)
    each = [counts[member] for member in members]
    assert max(each) - min(each) <= 1


@pytest.mark.parametrize("name", ASSIGNORS)
@given(members=MEMBERS, owners=OWNERS)
def test_the_same_members_and_owners_get_the_same(
    name: str, members: list[int], owners: list[int]
) -> None:
    assert ASSIGNORS[name](members, owners) == ASSIGNORS[name](members, owners)


@given(members=MEMBERS, owners=OWNERS)
def test_only_what_must_moves(members: list[int], owners: list[int]) -> None:
    """As few as any division moves that is as even: what nobody has, and what is too much."""
    whom = sticky(members, owners)
    moved = sum(a != b for a, b in zip(owners, whom, strict=True))

    each, more = divmod(len(owners), len(members))
    has = sorted((Counter(owners)[member] for member in members), reverse=True)
    kept = sum(min(count, each + (place < more)) for place, count in enumerate(has))
    assert moved == len(owners) - kept


@given(members=MEMBERS, owners=OWNERS)
def test_what_was_divided_by_it_stays(members: list[int], owners: list[int]) -> None:
    whom = sticky(members, owners)

    assert sticky(members, whom) == whom


def test_ranges_are_neighbours_and_turns_are_not() -> None:
    assert ranges([7, 8, 9], [0] * 7) == [7, 7, 7, 8, 8, 9, 9]
    assert in_turns([7, 8, 9], [0] * 7) == [7, 8, 9, 7, 8, 9, 7]


def test_a_newcomer_gets_its_share_and_the_others_keep_the_rest() -> None:
    assert sticky([1, 2], [1, 1, 1, 1]) == [1, 1, 2, 2]
    assert sticky([1, 2, 3], [1, 1, 2, 2]) == [1, 1, 2, 3]
    assert sticky([2, 3], [1, 1, 2, 3]) == [2, 3, 2, 3]


@pytest.mark.parametrize("name", ASSIGNORS)
def test_without_members_nobody_has_anything(name: str) -> None:
    assert divided(name, [], [7, 0, 8], 1) == [0, 0, 0]
    assert divided(name, [], [], 0) == []


@pytest.mark.parametrize("name", ASSIGNORS)
def test_a_member_that_is_taken_out_before_it_plans_joins_anew(
    broker: shmq.Broker, name: Assignment
) -> None:
    stream = broker.create_stream("events", 3)
    group = stream.group("g", name)
    with group.join() as member:
        store = group.store  # type: ignore[attr-defined]
        store.state.leave(member.id, True)
        assert not store.state.planned

        store.plan()

        assert store.state.planned
        assert [seat[1] for seat in store.state.seats()] == [0, 0, 0]
        member.poll()
        assert member.assignment == {0, 1, 2}
