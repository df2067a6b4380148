"""Groups and their members: misuse is refused, and what fails harms no other member."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import shmq
from shmq import Broker, Stream
from tests.support.waiting import eventually

from .conftest import Connect

NAN = float("nan")
HUGE = 1 << 70


@pytest.fixture
def stream(broker: Broker) -> Stream:
    """A stream of two partitions with three records each."""
    stream = broker.create_stream("events", 2, ring_bytes=64 << 10)
    for partition in range(2):
        stream.append_many([b"%d" % n for n in range(3)], partition=partition)
    return stream


@pytest.fixture
def other(connect: Connect, stream: Stream) -> Iterator[Stream]:
    """The same stream, from another client."""
    with connect().stream(stream.name) as other:
        yield other


# ---- callbacks ----


def test_a_callback_that_fails_does_not_hold_up_the_handover(stream: Stream, other: Stream) -> None:
    def fail(_: frozenset[int]) -> None:
        raise ZeroDivisionError

    with stream.group("g").join(on_revoked=fail) as one, other.group("g").join() as two:
        with pytest.raises(ZeroDivisionError):
            eventually(lambda: bool(one.poll()) and False, "the callback is called")
        eventually(
            lambda: bool(one.poll(1) + two.poll(1) or True) and len(two.assignment) == 1,
            "the newcomer has its share",
        )
        assert len(one.assignment) == 1
        one._on_revoked = None  # type: ignore[attr-defined]


def test_a_callback_may_close_its_member(stream: Stream, other: Stream) -> None:
    told: list[frozenset[int]] = []

    def leave(partitions: frozenset[int]) -> None:
        told.append(partitions)
        member.close()

    member = stream.group("g").join(on_revoked=leave)
    with other.group("g").join() as two:
        assert list(member) == []
        eventually(
            lambda: bool(two.poll(1) or True) and len(two.assignment) == 2, "the other has both"
        )
        assert len(two.assignment | told[0]) == 2
    assert len(told) == 1
    with pytest.raises(shmq.ShmqError, match="left"):
        member.poll()


def test_a_member_that_is_told_so_as_it_leaves_may_close_itself(stream: Stream) -> None:
    told: list[frozenset[int]] = []

    def leave(partitions: frozenset[int]) -> None:
        told.append(partitions)
        member.close()

    member = stream.group("g").join(on_revoked=leave)
    member.close()
    assert told == [frozenset({0, 1})]
    assert stream.group("g").members() == []


def test_a_member_whose_on_assigned_fails_does_not_join(stream: Stream) -> None:
    def fail(_: frozenset[int]) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        stream.group("g").join(on_assigned=fail)
    assert stream.group("g").members() == []


# ---- forks ----


def in_child(work: Callable[[], object]) -> str:
    """The error that ``work`` raises in a fork of this process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            os.write(writing, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as said:
        text = said.read().decode()
    os.waitpid(child, 0)
    return text


@pytest.mark.parametrize(
    "act",
    [
        lambda member: member.commit(),
        lambda member: member.commit({0: 3}),
        next,
        lambda member: member.poll(),
        lambda member: member.seek(0, 0),
        lambda member: member.heartbeat(),
    ],
)
def test_the_child_of_a_fork_is_not_its_parents_member(
    stream: Stream, act: Callable[[Any], object]
) -> None:
    with stream.group("g").join() as member:
        next(member)
        assert "does not survive a fork" in in_child(lambda: act(member))
        assert set(member.committed().values()) == {None}
        member.commit()


@pytest.mark.parametrize(
    "act",
    [
        lambda share, record: record.ack(),
        lambda share, record: record.nack(),
        lambda share, record: record.reject(),
        lambda share, record: record.extend(),
        lambda share, record: share.ack_many([record.receipt]),
        lambda share, record: share.get(timeout=0),
        lambda share, record: next(share.consume(timeout=0)),
    ],
)
def test_the_child_of_a_fork_settles_nothing_of_its_parents(
    stream: Stream, act: Callable[[Any, Any], object]
) -> None:
    with stream.share("g") as share:
        record = share.get()
        assert "does not survive a fork" in in_child(lambda: act(share, record))
        record.ack()


def test_what_a_child_reads_no_further_stays_its_parents(stream: Stream) -> None:
    with stream.share("g") as share:
        records = share.consume(prefetch=3)
        next(records).ack()
        assert in_child(records.close) == ""  # type: ignore[attr-defined]
        assert next(records).delivery_count == 1
        assert stream.groups()[0].held == 2


# ---- what has no meaning ----


def join(stream: Stream, **options: Any) -> Any:
    return stream.group("g").join(**options)


def share(stream: Stream, **options: Any) -> Any:
    return stream.share("shared", **options)


@pytest.mark.parametrize(
    "call",
    [
        lambda s: join(s, name=5),
        lambda s: join(s, on_assigned=5),
        lambda s: join(s, on_revoked="x"),
        lambda s: join(s, limit="5"),
        lambda s: join(s, timeout="5"),
        lambda s: join(s).poll(None),
        lambda s: join(s).poll("5"),
        lambda s: join(s).poll(timeout="5"),
        lambda s: join(s).commit(5),
        lambda s: join(s).commit("x"),
        lambda s: join(s).commit([]),
        lambda s: join(s).commit({None: 0}),
        lambda s: join(s).commit({0: None}),
        lambda s: join(s).commit({0: True}),
        lambda s: join(s).seek("x", 0),
        lambda s: join(s).seek(0, 1.5),
        lambda s: join(s).pause([]),
        lambda s: s.group("g").reset({0: True}),
        lambda s: s.group("g").reset({"0": 0}),
        lambda s: s.group("g").reset("earliest", ["0"]),
        lambda s: s.group("g", session_timeout="5"),
        lambda s: share(s, member=5),
        lambda s: share(s, lease="5"),
        lambda s: share(s, max_deliveries=""),
        lambda s: share(s, max_deliveries=[]),
        lambda s: share(s, dead_letter=5),
        lambda s: share(s).get(timeout="5"),
        lambda s: share(s).consume(timeout=[]),
        lambda s: share(s).ack_many(5),
        lambda s: share(s).ack_many([None]),
        lambda s: share(s).ack_many(["x"]),
        lambda s: s.reader(timeout="5"),
        lambda s: s.areader(timeout="5"),
        lambda s: s.reader().poll("5"),
    ],
)
def test_another_type_is_refused(stream: Stream, call: Callable[[Any], object]) -> None:
    with pytest.raises(TypeError):
        call(stream)


@pytest.mark.parametrize(
    "call",
    [
        lambda s: join(s, timeout=NAN),
        lambda s: join(s, timeout=-1),
        lambda s: join(s).poll(timeout=NAN),
        lambda s: join(s).poll(timeout=-1),
        lambda s: join(s).commit({-1: 0}),
        lambda s: join(s).commit({HUGE: 0}),
        lambda s: join(s).commit({0: HUGE}),
        lambda s: join(s).commit({0: 4}),
        lambda s: join(s).seek(0, 1 << 63),
        lambda s: join(s).seek(-1, 0),
        lambda s: s.group("g").reset({0: HUGE}),
        lambda s: s.group("g").reset({0: 1 << 63}),
        lambda s: s.group("g").reset({0: 4}),
        lambda s: s.group("g").reset({HUGE: 0}),
        lambda s: s.group("g").reset("earliest", [-1]),
        lambda s: s.group("g", session_timeout=HUGE),
        lambda s: s.group("g", session_timeout=NAN),
        lambda s: share(s, lease=HUGE),
        lambda s: share(s, lease=NAN),
        lambda s: share(s, max_deliveries=0),
        lambda s: share(s, held=HUGE),
        lambda s: share(s).get(timeout=NAN),
        lambda s: share(s).get(timeout=-1),
        lambda s: share(s).get_many(2, timeout=NAN),
        lambda s: share(s).consume(timeout=NAN),
        lambda s: share(s).ack_many([-1]),
        lambda s: share(s).ack_many([HUGE]),
        lambda s: s.reader(timeout=NAN),
        lambda s: s.reader(timeout=-1),
        lambda s: s.areader(timeout=NAN),
        lambda s: s.reader().poll(NAN),
    ],
)
def test_what_is_out_of_range_is_refused(stream: Stream, call: Callable[[Any], object]) -> None:
    with pytest.raises(shmq.InvalidOption):
        call(stream)


def test_an_offset_that_is_refused_says_where_the_partition_ends(stream: Stream) -> None:
    with join(stream) as member, pytest.raises(shmq.InvalidOption, match=r"partition 1.*=9 .*3"):
        member.commit({1: 9})
    assert stream.group("g").committed() == {0: None, 1: None}


def test_a_name_that_is_no_text_is_taken_as_it_can_be(stream: Stream) -> None:
    with stream.group("g").join("a\ud800b"):
        assert [member.name for member in stream.group("g").members()] == ["a?b"]


# ---- what is gone ----


def test_a_deleted_streams_handle_makes_no_groups(broker: Broker, stream: Stream) -> None:
    broker.delete_stream(stream.name)
    for call in (
        lambda: stream.group("g"),
        lambda: stream.share("s"),
        stream.groups,
        lambda: stream.delete_group("g"),
    ):
        with pytest.raises(shmq.StreamDeleted):
            call()
    assert broker.create_stream(stream.name).groups() == []


def test_a_closed_handle_has_no_groups(stream: Stream, other: Stream) -> None:
    stream.group("g")
    other.close()
    for call in (
        lambda: other.group("g"),
        lambda: other.share("s"),
        other.groups,
        lambda: other.delete_group("g"),
    ):
        with pytest.raises(shmq.ShmqError, match="closed"):
            call()
    assert [group.name for group in stream.groups()] == ["g"]
