"""Commits that are interrupted, and processes that die or fall silent in the middle of one."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shmq
from shmq import Broker
from shmq.client.local import transaction as local_transaction
from shmq.client.local.queue import LocalQueue
from shmq.client.local.stream import LocalStream
from shmq.client.local.transaction import LocalTransaction
from shmq.client.transaction import transaction_log
from shmq.client.transaction.apply import later_partitions, put_out
from shmq.client.transaction.recover import handles_in, settle_all
from shmq.host.diagnose.leftovers import sweep
from shmq.host.namespace.namespace import Namespace
from shmq.native import _stream
from tests.support.processes import HOUR
from tests.support.stopped import locks_of_queue
from tests.support.waiting import PATIENCE, eventually


def die_behind_the_commit_point(broker: Broker, collect: Callable[[Broker], None]) -> None:
    """Let a child commit what ``collect`` does in a transaction of its own, and end there."""
    child = os.fork()
    if child == 0:
        LocalTransaction._happen = lambda *_: os._exit(7)  # type: ignore[method-assign]
        try:
            collect(broker)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def queue_of(broker: Broker) -> LocalQueue:
    queue = broker.create_queue("q")
    assert isinstance(queue, LocalQueue)
    return queue


def files(namespace: str) -> list[Path]:
    return sorted(Path("/dev/shm").glob(f"txn.shmq@{namespace}@*"))


def test_a_commit_that_was_interrupted_is_finished_by_the_next(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, stream = broker.create_queue("q"), broker.create_stream("s", 1)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LocalTransaction, "_happen", interrupt)
        with pytest.raises(KeyboardInterrupt), broker.transaction() as transaction:
            transaction.put(queue, b"1")
            transaction.append(stream, b"1")
    assert len(files(broker.namespace)) == 1
    with broker.transaction() as transaction:
        transaction.put(queue, b"2")
        transaction.append(stream, b"2")

    assert [message.body for message in queue.get_many(3, block=False)] == [b"1", b"2"]
    assert stream.read(0, 0).values() == [b"1", b"2"]
    assert files(broker.namespace) == []


def test_an_interruption_while_it_waits_for_room_has_all_else_done(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, results = queue_of(broker), broker.create_queue("results")
    queue.put(b"work")
    stream = broker.create_stream("s", 1, ring_bytes=1 << 16, overflow="block")
    reader = stream.group("g", start="earliest").join(timeout=0)
    while True:
        try:
            stream.append(bytes(8000), block=False)
        except shmq.Full:
            break

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LocalStream, "_look_for_dead", interrupt)
        with pytest.raises(KeyboardInterrupt), broker.transaction() as transaction:
            transaction.ack(queue, queue.get(block=False))
            transaction.put(results, b"1")
            transaction.append(stream, b"new" + bytes(7997))
    assert (queue.stats().acked, results.stats().depth) == (1, 1)
    assert list(reader)
    reader.commit()
    with broker.transaction():
        pass
    assert [record.value[:3] for record in reader] == [b"new"]
    assert files(broker.namespace) == []


def test_what_a_dead_process_has_committed_waits_for_room_and_keeps_what_it_had(
    broker: Broker,
) -> None:
    queue = queue_of(broker)
    queue.put(b"work")
    stream = broker.create_stream("s", 1, ring_bytes=1 << 16, overflow="block")
    reader = stream.group("g", start="earliest").join(timeout=0)
    while True:
        try:
            stream.append(bytes(8000), block=False)
        except shmq.Full:
            break

    def collect(broker: Broker) -> None:
        with broker.transaction() as transaction:
            transaction.append("s", b"new" + bytes(7997))
            transaction.ack(queue, queue.get(block=False))

    die_behind_the_commit_point(broker, collect)
    queue.tend()
    assert len(files(broker.namespace)) == 1
    assert queue.stats().depth == 0
    read = list(reader)
    reader.commit()
    queue.tend()

    assert files(broker.namespace) == []
    assert next(reader).value.startswith(b"new")
    assert read
    assert (queue.stats().depth, queue.stats().in_flight) == (0, 0)


def test_what_was_deleted_meanwhile_is_left_out(broker: Broker) -> None:
    queue, other = queue_of(broker), broker.create_queue("other")
    broker.create_stream("s", 1)

    def collect(broker: Broker) -> None:
        with broker.transaction() as transaction:
            transaction.append("s", b"1")
            transaction.put("q", b"1")
            transaction.put("other", b"1")

    die_behind_the_commit_point(broker, collect)
    broker.delete_stream("s")
    broker.delete_queue("other")
    other.close()
    queue.tend()

    assert queue.get(block=False).body == b"1"
    assert files(broker.namespace) == []


def before(step: str, deed: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next transaction do this just before that step of it."""
    real = getattr(LocalTransaction, step)

    def interrupted(*given: Any) -> Any:
        monkeypatch.setattr(LocalTransaction, step, real)
        deed()
        return real(*given)

    monkeypatch.setattr(LocalTransaction, step, interrupted)


def test_an_input_that_is_deleted_behind_the_commit_point_is_left_out(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, other, results = (broker.create_queue(name) for name in ("q", "other", "results"))
    for each in (queue, other):
        each.put(b"work")
    before("_do", lambda: broker.delete_queue("q"), monkeypatch)
    with broker.transaction() as transaction:
        for each in (queue, other):
            transaction.ack(each, each.get(block=False))
        transaction.put(results, b"done")

    assert not transaction.aborted
    assert [message.body for message in results.get_many(2, block=False)] == [b"done"]
    assert (other.stats().depth, other.stats().in_flight) == (0, 0)
    assert files(broker.namespace) == []


@pytest.mark.parametrize("kind", ["queue", "stream"])
def test_an_output_that_is_deleted_before_it_is_on_disk_is_left_out(
    kind: str, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = broker.create_queue("results")
    getattr(broker, f"create_{kind}")("o", durability="journal", confirm="disk").close()
    delete = getattr(broker, f"delete_{kind}")
    before("_wait_until_written", lambda: delete("o"), monkeypatch)
    with broker.transaction() as transaction:
        transaction.put(results, b"done")
        if kind == "queue":
            transaction.put("o", b"1")
        else:
            transaction.append("o", b"1")

    assert not transaction.aborted
    assert [message.body for message in results.get_many(2, block=False)] == [b"done"]


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_commit_that_fails_while_an_input_is_locked_does_not_keep_its_message(
    goes_on: bool, broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    queue = broker.create_queue("q", visibility_timeout=HOUR)
    deleted = broker.create_queue("deleted")
    queue.put(b"work")
    deleted.put(b"work")
    lock = locks_of_queue(broker.namespace, "q")["gets"]
    extend = LocalQueue.extend

    def release_late(queue: LocalQueue, receipt: int, seconds: float) -> None:
        try:
            extend(queue, receipt, seconds)
        except shmq.LockTimeout:
            if goes_on:
                holding.close()
            raise

    def fail(*_: object) -> None:
        broker.delete_queue("deleted")
        holding.enter_context(lock.held_by_stopped())
        raise shmq.NoSpace("no space")

    monkeypatch.setattr(LocalQueue, "extend", release_late)
    monkeypatch.setattr(transaction_log.TransactionLog, "write", fail)
    if not goes_on:
        monkeypatch.setattr(local_transaction, "_SHORTENED", 0.0)
    with (
        contextlib.ExitStack() as holding,
        pytest.raises(shmq.NoSpace),
        broker.transaction() as transaction,
    ):
        transaction.ack(deleted, deleted.get(block=False))
        transaction.ack(queue, queue.get(block=False))
    (lease,) = queue.leases()
    assert (lease.expires_in <= HOUR) is goes_on
    assert ("may stay leased" in caplog.text) is not goes_on


def test_a_member_that_fell_silent_is_not_taken_out_while_it_commits(broker: Broker) -> None:
    # Long enough that on a busy machine it is not silent before it has joined.
    group = broker.create_stream("s", 1).group("g", session_timeout=0.5)
    member = group.join(timeout=0)
    namespace = Namespace.of(broker.namespace)
    eventually(member.state.silent, "it is silent")  # type: ignore[attr-defined]
    with transaction_log.hold(namespace, namespace.processes.own_number(), make=True):
        assert [it.id for it in group.members()] == [member.id]
    assert group.members() == []
    with pytest.raises(shmq.MemberFenced), broker.transaction() as transaction:
        transaction.commit(member, {0: 0})


def test_a_child_of_a_fork_does_not_keep_the_file_of_its_parent(broker: Broker) -> None:
    namespace = Namespace.of(broker.namespace)
    number = namespace.processes.own_number()
    end, begin = os.pipe()
    with transaction_log.hold(namespace, number, make=True) as held:
        assert held is not None
        held.write({"process": number})
        held.commit()
        child = os.fork()
        if child == 0:
            os.close(begin)
            os.read(end, 1)
            os._exit(0)
    with transaction_log.hold(namespace, number, make=False, until=math.inf) as again:
        assert again is not None
        again.finish()
    os.close(begin)
    os.close(end)
    os.waitpid(child, 0)


def test_a_file_is_told_and_settled_by_the_doctor(broker: Broker) -> None:
    queue = broker.create_queue("q")

    def collect(broker: Broker) -> None:
        with broker.transaction() as transaction:
            transaction.put("q", b"1")

    die_behind_the_commit_point(broker, collect)
    told = [it for it in sweep(broker.namespace, fix=False) if it.kind == "transaction"]
    assert [it.name for it in told] == [path.name for path in files(broker.namespace)]
    sweep(broker.namespace, fix=True)

    assert files(broker.namespace) == []
    assert queue.get(block=False).body == b"1"


def test_a_damaged_file_keeps_what_its_process_had(broker: Broker) -> None:
    queue = queue_of(broker)
    queue.put(b"work")

    def collect(broker: Broker) -> None:
        with broker.transaction() as transaction:
            transaction.ack(queue, queue.get(block=False))

    die_behind_the_commit_point(broker, collect)
    (path,) = files(broker.namespace)
    raw = bytearray(path.read_bytes())
    raw[70] ^= 1
    path.write_bytes(raw)
    queue.tend()
    assert queue.stats().in_flight == 1
    path.unlink()
    queue.tend()
    assert queue.get(block=False).body == b"work"


def test_a_reader_that_waits_sees_what_a_dead_process_has_committed(broker: Broker) -> None:
    stream = broker.create_stream("s", 2)

    def collect(broker: Broker) -> None:
        with broker.transaction() as transaction:
            transaction.append("s", b"1", partition=0)
            transaction.append("s", b"2", partition=1)

    die_behind_the_commit_point(broker, collect)
    reader = stream.reader("earliest", timeout=PATIENCE)
    assert sorted(next(reader).value for _ in range(2)) == [b"1", b"2"]


def test_so_does_a_task(broker: Broker) -> None:
    stream = broker.create_stream("s", 1)

    def collect(broker: Broker) -> None:
        with broker.transaction() as transaction:
            transaction.append("s", b"1")

    die_behind_the_commit_point(broker, collect)
    assert asyncio.run(stream.aread(0, 0, timeout=PATIENCE)).values() == [b"1"]


def test_what_was_committed_goes_to_the_partitions_that_came_since(broker: Broker) -> None:
    stream = broker.create_stream("s", 1)
    keys = [b"k%d" % n for n in range(9)]

    def collect(child: Broker) -> None:
        with child.transaction() as transaction:
            transaction.append_many("s", [b"first"] * 9, keys=keys)
            transaction.append_many("s", [b"second"] * 9, keys=keys)

    die_behind_the_commit_point(broker, collect)
    stream.repartition(3)
    settle_all(Namespace.of(broker.namespace))
    stream.repartition(4)
    found: dict[bytes | None, list[bytes]] = {}
    for record in stream.reader(timeout=0.1):
        found.setdefault(record.key, []).append(bytes(record.value))
    assert found == {key: [b"first", b"second"] for key in keys}


def test_what_waits_for_room_is_known_in_partitions_that_were_sealed_since(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = broker.create_stream("s", 1)
    block = _stream.pack_records([b"v"] * 9, [b"k%d" % n for n in range(9)], None, None)
    put: dict[str, Any] = {"process": 7, "puts": [], "offsets": [], "acks": []}
    put["appends"] = [["s", stream.identity, 0, 0, block]]
    stream.repartition(3)
    whole = LocalStream.append_block

    def refuse_one(self: LocalStream, entries: bytes, **how: Any) -> Any:
        if how["partition"] == 2:
            raise shmq.Full("no room")
        return whole(self, entries, **how)

    handles = handles_in(Namespace.of(broker.namespace))
    with monkeypatch.context() as patch:
        patch.setattr(LocalStream, "append_block", refuse_one)
        assert not put_out(handles, put, wait=False)
    stream.repartition(5)
    assert put_out(handles, put, wait=False)
    assert put_out(handles, put, wait=False)
    keys = [record.key or b"" for record in stream.reader(timeout=0.1)]
    assert sorted(keys) == [b"k%d" % n for n in range(9)]


def test_partitions_that_are_replaced_while_they_are_looked_for_are_not_mixed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = broker.create_stream("s", 1)
    stream.repartition(2)
    offsets = LocalStream.offsets

    def look_and_repartition(self: LocalStream) -> list[shmq.PartitionOffsets]:
        found = offsets(self)
        stream.repartition(4)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(LocalStream, "offsets", look_and_repartition)
        assert later_partitions(stream, 0) == [range(1, 3)]
    assert later_partitions(stream, 0) == [range(1, 3), range(3, 7)]
