"""Transactions: all of what comes out and what went in, or nothing.

Other levels: unit/persistence/test_transactions.py, system/client/test_transactions.py,
prove/crash/transaction_runner.py, prove/recovery/test_transactions.py,
prove/soak/test_transactions.py.
"""

from __future__ import annotations

import pytest

import shmq
from shmq import Broker, Queue, Stream

from .conftest import Connect
from .tools import drain, in_thread, outcome

only_local = pytest.mark.only_local("what commits is a process of the host")


@pytest.fixture
def source(broker: Broker) -> Stream:
    """A stream of two partitions with ten records."""
    stream = broker.create_stream("source", 2)
    for n in range(10):
        stream.append(b"%d" % n, key=b"%d" % n)
    return stream


@pytest.fixture
def sink(broker: Broker) -> Stream:
    return broker.create_stream("sink", 3)


def values(stream: Stream) -> list[bytes]:
    return sorted(
        value
        for partition in range(stream.partitions)
        for value in stream.read(partition, stream.earliest(partition)).values()
    )


@only_local
def test_it_happens_when_the_block_is_left(
    broker: Broker, source: Stream, sink: Stream, queue: Queue
) -> None:
    member = source.group("g").join(timeout=0)
    with broker.transaction() as transaction:
        for record in member:
            transaction.append("sink", record.value, key=record.key)
        transaction.put(queue, {"done": 10}, headers={"a": 1}, priority=None, correlation="c")
        transaction.commit(member)
        assert values(sink) == []
        assert queue.qsize() == 0
        assert set(member.committed().values()) == {None}

    assert values(sink) == [b"%d" % n for n in range(10)]
    message = queue.get(block=False)
    assert (message.body, message.headers, message.correlation) == ({"done": 10}, {"a": 1}, "c")
    assert member.lag() == {0: 0, 1: 0}
    assert member.committed() == {p: source.latest(p) for p in range(2)}
    assert source.group("g").lag() == {0: 0, 1: 0}


@only_local
def test_an_exception_aborts_it(broker: Broker, source: Stream, sink: Stream, queue: Queue) -> None:
    queue.put(b"work")
    member = source.group("g").join(timeout=0)
    message = queue.get(block=False)
    with pytest.raises(ZeroDivisionError), broker.transaction() as transaction:
        transaction.append(sink, next(member).value)
        transaction.put(queue, b"more")
        transaction.commit(member)
        transaction.ack(queue, message)
        raise ZeroDivisionError

    assert values(sink) == []
    assert set(member.committed().values()) == {None}
    message.nack(delay=0)
    assert drain(queue) == [b"work"]


@only_local
def test_messages_are_acknowledged_with_what_comes_of_them(broker: Broker, queue: Queue) -> None:
    results = broker.create_queue("results")
    queue.put_many([b"1", b"2", b"3"])
    with broker.transaction() as transaction:
        for message in queue.get_many(3, block=False):
            transaction.put("results", message.body * 2)
            transaction.ack(queue, message)
            assert not message.settled

    assert message.settled
    assert (queue.stats().depth, queue.stats().in_flight, queue.stats().acked) == (0, 0, 3)
    assert drain(results) == [b"11", b"22", b"33"]


@only_local
def test_those_of_a_consumer_too(broker: Broker, queue: Queue, sink: Stream) -> None:
    queue.put_many([b"1", b"2", b"3"])
    for message in queue.consume(prefetch=2, block=False):
        with message:
            with broker.transaction() as transaction:
                transaction.append(sink, message.body)
                transaction.ack(queue, message)
            assert message.settled

    assert values(sink) == [b"1", b"2", b"3"]
    assert queue.stats().acked == 3


@only_local
def test_records_of_a_partition_stay_together_and_in_order(broker: Broker, sink: Stream) -> None:
    with broker.transaction() as transaction:
        transaction.append(sink, b"a", key="k", headers={"n": 1})
        transaction.append_many(sink, [b"b", b"c"], keys=["k", "k"])
        transaction.append_many(sink, [b"x", b"y"], partition=2)
        transaction.append(sink, b"z", partition=2)
        transaction.append(sink, {"e": 1}, partition=0)
    with broker.transaction() as transaction:
        transaction.append(sink, b"d", key="k")

    kept = [record for p in range(3) for record in sink.read(p, 0) if record.key == b"k"]
    assert [record.value for record in kept] == [b"a", b"b", b"c", b"d"]
    assert kept[0].headers == {"n": 1}
    assert [it.value for it in sink.read(2, 0) if it.key is None][-3:] == [b"x", b"y", b"z"]
    assert [it.body for it in sink.read(0, 0) if it.key is None] == [{"e": 1}]
    assert sink.append(b"e", key="k").partition == kept[0].partition


@only_local
def test_a_lease_that_was_lost_aborts_it(broker: Broker, queue: Queue, sink: Stream) -> None:
    queue.put_many([b"1", b"2"])
    kept, lost = queue.get_many(2, block=False)
    with pytest.raises(shmq.LeaseExpired), broker.transaction() as transaction:
        transaction.append(sink, b"result")
        transaction.put(queue, b"more")
        transaction.ack(queue, kept, lost)
        queue.ack(lost.receipt)

    assert values(sink) == []
    assert (queue.stats().depth, queue.stats().in_flight) == (0, 1)
    kept.ack()


@only_local
def test_a_member_that_lost_its_partitions_aborts_it(
    broker: Broker, source: Stream, sink: Stream
) -> None:
    member = source.group("g").join(timeout=0)
    with pytest.raises(shmq.MemberFenced), broker.transaction() as transaction:
        transaction.append(sink, next(member).value)
        transaction.commit(member)
        member.state.leave(member.id, True)  # type: ignore[attr-defined]

    assert values(sink) == []
    assert set(source.group("g").committed().values()) == {None}


@only_local
def test_offsets_may_be_given(broker: Broker, source: Stream) -> None:
    member = source.group("g").join(timeout=0)
    with broker.transaction() as transaction:
        transaction.commit(member, {0: 2})

    assert source.group("g").committed() == {0: 2, 1: None}
    with pytest.raises(shmq.MemberFenced), broker.transaction() as transaction:
        transaction.commit(member, {7: 2})


@only_local
def test_a_full_queue_aborts_it_unless_there_is_room_in_time(broker: Broker, sink: Stream) -> None:
    small = broker.create_queue("small", capacity=2, overflow="reject")
    small.put(b"old")
    with pytest.raises(shmq.Full), broker.transaction() as transaction:
        transaction.append(sink, b"x")
        transaction.put(small, b"1")
        transaction.put(small, b"2")
    assert values(sink) == []
    assert small.stats().depth == 1

    def commit() -> None:
        with broker.transaction(timeout=None) as waiting:
            waiting.put(small, b"1")
            waiting.put(small, b"2")

    thread = in_thread(commit)
    small.get().ack()
    assert outcome(thread) is None
    assert drain(small) == [b"1", b"2"]


@only_local
def test_what_can_never_be_is_refused_at_once(broker: Broker, queue: Queue) -> None:
    stream = broker.create_stream("small", 1, ring_bytes=1 << 16)
    with pytest.raises(shmq.MessageTooLarge), broker.transaction() as transaction:
        transaction.append(stream, bytes(1 << 15))
    with pytest.raises(shmq.NoSuchStream), broker.transaction() as transaction:
        transaction.append("missing", b"")
    with pytest.raises(shmq.NoSuchQueue), broker.transaction() as transaction:
        transaction.put("missing", b"")
    with pytest.raises(shmq.InvalidOption), broker.transaction() as transaction:
        transaction.append(stream, b"", partition=1)
    with pytest.raises(TypeError), broker.transaction() as transaction:
        transaction.put(queue, b"", delay=1)  # type: ignore[call-arg]
    with pytest.raises(shmq.MessageTooLarge), broker.transaction() as transaction:
        for _ in range(5):
            transaction.append(stream, bytes(1 << 13))
    assert stream.latest(0) == 0


@only_local
def test_it_is_over_once(broker: Broker, sink: Stream) -> None:
    with broker.transaction() as transaction:
        transaction.append(sink, b"x")
    for operation in (transaction.finish, lambda: transaction.append(sink, b"y")):
        with pytest.raises(shmq.ShmqError, match="committed already"):
            operation()
    aborted = broker.transaction()
    aborted.append(sink, b"y")
    aborted.abort()
    with pytest.raises(shmq.ShmqError, match="aborted already"):
        aborted.finish()
    with broker.transaction() as given_up:
        given_up.append(sink, b"z")
        given_up.abort()
    assert given_up.aborted
    assert not transaction.aborted
    assert values(sink) == [b"x"]


@only_local
def test_any_number_of_threads_and_clients_commit(connect: Connect, sink: Stream) -> None:
    def commit(client: Broker, name: int) -> None:
        for n in range(50):
            with client.transaction() as transaction:
                transaction.append("sink", b"%d.%d" % (name, n), key="k")

    clients = [connect(), connect()]
    for thread in [in_thread(commit, clients[n % 2], n) for n in range(4)]:
        outcome(thread)

    found = [it.value for p in range(3) for it in sink.read(p, 0)]
    assert len(found) == 200
    for name in range(4):
        mine = [value for value in found if value.startswith(b"%d." % name)]
        assert mine == [b"%d.%d" % (name, n) for n in range(50)]


def test_a_broker_that_has_none_says_so(broker: Broker, queue: Queue) -> None:
    try:
        with broker.transaction() as transaction:
            transaction.put(queue, b"x")
    except shmq.Unsupported as error:
        assert "host" in str(error)
    else:
        assert drain(queue) == [b"x"]
