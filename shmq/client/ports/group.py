"""The port of a group: what its members read and change of it, on this host or on a server."""

from __future__ import annotations

import abc
from typing import Any, Final, Protocol

from shmq import api
from shmq.api.options import check_whole
from shmq.native import _clock as time

#: How long a member sleeps, in seconds, where nothing wakes it: before it checks for assigned and
#: revoked partitions.
SLICE: Final = 0.02

#: A partition's owner, its assigned member (0: none), its committed offset, the time of that
#: commit, the next offset to lease, and how often the partition changed owners.
PartitionSeat = tuple[int, int, int | None, int, int | None, int]


class GroupState(Protocol):
    """The state of a group; :class:`shmq.native._group.GroupState` is one."""

    @property
    def options(self) -> dict[str, Any]:
        """The options that the group was created with."""

    @property
    def deleted(self) -> bool:
        """Whether the group was deleted."""

    @property
    def partitions(self) -> int:
        """The number of partitions known to its members."""

    def numbers(self) -> dict[str, int]:
        """Its counters."""

    def members(self) -> list[tuple[int, int, str, int, int]]:
        """The id, process number, name, joining time and deadline of each member."""

    def seats(self) -> list[PartitionSeat]:
        """A row for each partition."""

    def commit(self, partition: int, member: int, offset: int, /) -> bool:
        """Mark all before ``offset`` as done; False if the member does not own the partition."""


class MemberState(GroupState, Protocol):
    """The operations of a member on its group."""

    @property
    def planned(self) -> bool:
        """Whether the partitions are assigned to the current members."""

    def committed(self, partition: int, /) -> int | None:
        """The partition's committed offset, if there is one."""

    def join(self, process: int, name: bytes, /) -> tuple[int, int]:
        """Become a member; returns its slot and its id. Raises Full."""

    def leave(self, member: int, evicted: bool, /) -> bool:
        """Remove a member; whether it was one."""

    def beat(self, at: int, member: int, /) -> int | None:
        """Record a heartbeat; returns a number that changes with the plan, None for others."""

    def watch(self, ns: int, /) -> bool:
        """Whether the caller must now check for dead members."""

    def claim(self, partition: int, member: int, /) -> bool:
        """Take over a partition assigned to the member; whether the member owns it now."""

    def release(self, partition: int, member: int, /) -> bool:
        """Give up a partition; whether the member owned it."""


class GroupStore(abc.ABC):
    """One group of one stream: the state that its members see, and its maintenance.

    What is not abstract may be overridden; the maintenance is nothing where a server does it.
    """

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
        """The number of the process that its members belong to."""

    @abc.abstractmethod
    def for_member(self) -> tuple[GroupStore, MemberState]:
        """The store and the state for a new member."""

    def refresh(self) -> None:  # noqa: B027 - shared memory is always current
        """Make the next heartbeat of a member fetch the state, however recently it was fetched."""

    def poll(
        self, reader: api.Reader | None, change: int | None, seconds: float
    ) -> list[api.Records]:
        """The next records of a member's reader, which is None if it has no partition to read.

        Waits up to ``seconds`` for them, but not long after the heartbeat would return another
        number than ``change``.
        """
        del change
        seconds = min(seconds, SLICE)
        if reader is not None:
            return reader.poll(seconds)
        time.sleep(seconds)
        return []

    @abc.abstractmethod
    def drop(self, member: int) -> None:
        """Remove a member without waiting: for destructors."""

    def why_out(self) -> str:
        """The reason why a member was removed."""
        return f"it was silent for more than {self.session_timeout:g} s"

    def why_fenced(self) -> str:
        """The reason why a member no longer has a partition."""
        return "another one reads on from what was committed before"

    def widen(self) -> None:  # noqa: B027 - as above
        """Include partitions that the stream has added since."""

    @abc.abstractmethod
    def look_for_dead(self) -> None:
        """Remove members whose process has ended, or whose session has timed out."""

    def plan(self) -> None:  # noqa: B027 - as above
        """Assign the partitions to the members, unless that is done."""

    def check_offset(self, partition: int, offset: int) -> None:
        """Raise TypeError or InvalidOption unless ``offset`` is a valid position of the group."""
        count = max(self.stream.partitions, self.state.partitions)
        check_whole("partition", partition, 0, count - 1)
        check_whole(f"partition {partition}: offset", offset, 0, self._end_of(partition))

    def _end_of(self, partition: int) -> int:
        """The largest offset that may be committed."""
        return self.stream.latest(partition)

    def keep_from(self, partition: int, offset: int) -> None:  # noqa: B027 - as above
        """Note that the group is done up to ``offset``: waiting appends may overwrite that."""

    def keep_again(self, partition: int, offset: int) -> None:  # noqa: B027 - as above
        """Note that the group continues at ``offset``, which may be before what it has done."""

    # ---- partitions ----

    def start_of(self, partition: int) -> int:
        """The offset where a partition begins if nothing was committed in it.

        A partition added after the group was created begins with its first record.
        """
        if self.starts_at_the_end and not self._came_later(partition):
            return self.stream.latest(partition)
        return self.stream.earliest(partition)

    @property
    def grown(self) -> bool:
        """Whether the stream has partitions that the group does not know."""
        return self.stream.partitions > self.state.partitions

    def behind(self, partition: int) -> int:
        """A partition number: those below it were sealed for this one, and are read first."""
        return self._make(partition).behind

    def has_done(self, before: int) -> bool:
        """Whether the group has committed everything in the partitions below ``before``."""
        seats = self._find_seats()
        ends = self.stream.offsets()
        for partition in range(before):
            committed = seats[partition][2]
            done = self.start_of(partition) if committed is None else committed
            if done < ends[partition].latest:
                return False
        return True

    def _find_seats(self) -> list[PartitionSeat]:
        """The current rows of the partitions."""
        return self.state.seats()

    def _came_later(self, partition: int) -> bool:
        made = self._make(partition)
        return bool(made.behind) and made.created_at > self._created_at

    def _make(self, partition: int) -> api.PartitionOffsets:
        if partition >= len(self._partitions):
            self._partitions = self.stream.offsets()
        return self._partitions[partition]
