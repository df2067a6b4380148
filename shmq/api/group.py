"""The contract of a group of consumers: each partition is one member's at a time."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, get_args

from shmq.api.closing import Closing
from shmq.api.options import Options, option

if TYPE_CHECKING:
    from shmq.api.record import OnDamage, Record, Records

__all__ = [
    "Assignment",
    "Group",
    "GroupOptions",
    "GroupPartition",
    "GroupStart",
    "GroupSummary",
    "Member",
    "MemberInfo",
    "OnPartitions",
]

#: How partitions are divided among the members.
Assignment = Literal["range", "round-robin", "sticky"]

#: Where a partition begins that the group has never committed in.
GroupStart = Literal["earliest", "latest"]

#: What is called with the partitions that a member has got, or is about to lose.
OnPartitions = Callable[[frozenset[int]], object]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions(Options):
    """What a group was made with whose partitions are each one member's. Times are in seconds."""

    assignment: Assignment = option(
        "range", "choice", "How partitions are divided", choices=get_args(Assignment)
    )
    session_timeout: float = option(
        30.0,
        "seconds",
        "How long a member may be silent; one whose process died is out at once",
        least=0.001,
    )
    start: GroupStart = option(
        "earliest",
        "choice",
        "Where a partition begins in which nothing was committed: with the first record there is, "
        "or behind the last one when a member first has the partition",
        choices=get_args(GroupStart),
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """A line of the list of a stream's groups."""

    #: The group's name.
    name: str
    #: ``"range"``, ``"round-robin"``, ``"sticky"``, or ``"shared"``.
    assignment: str
    #: How many members it has now.
    members: int
    #: Records that it has not done yet, of all partitions.
    lag: int
    #: How often the partitions were divided anew.
    rebalances: int
    #: Members that died, or fell silent, since the group was made.
    evicted: int
    #: Of a group that shares: records that are lent, or wait to be lent again.
    held: int = 0
    #: Of one that shares: records that were done,
    acked: int = 0
    #: those that were delivered too often, and dropped,
    dropped: int = 0
    #: or moved to the dead-letter queue,
    dead_lettered: int = 0
    #: and those that were gone, or could not be read, before anybody had them.
    skipped: int = 0
    #: Why the group cannot be used, and its numbers are 0; None if it can.
    problem: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MemberInfo:
    """A member of a group, as the others see it."""

    #: Another number for each member of a group, rising.
    id: int
    #: What it called itself.
    name: str
    #: The number of its process in the namespace.
    process: int
    #: Its partitions, rising.
    partitions: tuple[int, ...]
    #: When it joined, in seconds since 1970.
    joined_at: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupPartition:
    """How far a group is in one partition."""

    #: The partition.
    partition: int
    #: The id of the member that has it; None: nobody has it at the moment.
    member: int | None
    #: The next offset to be read, as it was committed; None: nothing was committed yet.
    committed: int | None
    #: The offset that the partition's next record will have.
    latest: int
    #: How many records there are that the group has not done.
    lag: int


class Member(Closing):
    """One member of a group: an iterator over the records of its partitions.

    It has to be heard of once within the group's session timeout: by the next record, `poll`,
    `commit` or `heartbeat`. A member that was silent for longer, or whose process died, loses
    its partitions to the others; one that comes back after that joins anew at its next `poll`.

    The position is behind what the application was handed; nobody else sees it before
    `commit`. What was not committed is delivered again to whoever gets the partition. One
    thread at a time uses a member. In the child of a fork it is of no use: join there.
    """

    @property
    @abc.abstractmethod
    def id(self) -> int:
        """Its number in the group; another one after it had to join anew."""

    @property
    @abc.abstractmethod
    def assignment(self) -> frozenset[int]:
        """The partitions that it has now."""

    @property
    @abc.abstractmethod
    def position(self) -> dict[int, int]:
        """The offset that it reads next, of each of its partitions."""

    @property
    @abc.abstractmethod
    def paused(self) -> frozenset[int]:
        """Its partitions that it does not read from at the moment."""

    @property
    @abc.abstractmethod
    def lost(self) -> int:
        """How many records were gone before it came to them, with ``lapped="skip"``."""

    @property
    @abc.abstractmethod
    def damaged(self) -> int:
        """How many records were passed over, with ``on_damage="skip"``: files are damaged."""

    @abc.abstractmethod
    def poll(self, limit: int = 1000, timeout: float | None = 0.0) -> list[Records]:
        """What there is, at most ``limit`` records of each partition, waiting for the first.

        None: without end. Empty if nothing came. Here, and between two records of the
        iteration, partitions come and go. Raises :class:`~shmq.OffsetOutOfRange` where records
        were gone before they were read, unless it joined with ``lapped="skip"``, and
        :class:`~shmq.DamagedFile` where a file is damaged, unless it joined with
        ``on_damage="skip"``: after what its other partitions have, and again and again.
        """

    @abc.abstractmethod
    def __next__(self) -> Record: ...

    def __iter__(self) -> Iterator[Record]:
        return self

    @abc.abstractmethod
    def commit(self, offsets: Mapping[int, int] | None = None) -> None:
        """Everything before these offsets is done; None: whatever was handed out.

        Raises :class:`~shmq.MemberFenced` if a partition is no longer its own; what could be
        committed is. Raises :class:`~shmq.InvalidOption` for an offset below 0 or behind the
        partition's end; then nothing is.
        """

    @abc.abstractmethod
    def committed(self) -> dict[int, int | None]:
        """What is committed in its partitions; None: nothing yet."""

    @abc.abstractmethod
    def seek(self, partition: int, offset: int) -> None:
        """Go on there. Raises :class:`~shmq.MemberFenced` if the partition is not its own."""

    @abc.abstractmethod
    def pause(self, *partitions: int) -> None:
        """Read no more from these partitions, and keep them; none given: all it has."""

    @abc.abstractmethod
    def resume(self, *partitions: int) -> None:
        """Read from these partitions again; none given: all it has."""

    @abc.abstractmethod
    def lag(self) -> dict[int, int]:
        """How many records there are behind its position, of each of its partitions."""

    @abc.abstractmethod
    def heartbeat(self) -> None:
        """Say that it lives, where the next `poll` may be long in coming.

        Raises :class:`~shmq.MemberFenced` if it is no member any more.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Leave: its partitions go to the others at once. Commits nothing. May be repeated."""


class Group(abc.ABC):
    """A group of consumers of one stream, with one committed offset a partition.

    A group is there from the first time that somebody names it until it, or its stream, is
    deleted.
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The group's name."""

    @property
    @abc.abstractmethod
    def assignment(self) -> Assignment:
        """How partitions are divided among the members."""

    @property
    @abc.abstractmethod
    def session_timeout(self) -> float:
        """For how many seconds a member may be silent."""

    @abc.abstractmethod
    def join(
        self,
        name: str | None = None,
        *,
        timeout: float | None = None,
        limit: int = 1000,
        lapped: Literal["raise", "skip"] = "raise",
        where: str | None = None,
        on_damage: OnDamage = "raise",
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
    ) -> Member:
        """Become a member, called ``name``; None: as the process is.

        ``timeout``: the iteration ends where no record comes within so many seconds; None:
        never. It reads up to ``limit`` ahead. ``on_assigned`` is called with partitions that
        it has got, ``on_revoked`` with those that it is about to lose, and may still commit
        in, or has lost; what they raise is raised to who called, and the partitions go all the
        same. ``where`` leaves out records, as ``Stream.read`` does: they count as handed out
        once it has passed over them, and `commit` commits that, too; where nothing but such
        records is left of a partition that was sealed, the member commits them itself while it
        waits, as the group reads on elsewhere then. ``on_damage="skip"`` passes over records that a
        file has no longer as they were written: they count as handed out, too. Raises
        :class:`~shmq.Full` where there are 512 members.
        """

    @abc.abstractmethod
    def members(self) -> list[MemberInfo]:
        """Its members, in the order in which they joined."""

    @abc.abstractmethod
    def partitions(self) -> list[GroupPartition]:
        """How far it is in each partition, in their order."""

    @abc.abstractmethod
    def committed(self) -> dict[int, int | None]:
        """What is committed in each partition; None: nothing yet."""

    @abc.abstractmethod
    def lag(self) -> dict[int, int]:
        """How many records there are that it has not done, of each partition."""

    @abc.abstractmethod
    def reset(
        self, to: GroupStart | Mapping[int, int] | float, partitions: Collection[int] | None = None
    ) -> dict[int, int]:
        """Commit other offsets, in all or in these partitions, and return them.

        A number is a time, in seconds since 1970: the first record from then on. Raises
        :class:`~shmq.MemberFenced` for partitions that a member has: it is his to `seek`, and
        :class:`~shmq.InvalidOption` for an offset behind the partition's end.
        """

    @abc.abstractmethod
    def summary(self) -> GroupSummary:
        """Its line of the list."""
