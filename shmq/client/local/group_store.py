"""The state of a group on this host: its memory, and the records that are kept for it.

In a stream whose appends wait for room, the records that a group has not done are kept. For this
the group has a hold on each partition, identified by the group's id and belonging to no process: it
lasts until the group is deleted. A hold is made and dropped under the registry lock, because a
second one, or one of a deleted group, would keep records for ever; it moves with every commit. It
is moved and dropped under the group's lock, because its number is another's once it is dropped; a
deletion drops all of them and marks the group as deleted without releasing that lock in between. If
a process dies between commit and move, or in a deletion, the next commit, or the next member that
takes the partition, moves the hold or makes it again.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from shmq import api
from shmq.client.ports.group import SLICE, GroupStore
from shmq.client.transaction.recover import look, settle, taking
from shmq.errors import OffsetOutOfRange, SegmentError, StreamDeleted
from shmq.host.namespace import group_files
from shmq.host.namespace.namespace import Namespace
from shmq.native import _group, _stream


class LocalGroupStore(GroupStore):
    """Implements :class:`shmq.client.ports.group.GroupStore`."""

    state: _group.GroupState

    def __init__(
        self, namespace: Namespace, stream: api.Stream, name: str, state: _group.GroupState
    ) -> None:
        super().__init__(stream, name, state)
        self.namespace = namespace
        self._floors: Floors | None = None
        self._was_woken = False
        if stream.options.overflow == "block":
            logs: list[_stream.Partition] = stream.logs  # type: ignore[attr-defined]
            self._floors = Floors(namespace, logs, state)
        self.widen()

    @property
    def process(self) -> int:
        return self.namespace.processes.own_number()

    def for_member(self) -> tuple[LocalGroupStore, _group.GroupState]:
        return self, self.state

    def poll(
        self, reader: api.Reader | None, change: int | None, seconds: float
    ) -> list[api.Records]:
        # A change of the group wakes the member at once.
        found = [] if reader is None else reader.poll(0.0)
        if not found and seconds > 0:
            self._sleep({} if reader is None else reader.position, change, seconds)
        return found

    def _sleep(self, position: Mapping[int, int], change: int | None, seconds: float) -> None:
        """Sleep until there may be a record, the group has changed, or a process has died.

        One that a death has woken, and that finds nothing to do, sleeps for a short time next:
        members take turns to look for dead ones.
        """
        stream: Any = self.stream
        logs = [(stream.logs[partition], offset) for partition, offset in position.items()]
        if len(logs) == 1 and logs[0][0].spin(logs[0][1]):
            return
        wakeup = stream.logs[0].arm()
        for log, _ in logs:
            log.arm()
        if any(log.reaches(offset) for log, offset in logs) or self.grown or change is None:
            return
        seconds = min(seconds, SLICE if self._was_woken else stream.longest_sleep)
        self._was_woken = self.state.sleep(change, stream.control, wakeup, seconds)
        if not self._was_woken:
            look(self.namespace)
            stream.see_to_guard(seconds)

    def drop(self, member: int) -> None:
        with contextlib.suppress(StreamDeleted):
            self.state.leave(member, False)

    def widen(self) -> None:
        if self.stream.partitions != self.state.partitions:
            self.state.widen(self.stream.partitions)

    def look_for_dead(self) -> None:
        """Remove members whose process has ended, or whose session has timed out.

        Members whose transactions are not settled stay for now.
        """
        processes = {}
        for member, process, *_ in self.state.members():
            processes[member] = process
            if not self.namespace.processes.is_alive(process) and settle(self.namespace, process):
                self.state.leave(member, True)
        while (member := self.state.silent()) in processes:
            with taking(self.namespace, processes.pop(member)) as may:
                if may and self.state.silent() == member:
                    self.state.leave(member, True)

    def plan(self) -> None:
        while not self.state.planned:
            epoch, members, owners = self.state.survey()
            begin = min(self.stream.open_partitions.start, len(owners))
            meant = divided(self.assignment, members, owners, begin)
            self.state.plan(epoch, meant)

    # ---- what appends that wait have to keep ----

    def keep_from(self, partition: int, offset: int) -> None:
        if self._floors is not None:
            self._floors.keep(partition, offset)

    def keep_again(self, partition: int, offset: int) -> None:
        if self._floors is not None:
            self._floors.keep_from(partition, offset)

    def keep_all(self) -> None:
        """Keep in each partition what is not committed, or for a share group not settled."""
        if self._floors is None:
            return
        if self.assignment == "shared":
            offsets = self.state.lows()
        else:
            offsets = [committed for _, _, committed, *_ in self.state.seats()]
        self.widen()  # the stream has at least the partitions that the group had
        for partition, done in enumerate(offsets):
            self._floors.keep(partition, self.start_of(partition) if done is None else done)

    def mark_deleted(self) -> None:
        """Mark the group as deleted and release all holds; on an error neither is done.

        Needs the registry lock.
        """
        self.state.close([] if self._floors is None else self._floors.list_holds())


class Floors:
    """The holds of one group on these partitions."""

    def __init__(
        self, namespace: Namespace, logs: list[_stream.Partition], state: _group.GroupState
    ) -> None:
        self._namespace = namespace
        self._logs = logs
        self._state = state
        self._tag: int = state.options["group_id"]
        self._known: dict[int, int] = {}

    def keep(self, partition: int, offset: int) -> None:
        """Keep the records from ``offset`` on; records released earlier stay released.

        Raises StreamDeleted if the group was deleted.
        """
        while not self._move(partition, offset):
            with self._namespace.locked():
                self.make(partition, offset)

    def make(self, partition: int, offset: int) -> None:
        """Keep the records from ``offset`` on, unless the group has a hold on the partition.

        Raises StreamDeleted if the group was deleted. Needs the registry lock.
        """
        self._state.check_there()
        if self._find(partition) is None:
            self._known[partition] = self._make(partition, offset)

    def keep_from(self, partition: int, offset: int) -> None:
        """As `keep`, but also from an earlier record, as far as it still exists."""
        with self._namespace.locked():
            self._drop(partition)
            self.keep(partition, offset)

    def list_holds(self) -> list[tuple[_stream.Partition, int]]:
        """The partition and the number of each hold. They do not change under the registry lock."""
        return [(log, number) for log in self._logs for number in self._list_numbers(log)]

    def _drop(self, partition: int) -> None:
        self._known.pop(partition, None)
        while (hold := self._find(partition)) is not None:
            self._state.drop_hold(self._logs[partition], hold)

    def _move(self, partition: int, offset: int) -> bool:
        """Move the hold, whose number may be another one by now; False if there is none."""
        hold = self._known.get(partition)
        log = self._logs[partition]
        if hold is not None and self._state.move_hold(log, hold, offset):
            return True
        hold = self._find(partition)
        if hold is None or not self._state.move_hold(log, hold, offset):
            return False
        self._known[partition] = hold
        return True

    def _make(self, partition: int, offset: int) -> int:
        log = self._logs[partition]
        while True:
            try:
                return log.hold(offset, 0, self._tag)
            except OffsetOutOfRange as error:
                if offset in {error.earliest, error.latest}:
                    raise
                offset = error.earliest if offset < error.earliest else error.latest

    def _find(self, partition: int) -> int | None:
        return next(self._list_numbers(self._logs[partition]), None)

    def _list_numbers(self, log: _stream.Partition) -> Iterator[int]:
        for number, owner, tag, pins in log.holders():
            if tag == self._tag and not owner and not pins:
                yield number


def keep_new(
    namespace: Namespace, stream_id: int, logs: list[_stream.Partition], came: int
) -> None:
    """Make all groups of the stream keep the records of the last ``came`` partitions.

    A group that cannot be used keeps nothing. Needs the registry lock.
    """
    for name in group_files.group_names(namespace, stream_id):
        with contextlib.suppress(SegmentError, StreamDeleted):
            state = group_files.look_at(namespace, stream_id, name)
            if state is not None:
                floors = Floors(namespace, logs, state)
                for partition in range(len(logs) - came, len(logs)):
                    floors.make(partition, 0)


# ---- assignment of partitions to members ----

# Pure functions of the members, in the order in which they joined, and of the current owner of each
# partition (0: none). Each assigns every partition to exactly one member, and no member gets more
# than one partition more than another. An owner keeps its partition until it gives it up, whatever
# the plan says; so under every rule only the partitions that move are interrupted.

_NO_MEMBER: Final = 0


def ranges(members: Sequence[int], owners: Sequence[int]) -> list[int]:
    """Adjacent partitions for each member; the first members get the extra ones."""
    each, more = divmod(len(owners), len(members))
    shares = [each + (place < more) for place in range(len(members))]
    return [member for member, share in zip(members, shares, strict=True) for _ in range(share)]


def in_turns(members: Sequence[int], owners: Sequence[int]) -> list[int]:
    """Round-robin: partition ``p`` goes to member ``p`` modulo their number."""
    return [members[partition % len(members)] for partition in range(len(owners))]


def sticky(members: Sequence[int], owners: Sequence[int]) -> list[int]:
    """Move as few partitions as possible: those without an owner, and each owner's surplus.

    The members with the most partitions keep the extra ones.
    """
    room = _compute_room(members, owners)
    assigned = []
    for owner in owners:
        keeps = room.get(owner, 0) > 0
        assigned.append(owner if keeps else _NO_MEMBER)
        if keeps:
            room[owner] -= 1
    wanting = (member for member in members for _ in range(room[member]))
    return [member or next(wanting) for member in assigned]


def _compute_room(members: Sequence[int], owners: Sequence[int]) -> dict[int, int]:
    """How many partitions each member gets; those that have the most get the extra ones."""
    each, more = divmod(len(owners), len(members))
    has = Counter(owners)
    richest = sorted(members, key=lambda member: -has[member])[:more]
    return {member: each + (member in richest) for member in members}


#: The rules, by the value of ``assignment`` of ``Stream.group``.
ASSIGNORS: Final[dict[str, Callable[[Sequence[int], Sequence[int]], list[int]]]] = {
    "range": ranges,
    "round-robin": in_turns,
    "sticky": sticky,
}


def divided(
    assignment: str, members: Sequence[int], owners: Sequence[int], begin: int
) -> list[int]:
    """The member for each partition, by the rule of that name.

    Partitions below ``begin``, which take no more records, and the others are divided separately,
    so that each member gets its share of both. If all members were just removed, no partition gets
    one.
    """
    if not members:
        return [_NO_MEMBER] * len(owners)
    rule = ASSIGNORS[assignment]
    return [*rule(members, owners[:begin]), *rule(members, owners[begin:])]
