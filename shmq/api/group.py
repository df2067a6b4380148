"""The contract of a consumer group: each partition belongs to one member at a time."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, get_args

from shmq.api.contract import Closing
from shmq.api.options import Options, option

if TYPE_CHECKING:
    from shmq.api.record import OnDamage, Record, Records

#: How partitions are divided among the members.
Assignment = Literal["range", "round-robin", "sticky"]

#: Where a partition begins if the group has never committed an offset in it.
GroupStart = Literal["earliest", "latest"]

#: A callback for the partitions that a member was assigned, or is about to lose.
OnPartitions = Callable[[frozenset[int]], object]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions(Options):
    """The options that a group with assigned partitions was created with. Times are in seconds."""

    assignment: Assignment = option(
        "range", "choice", "How partitions are divided", "assignment", choices=get_args(Assignment)
    )
    session_timeout: float = option(
        30.0,
        "seconds",
        "How long a member may send no heartbeat before it is removed; one whose process died is "
        "removed at once",
        "session",
        least=0.001,
    )
    start: GroupStart = option(
        "earliest",
        "choice",
        "Where the group begins in a partition without a committed offset: at its first record, or "
        "after its last one when a member first takes the partition",
        "latest",
        choices=get_args(GroupStart),
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """One entry of the list of a stream's groups."""

    #: The group's name.
    name: str
    #: ``"range"``, ``"round-robin"``, ``"sticky"``, or ``"shared"``.
    assignment: str
    #: How many members it has now.
    members: int
    #: Records that it has not done yet, in all partitions.
    lag: int
    #: How often the partitions were reassigned.
    rebalances: int
    #: Members that died or timed out since the group was created.
    evicted: int
    #: For a share group: records that are leased, or wait to be leased again.
    held: int = 0
    #: For a share group: records that were acknowledged.
    acked: int = 0
    #: For a share group: records that were delivered too often, and dropped.
    dropped: int = 0
    #: For a share group: records that were moved to the dead-letter queue.
    dead_lettered: int = 0
    #: For a share group: records that were gone, or could not be read, before they were leased.
    skipped: int = 0
    #: Why the group cannot be used (its numbers are then 0); None if it can be used.
    problem: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MemberInfo:
    """A member of a group, as the others see it."""

    #: The member's id: rising, and unique in the group.
    id: int
    #: The name that the member joined with.
    name: str
    #: The number of its process in the namespace.
    process: int
    #: Its partitions, in ascending order.
    partitions: tuple[int, ...]
    #: When it joined, in seconds since 1970.
    joined_at: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupPartition:
    """The progress of a group in one partition."""

    #: The partition.
    partition: int
    #: The id of the member that owns it; None: no member owns it at the moment.
    member: int | None
    #: The committed offset, the next to be read; None: nothing was committed yet.
    committed: int | None
    #: The offset that the partition's next record will have.
    latest: int
    #: How many records the group has not done.
    lag: int


class Member(Closing):
    """One member of a group: an iterator over the records of its partitions.

    It must show activity once within the group's session timeout, by fetching a record, or by
    `poll`, `commit` or `heartbeat`. A member that was silent for longer, or whose process died,
    loses its partitions to the others; if it comes back, it rejoins at its next `poll`.

    The position is past the records handed to the application; other members see it only once it is
    committed. Records that were not committed are delivered again to the partition's next owner.
    One thread at a time may use a member. After a fork the child cannot use it and must join on its
    own.
    """

    @property
    @abc.abstractmethod
    def id(self) -> int:
        """Its number in the group; a member that rejoins gets another one."""

    @property
    @abc.abstractmethod
    def assignment(self) -> frozenset[int]:
        """The partitions that it owns now."""

    @property
    @abc.abstractmethod
    def position(self) -> dict[int, int]:
        """The offset that it reads next, for each of its partitions."""

    @property
    @abc.abstractmethod
    def paused(self) -> frozenset[int]:
        """The partitions that it owns but does not read from at the moment."""

    @property
    @abc.abstractmethod
    def lost(self) -> int:
        """How many records were gone before it reached them, with ``lapped="skip"``."""

    @property
    @abc.abstractmethod
    def damaged(self) -> int:
        """How many records in damaged files were skipped, with ``on_damage="skip"``."""

    @abc.abstractmethod
    def poll(self, limit: int = 1000, timeout: float | None = 0.0) -> list[Records]:
        """Up to ``limit`` records of each partition, waiting only for the first.

        It returns batches, a :class:`~shmq.Records` for each partition, as `Stream.read` does; to
        iterate a member yields single records, as a :class:`~shmq.Reader` does.

        A ``timeout`` of None waits without limit. The list is empty if no record came. Partitions
        are assigned and revoked here, and between two records of the iteration. Raises
        :class:`~shmq.OffsetOutOfRange` if records were gone before they were read, unless it joined
        with ``lapped="skip"``, and :class:`~shmq.DamagedFile` if a file is damaged, unless it
        joined with ``on_damage="skip"``: once the records of its other partitions were returned,
        and again while that lasts. Later calls return the records of the other partitions; `seek`
        continues the partition.
        """

    @abc.abstractmethod
    def __next__(self) -> Record: ...

    def __iter__(self) -> Iterator[Record]:
        return self

    @abc.abstractmethod
    def commit(self, offsets: Mapping[int, int] | None = None) -> None:
        """Mark everything before these offsets as done; None: every record that was delivered.

        Raises :class:`~shmq.MemberFenced` if the member no longer owns a partition; the other
        partitions are committed. Raises :class:`~shmq.InvalidOption`, and commits nothing, for an
        offset below 0 or past the partition's end. Over TCP it also raises
        :class:`~shmq.ConnectionLost`: it is unknown which offsets are committed.
        """

    @abc.abstractmethod
    def committed(self) -> dict[int, int | None]:
        """The committed offset of each of its partitions; None: nothing yet."""

    @abc.abstractmethod
    def seek(self, partition: int, offset: int) -> None:
        """Read on there. Raises :class:`~shmq.MemberFenced` if it does not own the partition."""

    @abc.abstractmethod
    def pause(self, *partitions: int) -> None:
        """Stop reading from these partitions, but keep them; without arguments: from all."""

    @abc.abstractmethod
    def resume(self, *partitions: int) -> None:
        """Read from these partitions again; without arguments: from all."""

    @abc.abstractmethod
    def lag(self) -> dict[int, int]:
        """How many records follow its position, for each of its partitions."""

    @abc.abstractmethod
    def heartbeat(self) -> None:
        """Keep its session alive if the next `poll` may be a long time away.

        Raises :class:`~shmq.MemberFenced` if it has left the group.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Leave, committing nothing; its partitions are reassigned at once. May be repeated."""


class Group(abc.ABC):
    """A consumer group of one stream, with one committed offset for each partition.

    A group exists from its first use by name until it, or its stream, is deleted.
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
        """For how many seconds a member may be silent before it loses its partitions."""

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
        """Become a member called ``name``; None: the process's name.

        ``timeout``: the iteration ends if no record came for that many seconds; None: never. It
        reads up to ``limit`` ahead. ``on_assigned`` is called with partitions that the member was
        assigned, ``on_revoked`` with partitions that it has lost, or is about to lose and may still
        commit in. Their exceptions leave the call that ran them; the partitions are revoked
        nevertheless. ``where`` leaves out records, as for ``Stream.read``: they count as delivered
        once the member has passed over them, and `commit` commits them, too. If only such records
        are left in a sealed partition, the member commits them itself while it waits, so that the
        group can read on in the new partitions. ``on_damage="skip"`` skips records in damaged
        files; these count as delivered, too. Raises :class:`~shmq.Full` if the group has 512
        members.
        """

    @abc.abstractmethod
    def members(self) -> list[MemberInfo]:
        """Its members, in the order in which they joined."""

    @abc.abstractmethod
    def partitions(self) -> list[GroupPartition]:
        """The group's progress in each partition, in order."""

    @abc.abstractmethod
    def committed(self) -> dict[int, int | None]:
        """The committed offset of each partition; None: nothing yet."""

    @abc.abstractmethod
    def lag(self) -> dict[int, int]:
        """How many records it has not done, for each partition."""

    @abc.abstractmethod
    def reset(
        self, to: GroupStart | Mapping[int, int] | float, partitions: Collection[int] | None = None
    ) -> dict[int, int]:
        """Commit other offsets, in all or in these partitions; returns them.

        A number is a time, in seconds since 1970, and means the first record from then on. Raises
        :class:`~shmq.MemberFenced` for partitions that a member owns (only that member may `seek`),
        and :class:`~shmq.InvalidOption` for an offset past the partition's end.
        """

    @abc.abstractmethod
    def summary(self) -> GroupSummary:
        """The group's entry of the list."""
