"""The records that groups keep, where other processes delete and reset the groups meanwhile."""

from __future__ import annotations

import contextlib
import signal
from typing import Any

import pytest

import shmq
from shmq import Broker, Stream
from shmq.client.handles.group import summary_of
from tests.support.stopped import Lock, locks_of_group, stopped_inside
from tests.support.waiting import PATIENCE

_VALUE = b"x" * 1000
_FIRST = [b"1" * 1000, b"2" * 1000, b"3" * 1000]

#: Stops the next time that a group is to keep records: after the commit, or once it is made.
_STOPPED = """
import os, signal, sys
import shmq
from shmq.client.local.group_store import Floors
keep = Floors.keep
def keep_stopped(self, partition, offset):
    os.kill(os.getpid(), signal.SIGSTOP)
    keep(self, partition, offset)
with shmq.connect(sys.argv[1]) as broker:
    stream = broker.stream("s")
"""

_COMMIT_STOPPED = f"""{_STOPPED}
    with stream.group("g").join() as member:
        member.poll(timeout=60)
        Floors.keep = keep_stopped
        try:
            member.commit()
        except shmq.StreamDeleted:
            sys.exit(7)
"""

_OPEN_STOPPED = f"""{_STOPPED}
    Floors.keep = keep_stopped
    try:
        stream.group("g")
    except shmq.StreamDeleted:
        sys.exit(7)
"""


@pytest.fixture
def stream(broker: Broker) -> Stream:
    """A stream with three records, in which appends wait for those who read."""
    stream = broker.create_stream("s", 1, ring_bytes=64 << 10, overflow="block")
    stream.append_many(_FIRST, partition=0)
    return stream


def fill(stream: Stream) -> None:
    """Append until there is no room."""
    with contextlib.suppress(shmq.Full):
        for _ in range(200):
            stream.append(_VALUE, partition=0, block=False)


def read(subscription: Any) -> list[bytes]:
    """All values that are there."""
    found = []
    while records := subscription.poll(0):
        found += [bytes(record.value) for record in records]
    return found


def test_a_group_that_another_process_has_reset_moves_its_own_hold(
    broker: Broker, stream: Stream
) -> None:
    before = stream.subscribe("#", None, policy="block")
    group = stream.group("g")
    before.close()
    with shmq.connect(broker.namespace) as another:
        another.stream("s").group("g").reset("earliest")
    lost: list[Any] = []
    with (
        stream.subscribe("#", None, policy="block", on_lost=lost.append) as subscription,
        group.join() as member,
    ):
        member.poll(timeout=PATIENCE)
        member.commit()
        fill(stream)
        assert read(subscription)[:3] == _FIRST
        assert lost == []
        member.commit({0: stream.latest(0)})
        stream.append_many([_VALUE] * 40, partition=0, block=False)


def test_a_commit_in_a_deleted_group_moves_no_hold_of_a_successor(
    broker: Broker, stream: Stream
) -> None:
    stream.group("g")
    lost: list[Any] = []
    with stopped_inside(_COMMIT_STOPPED, broker.namespace) as committer:
        stream.delete_group("g")
        with stream.subscribe("#", None, policy="block", on_lost=lost.append) as subscription:
            committer.send_signal(signal.SIGCONT)
            assert committer.wait(PATIENCE) == 7
            fill(stream)
            assert read(subscription)[:3] == _FIRST
    assert lost == []


def test_a_group_that_is_deleted_while_it_is_opened_keeps_nothing(
    broker: Broker, stream: Stream
) -> None:
    stream.group("g")
    with stopped_inside(_OPEN_STOPPED, broker.namespace) as opener:
        stream.delete_group("g")
        opener.send_signal(signal.SIGCONT)
        assert opener.wait(PATIENCE) == 7
    assert stream.groups() == []
    stream.append_many([_VALUE] * 200, partition=0, block=False)


def test_a_group_that_is_deleted_once_it_was_listed_is_no_problem(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.group("deleted")
    stream.group("left")

    def delete_and_summarize(store: Any) -> shmq.GroupSummary:
        if store.name == "deleted":
            stream.delete_group("deleted")
        return summary_of(store)

    monkeypatch.setattr("shmq.client.local.group.summary_of", delete_and_summarize)
    assert [(found.name, found.problem) for found in stream.groups()] == [("left", None)]


def test_a_share_acks_where_another_process_has_added_partitions(
    broker: Broker, stream: Stream
) -> None:
    with stream.share("g") as share:
        receipts = [record.receipt for record in share.get_many(3, timeout=PATIENCE)]
        with shmq.connect(broker.namespace) as another:
            repartitioned = another.stream("s")
            repartitioned.repartition(2)
            repartitioned.share("g").close()
        assert share.ack_many(receipts) == []
    assert [found.lag for found in stream.groups()] == [0]


class LockedOnceListed:
    """A partition: once its holds are listed, a stopped process has the group's lock."""

    def __init__(self, partition: Any, lock: Lock, word: int) -> None:
        self._partition = partition
        self._lock = lock
        self._word = word

    def __getattr__(self, name: str) -> Any:
        return getattr(self._partition, name)

    def holders(self) -> list[Any]:
        """The holds; the caller waits in vain for the lock from then on."""
        self._lock.write(self._word)
        found: list[Any] = self._partition.holders()
        return found


def test_a_deletion_that_meets_a_held_lock_changes_nothing(broker: Broker) -> None:
    stream: Any = broker.create_stream("t", 2, ring_bytes=64 << 10, overflow="block")
    stream.group("g")
    before = [log.holders() for log in stream.logs]
    assert [len(holds) for holds in before] == [1, 1]
    (lock,) = locks_of_group(broker.namespace, "g")
    last = stream.logs[1]
    with lock.held_by_stopped():
        word = lock.holder() << 1
        lock.write(0)
        stream.logs[1] = LockedOnceListed(last, lock, word)
        with pytest.raises(shmq.LockTimeout):
            stream.delete_group("g")
    stream.logs[1] = last
    assert [log.holders() for log in stream.logs] == before
    stream.delete_group("g")
    assert [log.holders() for log in stream.logs] == [[], []]
    assert stream.groups() == []


class DeletedMeanwhile:
    """The state of a group that is deleted just before a member leaves it."""

    def __init__(self, state: Any, stream: Stream) -> None:
        self._state = state
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)

    def leave(self, member: int, evicted: bool) -> bool:
        """Leave, after the group was deleted."""
        self._stream.delete_group("g")
        left: bool = self._state.leave(member, evicted)
        return left


def test_a_member_is_closed_whose_group_is_deleted_meanwhile(stream: Stream) -> None:
    member: Any = stream.group("g").join()
    member._state = DeletedMeanwhile(member._state, stream)
    member.close()
    assert stream.groups() == []


def test_a_share_is_closed_whose_group_is_deleted_meanwhile(stream: Stream) -> None:
    share: Any = stream.share("g")
    lender = share._lender
    lender._state = lender.store.state = DeletedMeanwhile(lender.store.state, stream)
    share.close()
    assert stream.groups() == []
