"""The port of a group: what its members ask and change of it, on this host or of a server."""

from __future__ import annotations

import abc
from typing import Any, Protocol

from shmq import api

__all__ = ["GroupState", "GroupStore", "MemberState", "PartitionSeat"]

#: The owner, the member it is meant for (0: nobody), the committed offset, when that was
#: committed, the next offset to be lent, and how often the partition had a new owner.
PartitionSeat = tuple[int, int, int | None, int, int | None, int]


class GroupState(Protocol):
    """What is known of a group; :class:`shmq.native._group.GroupState` is one."""

    @property
    def options(self) -> dict[str, Any]:
        """What the group was made with."""

    @property
    def deleted(self) -> bool:
        """Whether the group is gone."""

    @property
    def partitions(self) -> int:
        """How many partitions its members know of."""

    def numbers(self) -> dict[str, int]:
        """Its counters."""

    def members(self) -> list[tuple[int, int, str, int, int]]:
        """The id, process number, name, time of joining and deadline of each member."""

    def seats(self) -> list[PartitionSeat]:
        """A row for each partition."""

    def commit(self, partition: int, member: int, offset: int, /) -> bool:
        """Everything before ``offset`` is done; False if the partition is not the member's."""


class MemberState(GroupState, Protocol):
    """What a member asks and changes of its group."""

    @property
    def planned(self) -> bool:
        """Whether the partitions are divided among the members that there are now."""

    def committed(self, partition: int, /) -> int | None:
        """The partition's committed offset, if there is one."""

    def join(self, process: int, name: bytes, /) -> tuple[int, int]:
        """Become a member: its place and its id. Raises Full."""

    def leave(self, member: int, evicted: bool, /) -> bool:
        """Take out a member; whether it was one."""

    def beat(self, at: int, member: int, /) -> int | None:
        """Say that the member lives: a number that changes with the plan; None: it is none."""

    def watch(self, ns: int, /) -> bool:
        """Whether the caller is to look now for members that have died."""

    def claim(self, partition: int, member: int, /) -> bool:
        """Take a partition that is meant for the member; whether it has it now."""

    def release(self, partition: int, member: int, /) -> bool:
        """Leave a partition; whether the member had it."""


class GroupStore(abc.ABC):
    """One group of one stream: what its members know of it, and what keeps it in order."""

    def __init__(self, stream: api.Stream, name: str, state: GroupState) -> None:
        self.stream = stream
        self.name = name
        self.state = state
        options = state.options
        self.assignment: str = options["assignment"]
        self.starts_at_the_end: bool = options["latest"]
        self.dead_letter: str | None = options["dead_letter"]
        self.session_timeout: float = options["session"] / 1e9
        self._created_at: float = options["created_at"] / 1e9
        self._partitions: list[api.PartitionOffsets] = []

    @property
    @abc.abstractmethod
    def process(self) -> int:
        """The number of the process that members are of."""

    @abc.abstractmethod
    def for_member(self) -> tuple[GroupStore, MemberState]:
        """The store and the state that a new member goes by."""

    @abc.abstractmethod
    def refresh(self) -> None:
        """Have the next beat of a member ask for the state, whenever it was last asked for."""

    @abc.abstractmethod
    def drop(self, member: int) -> None:
        """Take out a member without waiting: for destructors."""

    @abc.abstractmethod
    def why_out(self) -> str:
        """Why a member is none any more."""

    @abc.abstractmethod
    def widen(self) -> None:
        """Take notice of partitions that the stream has got meanwhile."""

    @abc.abstractmethod
    def look_for_dead(self) -> None:
        """Take out members whose process has ended, or whose session is over."""

    @abc.abstractmethod
    def plan(self) -> None:
        """Divide the partitions among the members, unless that is done."""

    @abc.abstractmethod
    def check_offset(self, partition: int, offset: int) -> None:
        """Raises TypeError, InvalidOption unless the group can be there."""

    @abc.abstractmethod
    def keep_from(self, partition: int, offset: int) -> None:
        """The group has done what is before ``offset``: appends that wait may overwrite it."""

    @abc.abstractmethod
    def keep_again(self, partition: int, offset: int) -> None:
        """The group goes on at ``offset``, which may be before what it has done."""

    @abc.abstractmethod
    def _fresh_seats(self) -> list[PartitionSeat]:
        """The rows of the partitions as they are now."""

    # ---- partitions ----

    def start_of(self, partition: int) -> int:
        """Where a partition begins in which nothing was committed.

        One that came to the stream after the group begins with its first record.
        """
        if self.starts_at_the_end and not self._came_later(partition):
            return self.stream.latest(partition)
        return self.stream.earliest(partition)

    @property
    def grown(self) -> bool:
        """Whether the stream has partitions that the group does not know of."""
        return self.stream.partitions > self.state.partitions

    def behind(self, partition: int) -> int:
        """The partitions before this one were sealed for it: they are read before it is."""
        return self._made(partition).behind

    def has_done(self, before: int) -> bool:
        """Whether the group has committed all that is in the partitions before that one."""
        seats = self._fresh_seats()
        ends = self.stream.offsets()
        for partition in range(before):
            committed = seats[partition][2]
            done = self.start_of(partition) if committed is None else committed
            if done < ends[partition].latest:
                return False
        return True

    def _came_later(self, partition: int) -> bool:
        made = self._made(partition)
        return bool(made.behind) and made.created_at > self._created_at

    def _made(self, partition: int) -> api.PartitionOffsets:
        if partition >= len(self._partitions):
            self._partitions = self.stream.offsets()
        return self._partitions[partition]
