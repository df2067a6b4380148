"""Groups that share a stream: records lent one by one, settled one by one.

Other levels: c/test_group_state.c, prove/crash/group_runner.py.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import shmq
from shmq import Broker, Stream
from tests.support.waiting import PATIENCE, eventually

from .conftest import Connect
from .tools import LATER, drain


@pytest.fixture
def stream(broker: Broker) -> Stream:
    """A stream of two partitions with five records each."""
    stream = broker.create_stream("events", 2, ring_bytes=64 << 10)
    for partition in range(2):
        stream.append_many([b"%d" % n for n in range(5)], partition=partition)
    return stream


@pytest.fixture
def other(connect: Connect, stream: Stream) -> Iterator[Stream]:
    """The same stream, from another client."""
    with connect().stream(stream.name) as other:
        yield other


def test_each_record_is_lent_to_one_member(stream: Stream, other: Stream) -> None:
    with stream.share("g") as one, other.share("g") as two:
        mine, theirs = one.get_many(4), two.get_many(100, timeout=0)
        places = [(record.partition, record.offset) for record in (*mine, *theirs)]
        assert sorted(places) == [(p, n) for p in range(2) for n in range(5)]
        with pytest.raises(shmq.Empty):
            one.get(timeout=0)


@pytest.mark.parametrize("second", [np.int64(1), np.float32(1), timedelta(seconds=1)])
def test_the_numbers_of_a_group_may_be_of_any_type(stream: Stream, second: Any) -> None:
    options: dict[str, Any] = {"held": np.int8(4), "max_deliveries": np.uint8(2)}
    share: Any
    with stream.share("g", lease=second, **options) as share:
        assert share.lease == 1
        assert len(share.get_many(np.int64(9), timeout=np.float16(1))) == 4


def test_a_record_shows_what_was_appended(stream: Stream) -> None:
    stream.append({"n": 1}, key="k", headers={"a": "b"}, partition=0)
    with stream.share("g", start="latest") as share:
        stream.append({"n": 2}, key="k", headers={"a": "c"}, partition=0)
        record = share.get(timeout=PATIENCE)
        assert (record.body, record.key, record.headers) == ({"n": 2}, b"k", {"a": "c"})
        assert record.delivery_count == 1
        assert not record.settled
        record.ack()
        assert record.settled
        with pytest.raises(shmq.AlreadySettled, match=r"settled by ack\(\)"):
            record.reject()


def test_a_record_keeps_the_member_that_it_is_lent_to(stream: Stream) -> None:
    record = stream.share("g").get()
    gc.collect()
    record.ack()
    assert record.settled
    del record
    gc.collect()
    eventually(lambda: stream.groups()[0].members == 0, "the member has left")


def test_a_stuck_record_holds_up_nothing(stream: Stream) -> None:
    with stream.share("g", held=4) as share:
        stuck = share.get()
        assert sum(1 for record in share.consume(prefetch=2, timeout=0) if not record.ack()) == 9
        assert stream.groups()[0].held == 1
        stuck.ack()
    (line,) = stream.groups()
    assert (line.assignment, line.acked, line.lag, line.held) == ("shared", 10, 0, 0)


def test_what_is_returned_comes_again_and_counts(stream: Stream, other: Stream) -> None:
    with stream.share("g", max_deliveries=None) as one, other.share("g") as two:
        records = one.get_many(10)
        records[3].nack()
        again = two.get(timeout=PATIENCE)
        assert (again.offset, again.partition) == (records[3].offset, records[3].partition)
        assert again.delivery_count == 2
        again.nack(delay=LATER)
        with pytest.raises(shmq.Empty):
            two.get(timeout=0)


def test_an_uncounted_nack_of_a_record_is_as_if_it_had_not_been_delivered(stream: Stream) -> None:
    with stream.share("g", max_deliveries=2) as share:
        share.get_many(10)[3].nack()
        for _ in range(3):
            record = share.get(timeout=PATIENCE)
            assert record.delivery_count == 2
            record.nack(counted=False)
        share.get(timeout=PATIENCE).nack()
    assert stream.groups()[0].dropped == 1


def test_a_record_settles_itself_at_the_end_of_its_block(stream: Stream) -> None:
    with stream.share("g") as share:
        with share.get() as record:
            pass
        assert record.settled
        with pytest.raises(ZeroDivisionError), share.get() as record:
            raise ZeroDivisionError
        assert share.get_many(1)[0].delivery_count == 2


def test_a_lease_that_ends_gives_the_record_to_another(stream: Stream, other: Stream) -> None:
    # A pause of this machine must not end the leases of the second member, too.
    with stream.share("g", lease=LATER) as one, other.share("g") as two:
        late = list(one.get_many(10))
        kept = late.pop()
        for record in late:
            record.extend(0.02)
        again: list[shmq.SharedRecord] = []
        while len(again) < 9:
            again += two.get_many(10, timeout=PATIENCE)
        assert {record.delivery_count for record in again} == {2}
        with pytest.raises(shmq.LeaseExpired):
            late[0].ack()
        kept.ack()


def test_a_member_that_leaves_returns_what_it_has_not_settled(
    stream: Stream, other: Stream
) -> None:
    with other.share("g", lease=LATER) as two:
        with stream.share("g") as one:
            one.get_many(10)
        assert len(two.get_many(10, timeout=PATIENCE)) == 10


@pytest.mark.only_local("the process that dies is forked here")
def test_what_a_dead_member_had_is_lent_again_at_once(stream: Stream) -> None:
    reading, writing = os.pipe()
    victim = os.fork()
    if victim == 0:
        with stream.share("g", lease=LATER) as share:
            share.get_many(10)
            os.write(writing, b"x")
            signal.pause()
    os.read(reading, 1)
    os.kill(victim, signal.SIGKILL)
    os.waitpid(victim, 0)
    os.close(reading)
    os.close(writing)
    with stream.share("g") as share:
        records = share.get_many(10, timeout=PATIENCE)
        assert {record.delivery_count for record in records} == {2}


def test_what_was_not_handed_out_does_not_count(stream: Stream) -> None:
    with stream.share("g", max_deliveries=1, lease=LATER) as share:
        records = share.consume(prefetch=5)
        next(records).ack()
        records.close()  # type: ignore[attr-defined]
        rest = share.get_many(10, timeout=PATIENCE)
        assert {record.delivery_count for record in rest} == {1}


def test_at_the_limit_a_record_is_dropped_and_counted(stream: Stream) -> None:
    with stream.share("g", max_deliveries=2) as share:
        place = set()
        for _ in range(2):
            (bad,) = [r for r in share.get_many(10) if r.offset == 2 and r.partition == 1]
            place.add(bad.delivery_count)
            bad.nack()
            if bad.delivery_count == 1:
                continue
        assert place == {1, 2}
        with pytest.raises(shmq.Empty):
            share.get(timeout=0)
        assert stream.groups()[0].dropped == 1


def test_at_the_limit_a_record_goes_to_the_dead_letters(broker: Broker, stream: Stream) -> None:
    dead_letter_queue = broker.create_queue("dead_letter_queues")
    with stream.share("g", max_deliveries=1, dead_letter="dead_letter_queues") as share:
        share.get_many(10)[0].nack()
        stream.append(b"rejected", key="k", partition=0)
        share.get(timeout=PATIENCE).reject()
        with pytest.raises(shmq.Empty):
            share.get(timeout=0)
    dead = [dead_letter_queue.get(), dead_letter_queue.get()]
    assert [message.body for message in dead] == [b"0", b"rejected"]
    assert dead[1].headers["shmq-stream"] == "events"
    assert dead[1].headers["shmq-offset"] == 5
    assert dead[1].headers["shmq-key"] == b"k"
    assert stream.groups()[0].dead_lettered == 2


def test_a_dead_letter_queue_has_to_be_there(stream: Stream) -> None:
    with pytest.raises(shmq.NoSuchQueue):
        stream.share("g", dead_letter="nowhere")
    assert stream.groups() == []


def test_without_their_queue_dead_letters_are_dropped_and_lending_goes_on(
    broker: Broker, stream: Stream
) -> None:
    broker.create_queue("dead_letter_queues")
    with stream.share("g", max_deliveries=1, dead_letter="dead_letter_queues", held=2) as share:
        share.get().reject()
        share.get()
        broker.delete_queue("dead_letter_queues")
        for _ in range(3):
            share.get(timeout=PATIENCE).reject()
        dead_letter_queue = broker.create_queue("dead_letter_queues")
        share.get(timeout=PATIENCE)
        assert drain(dead_letter_queue) != []
        (line,) = stream.groups()
    assert (line.dead_lettered, line.dropped) == (2, 2)


def test_no_more_is_lent_than_the_group_may_hold(stream: Stream) -> None:
    with stream.share("g", held=3) as share:
        records = share.get_many(10)
        assert len(records) == 3
        with pytest.raises(shmq.Empty):
            share.get(timeout=0)
        assert share.ack_many([record.receipt for record in records]) == []
        assert share.ack_many([records[0].receipt]) == [records[0].receipt]
        assert len(share.get_many(10)) == 3


def test_a_waiting_member_gets_what_comes(stream: Stream, other: Stream) -> None:
    with stream.share("g", start="latest") as share:
        with pytest.raises(shmq.Empty):
            share.get(timeout=0)
        other.append(b"late", partition=1)
        assert share.get(timeout=PATIENCE).value == b"late"


def test_what_was_overwritten_is_passed_over_and_counted(broker: Broker) -> None:
    stream = broker.create_stream("small", 1, ring_bytes=64 << 10)
    with stream.share("g") as share:
        stream.append_many([b"x" * 1000] * 10, partition=0)
        held = share.get()
        stream.append_many([b"y" * 1000] * 200, partition=0)
        record = share.get()
        assert record.offset >= stream.earliest(0) > 10
        held.nack()
        eventually(lambda: stream.groups()[0].skipped >= 10, "the lost ones are counted")


def test_what_is_not_settled_is_kept_where_appends_wait(broker: Broker) -> None:
    stream = broker.create_stream("kept", 1, ring_bytes=64 << 10, overflow="block")
    with stream.share("g") as share:
        stuck = None
        with pytest.raises(shmq.Full):
            for _ in range(200):
                stream.append(b"x" * 1000, partition=0, block=False)
                record = share.get()
                stuck = stuck or record
                if record is not stuck:
                    record.ack()
        assert stream.earliest(0) == 0
        assert stuck is not None
        stuck.ack()
        with pytest.raises(shmq.Empty):
            share.get(block=False)
        stream.append_many([b"x" * 1000] * 20, partition=0, block=False)


def test_an_unknown_option_is_refused_with_the_nearest_known_one(stream: Stream) -> None:
    with pytest.raises(shmq.InvalidOption, match=r"leese.*lease"):
        stream.share("work", leese=5)  # type: ignore[call-arg]
    assert stream.groups() == []


def test_every_group_shares_for_itself(stream: Stream) -> None:
    with stream.share("a") as a, stream.share("b") as b:
        assert len(a.get_many(10)) == len(b.get_many(10)) == 10
    with pytest.raises(shmq.InvalidOption):
        stream.group("a", "range")
