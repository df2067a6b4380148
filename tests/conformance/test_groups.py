"""Groups: the owner of each partition, committed offsets, and what becomes of both.

Other levels: c/test_group_state.c, system/wire/test_groups.py, conformance/models/test_groups.py,
prove/crash/group_runner.py.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

import shmq
from shmq import Broker, Member, Stream
from tests.support.waiting import PATIENCE, eventually

from .conftest import Connect
from .tools import LATER, SOON

PARTITIONS = 4


@pytest.fixture
def stream(broker: Broker) -> Stream:
    """A stream of four partitions with three records each."""
    stream = broker.create_stream("events", PARTITIONS, ring_bytes=64 << 10)
    for partition in range(PARTITIONS):
        stream.append_many([b"%d-%d" % (partition, n) for n in range(3)], partition=partition)
    return stream


@pytest.fixture
def other(connect: Connect, stream: Stream) -> Iterator[Stream]:
    """The same stream, from another client."""
    with connect().stream(stream.name) as other:
        yield other


def polled(*members: Member) -> None:
    """Let the members see what has become of each other, until they have all partitions."""

    def at_rest() -> bool:
        for member in members:
            member.poll(1)
        return set().union(*(member.assignment for member in members)) == set(range(PARTITIONS))

    eventually(at_rest, "the members have all partitions")


def test_one_member_reads_all_and_every_group_for_itself(stream: Stream) -> None:
    for name in ("a", "b"):
        with stream.group(name).join() as member:
            found = [value for records in member.poll() for value in records.values()]
        assert sorted(found) == sorted(
            b"%d-%d" % (partition, n) for partition in range(PARTITIONS) for n in range(3)
        )


@pytest.mark.parametrize("assignment", ["range", "round-robin", "sticky"])
def test_members_divide_the_partitions_and_none_is_two_members(
    stream: Stream, other: Stream, assignment: shmq.api.Assignment
) -> None:
    with stream.group("g", assignment).join() as one, other.group("g").join() as two:
        polled(one, two)
        assert one.assignment | two.assignment == set(range(PARTITIONS))
        assert not one.assignment & two.assignment
        assert len(one.assignment) == len(two.assignment) == 2


def test_a_newcomer_waits_until_a_partition_was_let_go(stream: Stream, other: Stream) -> None:
    revoked: list[frozenset[int]] = []
    with stream.group("g", "sticky").join(on_revoked=revoked.append) as one:
        one.poll()
        with other.group("g").join() as two:
            two.poll()
            assert two.assignment == set()
            assert one.assignment == set(range(PARTITIONS))
            eventually(
                lambda: bool(one.poll(1) + two.poll(1) or True) and len(two.assignment) == 2,
                "the newcomer has its share",
            )
            assert revoked == [two.assignment]


def test_what_is_committed_is_where_the_next_one_goes_on(stream: Stream, other: Stream) -> None:
    with stream.group("g").join() as one:
        one.poll(2)
        one.commit()
        one.poll(1)
        assert one.committed() == dict.fromkeys(range(PARTITIONS), 2)
        assert one.position == dict.fromkeys(range(PARTITIONS), 3)
    with other.group("g").join() as two:
        assert two.position == dict.fromkeys(range(PARTITIONS), 2)
        assert {records[0].offset for records in two.poll()} == {2}


def test_what_was_read_ahead_is_not_committed(stream: Stream) -> None:
    with stream.group("g").join(timeout=0) as member:
        first = next(member)
        member.commit()
        assert member.committed()[first.partition] == 1
        assert sum(offset or 0 for offset in member.committed().values()) == 1
        assert len(list(member)) == 3 * PARTITIONS - 1
        member.commit()
    assert set(stream.group("g").committed().values()) == {3}


def test_iteration_and_poll_go_on_from_the_same_position(stream: Stream) -> None:
    with stream.group("g").join(timeout=0) as member:
        first = next(member)
        rest = [record for records in member.poll() for record in records]
        assert len(rest) == 3 * PARTITIONS - 1
        assert (first.partition, first.offset) not in {(it.partition, it.offset) for it in rest}
        assert list(member) == []


def test_a_commit_in_a_partition_of_another_is_fenced(stream: Stream, other: Stream) -> None:
    with stream.group("g").join() as one, other.group("g").join() as two:
        polled(one, two)
        (lost, *_) = two.assignment
        (kept, *_) = one.assignment
        with pytest.raises(shmq.MemberFenced, match=str(lost)):
            one.commit({lost: 1, kept: 1})
        assert one.committed()[kept] == 1
        assert two.committed()[lost] is None
        with pytest.raises(shmq.MemberFenced):
            one.seek(lost, 0)


def test_a_member_that_leaves_leaves_its_partitions(stream: Stream, other: Stream) -> None:
    with stream.group("g").join() as one:
        with other.group("g").join() as two:
            polled(one, two)
        polled(one)
        assert one.assignment == set(range(PARTITIONS))
        assert [member.id for member in stream.group("g").members()] == [one.id]
        with pytest.raises(shmq.ShmqError, match="left"):
            two.poll()


def test_a_silent_member_is_out_and_comes_back_as_another(stream: Stream, other: Stream) -> None:
    revoked: list[frozenset[int]] = []
    group = stream.group("g", session_timeout=0.05)
    silent = group.join(on_revoked=revoked.append)
    before = silent.id
    with other.group("g").join() as two:
        eventually(
            lambda: bool(two.poll(1) or True) and len(two.assignment) == PARTITIONS,
            "the other has all partitions",
        )
        with pytest.raises(shmq.MemberFenced):
            silent.commit({0: 1})
        with pytest.raises(shmq.MemberFenced):
            silent.heartbeat()
        silent.poll()
        assert silent.id > before
        assert revoked == [frozenset(range(PARTITIONS))]
        assert stream.groups()[0].evicted >= 1
    silent.close()


def test_a_member_that_comes_back_reads_from_what_is_committed(
    stream: Stream, other: Stream
) -> None:
    group = stream.group("g", session_timeout=0.05)
    with group.join() as silent, other.group("g").join() as two:
        eventually(
            lambda: bool(two.poll(1) or True) and len(two.assignment) == PARTITIONS,
            "the other has all partitions",
        )
        two.close()
        silent.poll(1)
        eventually(
            lambda: bool(silent.poll(1) or True) and len(silent.assignment) == PARTITIONS,
            "it has all of them again",
        )
        assert set(silent.position.values()) <= {1, 2, 3}
        silent.poll()
        assert set(silent.position.values()) == {3}


def test_a_heartbeat_keeps_a_member(stream: Stream) -> None:
    with stream.group("g", session_timeout=LATER).join() as member:
        member.heartbeat()
        assert [it.id for it in stream.group("g").members()] == [member.id]


@pytest.mark.only_local("the process that dies is forked here")
def test_a_dead_members_partitions_are_served_again_at_once(stream: Stream) -> None:
    with stream.group("g", session_timeout=LATER).join() as one:
        victim = os.fork()
        if victim == 0:
            with stream.group("g").join() as two:
                while True:
                    two.poll(1, 0.01)
        try:
            eventually(
                lambda: bool(one.poll(1) or True) and len(one.assignment) == 2, "both have some"
            )
            eventually(
                lambda: {len(it.partitions) for it in stream.group("g").members()} == {2},
                "the victim has the others",
            )
        finally:
            os.kill(victim, signal.SIGKILL)
            os.waitpid(victim, 0)
        eventually(
            lambda: bool(one.poll(1) or True) and len(one.assignment) == PARTITIONS,
            "one has all of them again",
        )
        assert stream.groups()[0].evicted == 1


def test_a_paused_partition_is_kept_and_not_read(stream: Stream) -> None:
    with stream.group("g").join() as member:
        member.pause(1, 2)
        assert {records.partition for records in member.poll()} == {0, 3}
        assert member.paused == {1, 2}
        assert member.poll() == []
        member.resume(1)
        assert {records.partition for records in member.poll()} == {1}
        member.resume()
        assert {records.partition for records in member.poll()} == {2}


def test_a_member_can_go_on_elsewhere(stream: Stream) -> None:
    with stream.group("g").join() as member:
        member.poll()
        member.seek(2, 1)
        (records,) = member.poll()
        assert [record.offset for record in records] == [1, 2]
        with pytest.raises(shmq.InvalidOption):
            member.seek(2, -1)


def test_the_lag_is_what_is_not_done(stream: Stream) -> None:
    group = stream.group("g")
    assert group.lag() == dict.fromkeys(range(PARTITIONS), 3)
    with group.join() as member:
        member.poll(2)
        assert member.lag() == dict.fromkeys(range(PARTITIONS), 1)
        assert set(group.lag().values()) == {3}
        member.commit()
        assert set(group.lag().values()) == {1}
        assert {it.member for it in group.partitions()} == {member.id}
    (line,) = stream.groups()
    assert (line.name, line.assignment, line.members, line.lag) == ("g", "range", 0, PARTITIONS)


def test_a_group_that_starts_at_the_end_stays_there(stream: Stream) -> None:
    with stream.group("g", start="latest").join() as member:
        assert member.poll() == []
    stream.append(b"new", partition=1)
    with stream.group("g").join() as member:
        (records,) = member.poll()
        assert records.values() == [b"new"]


def test_a_group_without_members_can_be_reset(stream: Stream) -> None:
    group = stream.group("g")
    with group.join() as member:
        member.poll()
        member.commit()
        with pytest.raises(shmq.MemberFenced, match="being read"):
            group.reset("earliest")
    assert group.reset("earliest", [1]) == {1: 0}
    assert group.reset({2: 1}) == {2: 1}
    assert group.committed() == {0: 3, 1: 0, 2: 1, 3: 3}
    assert group.reset(0.0) == dict.fromkeys(range(PARTITIONS), 0)
    with pytest.raises(shmq.InvalidOption):
        group.reset({9: 0})


def test_a_waiting_member_gets_what_comes(stream: Stream, other: Stream) -> None:
    with stream.group("g", start="latest").join() as member:
        member.poll()
        other.append(b"late", partition=3)
        (records,) = member.poll(timeout=PATIENCE)
        assert records.values() == [b"late"]


def test_records_that_are_gone_raise_or_are_passed_over(broker: Broker) -> None:
    stream = broker.create_stream("small", 1, ring_bytes=64 << 10)
    stream.append_many([b"x" * 1000] * 200, partition=0)
    stream.group("g").reset({0: 0})
    with stream.group("g").join() as member, pytest.raises(shmq.OffsetOutOfRange):
        member.poll()
    with stream.group("g").join(lapped="skip") as member:
        assert member.poll(1)
        assert member.lost == stream.earliest(0)


def lap(broker: Broker) -> Stream:
    """A stream of three partitions, of which the second has lost its first records."""
    stream = broker.create_stream("small", 3, ring_bytes=64 << 10)
    stream.append_many([b"x" * 1000] * 200, partition=1)
    for partition in (0, 2):
        stream.append_many([b"a", b"b"], partition=partition)
    return stream


def lapped(stream: Stream, error: shmq.OffsetOutOfRange) -> bool:
    """Whether the error names the partition, the offset, the bounds and the remedy."""
    earliest = stream.earliest(1)
    bounds = f"the oldest is {earliest}, and the next one is 200; seek to {earliest}"
    assert f"offset 0 of partition 1 of stream 'small' is gone: {bounds}" in str(error)
    return (error.partition, error.asked, error.earliest, error.latest) == (1, 0, earliest, 200)


def test_a_partition_whose_records_are_gone_does_not_stop_the_others(broker: Broker) -> None:
    stream = lap(broker)
    stream.group("g").reset(dict.fromkeys(range(3), 0))
    with stream.group("g").join() as member:
        for text in (b"c", b"d", b"e"):
            values: list[bytes] = []
            problems = 0
            while text not in values or not problems:
                try:
                    found = member.poll()
                except shmq.OffsetOutOfRange as error:
                    assert lapped(stream, error)
                    problems += 1
                    stream.append(text, partition=2)
                else:
                    assert {each.partition for each in found} <= {0, 2}
                    values += [record.value for each in found for record in each]
        assert member.position[0] == 2
        member.seek(1, stream.earliest(1))
        while member.position[1] < 200:
            member.poll(timeout=PATIENCE)


def test_a_reader_reads_its_other_partitions_on_and_names_the_lapped_one(broker: Broker) -> None:
    stream = lap(broker)
    reader = stream.reader(dict.fromkeys(range(3), 0), timeout=0.0)
    values = [next(reader).value for _ in range(4)]
    assert sorted(values) == [b"a", b"a", b"b", b"b"]
    for _ in range(2):
        with pytest.raises(shmq.OffsetOutOfRange) as caught:
            next(reader)
        assert lapped(stream, caught.value)
    stream.append(b"c", partition=0)
    assert [each.partition for each in reader.poll()] == [0]
    reader.seek({1: 190})
    assert [next(reader).offset for _ in range(10)] == list(range(190, 200))
    with pytest.raises(shmq.OffsetOutOfRange) as caught:
        stream.read(1, 0)
    assert lapped(stream, caught.value)


def test_a_reader_of_a_task_reads_its_other_partitions_on(broker: Broker) -> None:
    stream = lap(broker)

    async def read() -> list[bytes]:
        reader = stream.areader(dict.fromkeys(range(3), 0), timeout=0.0)
        values = [(await anext(reader)).value for _ in range(4)]
        with pytest.raises(shmq.OffsetOutOfRange) as caught:
            await anext(reader)
        assert lapped(stream, caught.value)
        with pytest.raises(shmq.OffsetOutOfRange) as caught:
            await stream.aread(1, 0, timeout=0.0)
        assert lapped(stream, caught.value)
        stream.append(b"c", partition=0)
        return [*values, (await anext(reader)).value]

    assert sorted(asyncio.run(read())) == [b"a", b"a", b"b", b"b", b"c"]


def test_what_a_group_has_not_done_is_kept_where_appends_wait(broker: Broker) -> None:
    stream = broker.create_stream("kept", 1, ring_bytes=64 << 10, overflow="block")
    with stream.group("g").join() as member:
        with pytest.raises(shmq.Full):
            for _ in range(200):
                stream.append(b"x" * 1000, partition=0, block=False)
        assert stream.earliest(0) == 0
        member.poll(40)
        member.commit()
        stream.append(b"x" * 1000, partition=0, block=False)
        assert stream.earliest(0) <= 40
    with pytest.raises(shmq.Full):
        for _ in range(200):
            stream.append(b"x" * 1000, partition=0, block=False)
    stream.delete_group("g")
    stream.append_many([b"x" * 1000] * 200, partition=0, block=False)


def test_an_expression_leaves_out_records_and_they_are_done(stream: Stream) -> None:
    stream.append({"n": 7}, partition=0)
    with stream.group("g").join(where="codec = 'msgpack'", timeout=0) as member:
        assert [record.body for record in member] == [{"n": 7}]
        member.commit({0: 4})


def test_what_an_expression_leaves_out_is_passed_over_though_nothing_is_found(
    stream: Stream, other: Stream
) -> None:
    group = stream.group("g")
    with group.join(where="codec = 'msgpack'") as member:
        assert member.poll(timeout=SOON) == []
        assert member.position == dict.fromkeys(range(PARTITIONS), 3)
        member.commit()
        assert set(group.lag().values()) == {0}
    stream.append({"n": 7}, partition=0)
    stream.append(b"more", partition=0)
    with other.group("g").join(where="codec = 'msgpack'", timeout=0) as member:
        assert [record.body for record in member] == [{"n": 7}]
        member.commit()
    assert group.committed() == {0: 5, 1: 3, 2: 3, 3: 3}


def test_what_an_expression_leaves_out_is_passed_over_before_what_is_read_ahead(
    stream: Stream,
) -> None:
    for partition in range(PARTITIONS):
        stream.append({"n": partition}, partition=partition)
    with stream.group("g").join(where="codec = 'msgpack'", timeout=0) as member:
        first = next(member)
        behind = {first.partition: first.offset + 1}
        assert member.position == dict.fromkeys(range(PARTITIONS), 3) | behind
        member.commit()
    with stream.group("g").join(where="codec = 'msgpack'", timeout=0) as member:
        assert len(list(member)) == PARTITIONS - 1


def test_a_deleted_group_tells_its_members_and_is_forgotten(stream: Stream) -> None:
    member = stream.group("g").join()
    member.commit({0: 1})
    stream.delete_group("g")
    with pytest.raises(shmq.StreamDeleted, match="group 'g' was deleted"):
        for _ in range(1000):
            member.poll(timeout=SOON)
    member.close()
    assert stream.groups() == []
    assert stream.group("g").committed()[0] is None
    with pytest.raises(shmq.NoSuchGroup):
        stream.delete_group("h")


def test_a_deleted_group_is_not_made_again_by_a_look_at_it(stream: Stream) -> None:
    group = stream.group("g")
    stream.delete_group("g")
    for look in (group.lag, group.committed, group.members, group.join):
        with pytest.raises(shmq.StreamDeleted, match="group 'g'"):
            look()
    with pytest.raises(shmq.StreamDeleted, match="group 'g'"):
        group.reset("latest")
    assert stream.groups() == []
    stream.group("g")
    with pytest.raises(shmq.StreamDeleted, match="group 'g'"):
        group.lag()


def test_a_group_is_observed_without_being_created(stream: Stream, other: Stream) -> None:
    with pytest.raises(shmq.NoSuchGroup, match="'events' has no group 'absent'"):
        other.group("absent", create=False)
    assert stream.groups() == []
    stream.group("billing", "sticky", session_timeout=3).reset("latest", [0])
    found = other.group("billing", create=False)
    assert (found.assignment, found.session_timeout) == ("sticky", 3)
    assert found.lag() == {0: 0, 1: 3, 2: 3, 3: 3}
    with pytest.raises(shmq.InvalidOption, match="sticky"):
        other.group("billing", "range", create=False)
    with pytest.raises(shmq.NoSuchGroup, match="did you mean 'billing'"):
        other.group("biling", create=False)
    stream.delete_group("billing")
    with pytest.raises(shmq.NoSuchGroup):
        other.group("billing", create=False)
    for look in (found.lag, found.committed, found.members, found.join):
        with pytest.raises(shmq.StreamDeleted, match="group 'billing'"):
            look()
    assert stream.groups() == []


def test_a_stream_takes_its_groups_with_it(broker: Broker, stream: Stream) -> None:
    member = stream.group("g").join()
    member.commit({0: 3})
    broker.delete_stream("events")
    with pytest.raises(shmq.StreamDeleted):
        member.poll()
    again = broker.create_stream("events", 1)
    assert again.groups() == []
    assert again.group("g").committed() == {0: None}


def test_a_group_keeps_the_options_it_was_made_with(stream: Stream, other: Stream) -> None:
    stream.group("g", "sticky", session_timeout=3)
    assert other.group("g").assignment == "sticky"
    assert other.group("g", session_timeout=9).session_timeout == 3
    with pytest.raises(shmq.InvalidOption, match="sticky"):
        other.group("g", "range")
    with pytest.raises(shmq.InvalidOption, match="share"):
        other.share("g")


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda s: s.group("a b"), shmq.InvalidName),
        (lambda s: s.group("g", "fair"), shmq.InvalidOption),
        (lambda s: s.group("g", session_timeout=0), shmq.InvalidOption),
        (lambda s: s.group("g", start="middle"), shmq.InvalidOption),
        (lambda s: s.group("g").join(limit=0), shmq.InvalidOption),
        (lambda s: s.group("g").join(lapped="no"), shmq.InvalidOption),
        (lambda s: s.group("g").join().commit({0: -1}), shmq.InvalidOption),
        (lambda s: s.group("g").join().poll(0), shmq.InvalidOption),
    ],
)
def test_what_makes_no_sense_is_refused(
    stream: Stream, call: object, error: type[Exception]
) -> None:
    with pytest.raises(error):
        call(stream)  # type: ignore[operator]


def test_the_rates_tell_which_partition_is_hot(broker: Broker) -> None:
    stream = broker.create_stream("rates", 8)
    for partition in range(8):
        stream.append(b"", partition=partition)
    assert [rate.hot for rate in stream.rates(LATER)] == [False] * 8
    stream.append_many([b""] * 99, partition=5)
    (hot,) = stream.hot(LATER)
    assert (hot.partition, hot.hot) == (5, True)
    assert hot.share == pytest.approx(100 / ((7 + 100) / 8))
    with pytest.raises(shmq.InvalidOption):
        stream.rates(0)
