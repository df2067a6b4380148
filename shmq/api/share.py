"""The contract of a share group: each record of a stream is leased to one member at a time."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

from shmq.api.contract import Closing, Settling
from shmq.api.group import GroupStart
from shmq.api.options import Options, option
from shmq.native._group import MOST_HELD


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ShareOptions(Options):
    """The options that a share group was created with. Times are in seconds."""

    lease: float = option(30.0, "seconds", "How long a record is leased", "lease", least=0.001)
    max_deliveries: int | None = option(
        5,
        "count",
        "Deliveries after which a record that comes back is a dead letter",
        "max_deliveries",
        most=65_535,
        none="no limit",
    )
    dead_letter: str | None = option(
        None,
        "name",
        "The queue for dead letters, which must exist",
        "dead_letter",
        none="dead letters are dropped and counted",
    )
    held: int = option(
        4096, "count", "How many records may be unsettled at a time", "held", most=MOST_HELD
    )
    start: GroupStart = option(
        "earliest",
        "choice",
        "As for a group with assigned partitions",
        "latest",
        choices=get_args(GroupStart),
    )


class SharedRecord(Settling):
    """A record that is leased to this member until it settles it, or the lease ends.

    As a context manager it acknowledges itself on success and returns itself (``nack``) on an
    exception, unless the block settled it. If it is garbage collected while it is leased, it issues
    a ResourceWarning, unless its receipt was read.
    """

    @property
    @abc.abstractmethod
    def partition(self) -> int:
        """The partition it is in."""

    @property
    @abc.abstractmethod
    def offset(self) -> int:
        """Its number in the partition."""

    @property
    @abc.abstractmethod
    def timestamp(self) -> float:
        """When it was appended, in seconds since 1970."""

    @property
    @abc.abstractmethod
    def key(self) -> bytes | None:
        """Its key, or None."""

    @property
    @abc.abstractmethod
    def headers(self) -> Mapping[str, Any]:
        """The headers that the producer set; empty if none."""

    @property
    @abc.abstractmethod
    def value(self) -> bytes:
        """Its bytes."""

    @property
    @abc.abstractmethod
    def body(self) -> Any:
        """The value, decoded by its codec. Raises :class:`~shmq.ShmqError` if that fails."""

    @property
    @abc.abstractmethod
    def delivery_count(self) -> int:
        """How often it has been delivered, including this delivery: 1 for the first."""

    @property
    @abc.abstractmethod
    def receipt(self) -> int:
        """The number that settles this delivery: see ``Share.ack_many``."""

    @property
    @abc.abstractmethod
    def settled(self) -> bool:
        """Whether this object has settled its record (ack, nack or reject)."""

    @abc.abstractmethod
    def ack(self) -> None:
        """Acknowledge the record: the group does not deliver it again.

        Raises :class:`~shmq.LeaseExpired`, and changes nothing, if the lease has ended or the
        record was settled by its receipt; :class:`~shmq.AlreadySettled`, a subclass, if this object
        was settled already. So do the other settlements.
        """

    @abc.abstractmethod
    def nack(self, delay: float = 0.0, *, counted: bool = True) -> None:
        """Return the record: it is delivered again, in ``delay`` seconds at the earliest.

        If the record has reached the group's ``max_deliveries``, it is rejected instead. With
        ``counted=False`` this delivery does not count. Raises :class:`~shmq.LeaseExpired`,
        :class:`~shmq.InvalidOption` for a delay that is not 0 to 1e9, and, if the server has no
        ``counted=False``, :class:`~shmq.Unsupported`.
        """

    @abc.abstractmethod
    def reject(self) -> None:
        """Move it to the dead-letter queue, or drop it. Raises :class:`~shmq.LeaseExpired`."""

    @abc.abstractmethod
    def extend(self, seconds: float | None = None) -> None:
        """Set the end of the lease to ``seconds`` from now; None: the group's lease.

        Raises :class:`~shmq.LeaseExpired`, and :class:`~shmq.InvalidOption` for seconds that are
        not more than 0, up to 1e9.
        """


class Share(Closing):
    """A member of a share group, which consumes a stream as consumers share a queue.

    The records of a partition are leased in the order of their offsets, to any member that asks,
    and settled one by one: a record that cannot be settled blocks neither the records after it nor
    the partition. The records of a dead member are leased again at once, those of a silent one when
    the lease ends. One thread at a time may use a member. After a fork the child cannot use it and
    must join on its own.

    If a file is damaged, getting records raises :class:`~shmq.DamagedFile`, once the records of the
    other partitions were returned, and again at each later call: no record after the damage in that
    partition is leased until a member with ``on_damage="skip"`` passes over it. The group counts
    the damaged records as skipped; it does so too with a record that was leased before it was
    damaged, once it was tried ``max_deliveries`` times.
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The group's name."""

    @property
    @abc.abstractmethod
    def damaged(self) -> int:
        """How many records in damaged files it has skipped, with ``on_damage="skip"``."""

    @abc.abstractmethod
    def get(self, block: bool = True, timeout: float | None = None) -> SharedRecord:
        """Lease the next record, waiting for it up to ``timeout`` seconds.

        A ``timeout`` of None waits without limit. Raises :class:`~shmq.Empty`.
        """

    @abc.abstractmethod
    def get_many(
        self, limit: int, block: bool = True, timeout: float | None = None
    ) -> Sequence[SharedRecord]:
        """Lease 1 to ``limit`` records, waiting only for the first.

        Raises :class:`~shmq.Empty`, and :class:`~shmq.InvalidOption` for a limit below 1.
        """

    @abc.abstractmethod
    def consume(self, prefetch: int = 16, timeout: float | None = None) -> Iterator[SharedRecord]:
        """Iterate over records, leasing ``prefetch`` at a time.

        The iteration ends if no record came for ``timeout`` seconds; None: never. A record counts
        as delivered once it is delivered; at the end the others are returned.
        """

    @abc.abstractmethod
    def ack_many(self, receipts: Iterable[int]) -> list[int]:
        """Acknowledge records by receipts; returns the receipts that were refused."""

    @abc.abstractmethod
    def close(self) -> None:
        """Leave the group: records that it has not settled are returned. May be called again."""
