"""A stream with groups and a naive model of it, driven through the same operations.

The model of a partition is a list. Of a group it knows what was committed, where each member
is, and of one that shares, the state of each record by itself. Time stands still but for the
rules that move it, on the groups' own clock.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from typing import Any

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import shmq
from shmq.native import _group
from tests.support.namespaces import own_namespace

PARTITIONS = 3
SESSION = 30
LEASE = 30
MOST = 3
HELD = 6

partitions = st.integers(0, PARTITIONS - 1)
assignments = st.sampled_from(["range", "round-robin", "sticky"])
places = st.integers(0, 10)

SETTINGS = hypothesis.settings(
    max_examples=int(os.environ.get("SHMQ_MODEL_EXAMPLES", "40")),
    stateful_step_count=int(os.environ.get("SHMQ_MODEL_STEPS", "40")),
    suppress_health_check=list(hypothesis.HealthCheck),
    deadline=None,
)


class OnAStream(RuleBasedStateMachine):
    """A stream in a namespace of its own, and lists of what is in its partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000_000_000_000
        _group.set_clock(self.now)
        self.ends = contextlib.ExitStack()
        namespace = self.ends.enter_context(own_namespace())
        self.broker = self.ends.enter_context(shmq.connect(namespace))
        self.stream = self.broker.create_stream("s", PARTITIONS, ring_bytes=1 << 20)
        self.lists: list[list[bytes]] = [[] for _ in range(PARTITIONS)]

    @rule(partition=partitions, count=st.integers(1, 5))
    def append(self, partition: int, count: int) -> None:
        values = [b"%d" % (len(self.lists[partition]) + n) for n in range(count)]
        self.stream.append_many(values, partition=partition)
        self.lists[partition] += values

    def pass_time(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)
        _group.set_clock(self.now)

    def teardown(self) -> None:
        _group.set_clock(None)
        self.ends.close()


class Groups(OnAStream):
    """Members that come, read, commit, seek, fall silent and go."""

    def __init__(self) -> None:
        super().__init__()
        self.committed = [0] * PARTITIONS
        self.members: list[shmq.Member] = []
        self.known: dict[int, dict[int, int]] = {}
        self.group: shmq.Group | None = None

    @rule(assignment=assignments)
    @precondition(lambda self: self.group is None)
    def make(self, assignment: Any) -> None:
        self.group = self.stream.group("g", assignment, session_timeout=SESSION)

    @rule()
    @precondition(lambda self: self.group is not None and len(self.members) < 4)
    def join(self) -> None:
        assert self.group is not None
        member = self.group.join()
        self.members.append(member)
        self.known[id(member)] = {}
        self.look(member)

    def look(self, member: shmq.Member) -> None:
        """What it has got begins where it was committed; what it has kept is where it was."""
        known = self.known[id(member)]
        for partition in set(known) - member.assignment:
            del known[partition]
        for partition in member.assignment - set(known):
            known[partition] = self.committed[partition]
        # A partition that went and came back within one poll starts again, too.
        for partition, offset in member.position.items():
            if offset != known[partition]:
                assert offset == self.committed[partition]
                known[partition] = offset

    def member(self, place: int) -> shmq.Member:
        return self.members[place % len(self.members)]

    @rule(place=places, limit=st.integers(1, 4))
    @precondition(lambda self: self.members)
    def poll(self, place: int, limit: int) -> None:
        member = self.member(place)
        before = dict(self.known[id(member)])
        paused = member.paused
        found = {records.partition: records for records in member.poll(limit)}
        known = self.known[id(member)]
        for partition in member.assignment:
            begins = before.get(partition, self.committed[partition])
            records = found.get(partition)
            if records is None:
                missing = self.lists[partition][begins:]
                assert not missing or partition in paused or begins != self.committed[partition]
                continue
            if records[0].offset != begins:
                begins = self.committed[partition]
            assert [r.offset for r in records] == list(range(begins, begins + len(records)))
            assert records.values() == self.lists[partition][begins : begins + limit]
            known[partition] = begins + len(records)
        assert set(found) <= member.assignment
        self.look(member)

    @rule(place=places)
    @precondition(lambda self: self.members)
    def commit(self, place: int) -> None:
        member = self.member(place)
        mine = dict(member.position)
        owners = {it.partition: it.member for it in self.stream.group("g").partitions()}
        try:
            member.commit()
        except shmq.MemberFenced:
            assert any(owners[partition] != member.id for partition in mine)
        for partition, offset in mine.items():
            if owners[partition] == member.id:
                self.committed[partition] = offset

    @rule(place=places, partition=partitions, offset=st.integers(0, 12))
    @precondition(lambda self: self.members)
    def seek(self, place: int, partition: int, offset: int) -> None:
        member = self.member(place)
        offset = min(offset, len(self.lists[partition]))
        try:
            member.seek(partition, offset)
        except shmq.MemberFenced:
            assert partition not in member.assignment
        else:
            self.known[id(member)][partition] = offset

    @rule(place=places, pause=st.booleans())
    @precondition(lambda self: self.members)
    def pause_or_resume(self, place: int, pause: bool) -> None:
        member = self.member(place)
        (member.pause if pause else member.resume)()
        assert member.paused == (member.assignment if pause else set())

    @rule(place=places)
    @precondition(lambda self: self.members)
    def close(self, place: int) -> None:
        member = self.members.pop(place % len(self.members))
        del self.known[id(member)]
        member.close()

    @rule(place=places)
    @precondition(lambda self: self.members)
    def all_but_one_fall_silent(self, place: int) -> None:
        self.pass_time(SESSION + 1)
        member = self.member(place)
        member.poll(1)
        self.known[id(member)] = dict(member.position)
        assert self.group is not None
        assert [it.id for it in self.group.members()] == [member.id]

    @rule()
    @precondition(lambda self: self.members)
    def come_to_rest(self) -> None:
        """Once each member has looked, every partition has an owner and no member has too many."""
        for _ in range(4):
            for member in self.members:
                member.poll(1)
                self.known[id(member)] = dict(member.position)
        counts = [len(member.assignment) for member in self.members]
        assert sum(counts) == PARTITIONS
        assert max(counts) - min(counts) <= 1

    @invariant()
    def no_partition_has_two_members(self) -> None:
        if self.group is None:
            return
        owned = [p for it in self.group.members() for p in it.partitions]
        assert len(owned) == len(set(owned))

    @invariant()
    def what_is_committed_is_what_was_said(self) -> None:
        if self.group is not None:
            found = self.group.committed()
            assert [found[p] or 0 for p in range(PARTITIONS)] == self.committed


@dataclasses.dataclass
class Lent:
    """A record that is not settled, as the model has it."""

    deliveries: int
    holder: int | None
    #: When its lease ends, or it can be lent again.
    at: int


class Shares(OnAStream):
    """Members that are lent records, and settle them or do not."""

    def __init__(self) -> None:
        super().__init__()
        self.members = [
            self.stream.share("g", lease=LEASE, max_deliveries=MOST, held=HELD) for _ in range(2)
        ]
        self.next = [0] * PARTITIONS
        self.lent: dict[tuple[int, int], Lent] = {}
        self.had: dict[tuple[int, int], shmq.SharedRecord] = {}
        self.acked = self.dropped = 0

    def settle_what_is_due(self) -> None:
        for place, lent in list(self.lent.items()):
            if lent.holder is not None and lent.at <= self.now:
                self.give_back(place, self.now)

    def give_back(self, place: tuple[int, int], at: int) -> None:
        lent = self.lent[place]
        if lent.deliveries >= MOST:
            del self.lent[place]
            self.dropped += 1
        else:
            lent.holder, lent.at = None, at

    @rule(which=st.integers(0, 1), limit=st.integers(1, 8))
    def get(self, which: int, limit: int) -> None:
        self.settle_what_is_due()
        back = {place for place, lent in self.lent.items() if lent.holder is None}
        due = {place for place in back if self.lent[place].at <= self.now}
        new = sum(len(values) - at for values, at in zip(self.lists, self.next, strict=True))
        expected = min(limit, len(due) + min(new, HELD - len(self.lent)))
        try:
            found = self.members[which].get_many(limit, block=False)
        except shmq.Empty:
            found = []
        assert len(found) == expected
        for record in found:
            place = (record.partition, record.offset)
            if place in due:
                self.lent[place].deliveries += 1
            else:
                assert record.offset == self.next[record.partition]
                self.next[record.partition] += 1
                self.lent[place] = Lent(1, None, 0)
            assert record.value == self.lists[record.partition][record.offset]
            assert record.delivery_count == self.lent[place].deliveries
            self.lent[place].holder, self.lent[place].at = which, self.now + LEASE * 10**9
            self.had[place] = record

    @rule(place=places, what=st.sampled_from(["ack", "nack", "later", "reject", "extend"]))
    @precondition(lambda self: self.had)
    def settle(self, place: int, what: str) -> None:
        self.settle_what_is_due()
        key = sorted(self.had)[place % len(self.had)]
        record = self.had[key]
        lent = self.lent.get(key)
        holds = lent is not None and lent.holder is not None
        try:
            if what == "extend":
                record.extend(2 * LEASE)
            elif what == "later":
                record.nack(5)
            else:
                getattr(record, what)()
        except shmq.LeaseExpired:
            assert not holds
            del self.had[key]
            return
        assert holds
        assert lent is not None
        if what == "extend":
            lent.at = self.now + 2 * LEASE * 10**9
            return
        del self.had[key]
        if what in {"nack", "later"}:
            self.give_back(key, self.now + (5 * 10**9 if what == "later" else 0))
            return
        del self.lent[key]
        self.acked += what == "ack"
        self.dropped += what == "reject"

    @rule(seconds=st.sampled_from([1, 5, LEASE + 1]))
    def wait(self, seconds: int) -> None:
        self.pass_time(seconds)

    @rule(which=st.integers(0, 1))
    def leave_and_come_back(self, which: int) -> None:
        self.settle_what_is_due()
        self.members[which].close()
        for place, lent in list(self.lent.items()):
            if lent.holder == which:
                self.give_back(place, self.now)
                self.had.pop(place, None)
        self.members[which] = self.stream.share("g")

    @rule()
    def count(self) -> None:
        """Once what is due was looked for, the counters are the model's."""
        self.get(0, 1)
        (line,) = self.stream.groups()
        assert (line.acked, line.dropped, line.held) == (self.acked, self.dropped, len(self.lent))


TestGroups = Groups.TestCase
TestGroups.settings = SETTINGS
TestShares = Shares.TestCase
TestShares.settings = SETTINGS
