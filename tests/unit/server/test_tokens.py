"""Tokens: how they are made, stored and found, and what their patterns mean."""

from __future__ import annotations

from typing import Any

import pytest

import shmq
from shmq.protocol.opcodes import Right
from shmq.server.config.tokens import ALL_RIGHTS, KNOWN, AccessList, Token, hash_of, make_token
from shmq.server.connection.peer import Peer

SECRET = "s" * 40


def token(**more: Any) -> Token:
    return Token(**{"name": "a", "hash": hash_of(SECRET), **more})


def test_tokens_differ_and_are_found_by_their_hash_alone() -> None:
    made = [make_token() for _ in range(100)]
    assert len(set(made)) == 100
    assert all(len(each) == 48 and each.startswith("shmq_") for each in made)

    rows = [Token(name=str(n), hash=hash_of(each)) for n, each in enumerate(made)]
    doors = AccessList(rows)

    assert [doors.find(each) for each in made] == rows
    assert doors.find("") is None
    assert doors.find(make_token()) is None
    assert doors.find(rows[0].hash) is None
    assert doors.find("\ud800") is None
    assert not any(secret in repr(rows) for secret in made)


def test_a_token_does_not_show_its_hash() -> None:
    assert hash_of(SECRET) not in repr(token())


@pytest.mark.parametrize("short", ["", "password", "s" * 31])
def test_a_token_that_can_be_guessed_is_refused(short: str) -> None:
    with pytest.raises(shmq.InvalidOption, match=f"{len(short)} characters") as refusal:
        hash_of(short)
    assert not short or short not in str(refusal.value)


@pytest.mark.parametrize(
    ("pattern", "matched", "not_matched"),
    [
        ("*", ["a", "a.b"], []),
        ("orders", ["orders"], ["orders.dlq", "order", "Orders", "xorders"]),
        ("orders.*", ["orders.eu", "orders.eu.dlq", "orders."], ["orders", "xorders.eu"]),
        ("q?", ["q1", "q."], ["q", "q12"]),
        ("q[12]", ["q1", "q2"], ["q3", "q[12]"]),
        ("q[!12]", ["q3"], ["q1", "q2"]),
    ],
)
def test_patterns_match_whole_names_and_case(
    pattern: str, matched: list[str], not_matched: list[str]
) -> None:
    allowed = token(consume=[pattern])

    assert {allowed.rights(name) for name in matched} == {Right.CONSUME}
    assert {allowed.rights(name) for name in not_matched} <= {0}


def test_no_right_includes_another() -> None:
    each = token(produce=["p", "all"], consume=["c", "all"], admin=["a", "all"])

    assert each.rights("p") == Right.PRODUCE
    assert each.rights("c") == Right.CONSUME
    assert each.rights("a") == Right.ADMIN
    assert each.rights("all") == ALL_RIGHTS
    assert each.rights("other") == 0


def test_a_pattern_of_a_stream_is_for_all_its_groups() -> None:
    allowed = token(consume=["events*"], admin=["events"])

    assert allowed.stream_rights("events") == Right.CONSUME | Right.ADMIN
    assert allowed.stream_rights("events", "g") == Right.CONSUME | Right.ADMIN
    assert allowed.stream_rights("events2", "g") == Right.CONSUME
    assert allowed.stream_rights("other", "g") == 0


def test_a_pattern_of_groups_is_for_these_alone_and_lets_their_members_read_the_stream() -> None:
    allowed = token(consume=["events/bill*"], admin=["events/billing", "events/old"])

    assert allowed.stream_rights("events", "billing") == Right.CONSUME | Right.ADMIN
    assert allowed.stream_rights("events", "bills") == Right.CONSUME
    assert allowed.stream_rights("events", "old") == Right.ADMIN
    assert allowed.stream_rights("events", "other") == 0
    assert allowed.stream_rights("other", "billing") == 0
    assert allowed.stream_rights("events") == Right.CONSUME | KNOWN
    assert allowed.stream_rights("other") == 0
    assert allowed.rights("events") == 0, "a queue of that name is none of its business"


def test_who_may_only_look_after_a_group_may_know_of_its_stream() -> None:
    allowed = token(admin=["*/g"])

    assert allowed.stream_rights("events") == KNOWN
    assert allowed.stream_rights("events", "g") == Right.ADMIN
    assert allowed.stream_rights("events", "h") == 0


def test_without_tokens_everybody_may_do_everything_and_with_them_nobody_anything() -> None:
    peer = Peer("peer")

    assert peer.rights(AccessList([]), "q") == ALL_RIGHTS
    assert peer.rights(AccessList([token(produce=["*"])]), "q") == 0


@pytest.mark.parametrize(
    "bad",
    [
        {"hash": SECRET},
        {"hash": "sha256:" + "0" * 63},
        {"hash": "md5:" + "0" * 64},
        {"name": ""},
        {"name": "two\nlines"},
        {"produce": ["a b"]},
        {"produce": [""]},
        {"admin": ["q\n"]},
        {"admin": ["s/"]},
        {"admin": ["/g"]},
        {"admin": ["s/g/h"]},
        {"produce": ["s/g"]},
    ],
)
def test_what_is_no_token_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(shmq.InvalidOption) as refusal:
        token(**bad)
    assert SECRET not in str(refusal.value)


@pytest.mark.parametrize("bad", [{"consume": "*"}, {"consume": 5}, {"name": 5}, {"hash": None}])
def test_a_value_of_another_type_is_a_type_error(bad: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        token(**bad)
