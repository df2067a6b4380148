"""A short soak of a stream, and what its verdict sees."""

from __future__ import annotations

from array import array

from tests.prove.soak.streams.history import judge
from tests.prove.soak.streams.notes import Kind, Note
from tests.prove.soak.streams.run import soak

A, B, C = (1 << 32 | n for n in (1, 2, 5))  # C has the key of A
APPENDING = Note(Kind.APPENDING, 0, 0, C, worker=1)


def test_no_record_is_lost_doubled_or_out_of_order_despite_kills() -> None:
    verdict, killed = soak(seconds=4, seed=20_261_124)

    assert not verdict.wrong()
    assert killed > 10
    assert verdict.appended > 1000


def observed(*partitions: list[int]) -> list[array[int]]:
    return [array("Q", messages) for messages in partitions]


def seen(partition: int, messages: list[int]) -> list[Note]:
    """A member has read them, from offset 0 on."""
    return [Note(Kind.READ, partition, at, each, 2) for at, each in enumerate(messages)]


def appended(offset: int, message: int) -> Note:
    return Note(Kind.APPENDED, 0, offset, message, 1)


def test_the_verdict_sees_nothing_in_a_history_that_may_be() -> None:
    history = [APPENDING, appended(0, A), *seen(0, [A, C]), *seen(1, [B])]
    verdict = judge(observed([A, C], [B]), history)
    assert not verdict.wrong()
    assert (verdict.appended, verdict.again) == (1, 0)


def test_the_verdict_sees_a_record_that_is_lost() -> None:
    assert judge(observed([]), [APPENDING, appended(0, A)]).lost == {A}


def test_the_verdict_sees_an_offset_with_two_values() -> None:
    history = [APPENDING, appended(0, B), *seen(0, [A])]
    assert judge(observed([A]), history).divergent == {(0, 0)}


def test_the_verdict_sees_a_message_at_two_offsets() -> None:
    assert judge(observed([A, A]), [APPENDING, *seen(0, [A, A])]).doubled == {A}


def test_the_verdict_sees_a_message_that_was_never_appended() -> None:
    assert judge(observed([C]), seen(0, [C])).unexpected == {C}


def test_the_verdict_sees_a_key_out_of_order_and_one_in_two_partitions() -> None:
    history = [APPENDING, *seen(0, [C, A])]
    assert judge(observed([C, A]), history).out_of_order == {A}
    history = [APPENDING, *seen(0, [A]), *seen(1, [C])]
    assert judge(observed([A], [C]), history).apart == {C}


def test_the_verdict_sees_a_record_that_no_member_has_read() -> None:
    assert judge(observed([A, C]), [APPENDING, *seen(0, [A])]).unread == {(0, 1)}
