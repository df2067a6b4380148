"""The contract of a group that shares a stream: each record is lent to one member at a time."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

from shmq.api.closing import Closing
from shmq.api.group import GroupStart
from shmq.api.options import Options, option
from shmq.api.settling import Settling
from shmq.native._group import MOST_HELD

__all__ = ["Share", "ShareOptions", "SharedRecord"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ShareOptions(Options):
    """What a group was made with that lends each record to one member. Times are in seconds."""

    lease: float = option(30.0, "seconds", "How long a record is lent", least=0.001)
    max_deliveries: int | None = option(
        5,
        "count",
        "Deliveries after which a record that comes back is a dead letter",
        most=65_535,
        none="no limit",
    )
    dead_letter: str | None = option(
        None,
        "name",
        "The queue for dead letters, which has to be there",
        none="dead letters are dropped and counted",
    )
    held: int = option(4096, "count", "How many records may be unsettled at a time", most=MOST_HELD)
    start: GroupStart = option(
        "earliest", "choice", "As of a group with an assignment", choices=get_args(GroupStart)
    )


class SharedRecord(Settling):
    """A record that is lent to this member until it settles it, or the lease ends.

    As a context manager it acknowledges itself on success and returns itself (``nack``) on an
    exception, unless it was settled inside the block. Dropped while it is lent it issues a
    ResourceWarning, unless its receipt was asked for.
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
        """The headers that the producer gave; empty if none."""

    @property
    @abc.abstractmethod
    def value(self) -> bytes:
        """Its bytes."""

    @property
    @abc.abstractmethod
    def body(self) -> Any:
        """The value, decoded by its codec. Raises :class:`~shmq.ShmqError` if it is not of it."""

    @property
    @abc.abstractmethod
    def delivery_count(self) -> int:
        """How often it has been delivered, this time included: 1 at the first."""

    @property
    @abc.abstractmethod
    def receipt(self) -> int:
        """What settles this delivery: see ``Share.ack_many``."""

    @property
    @abc.abstractmethod
    def settled(self) -> bool:
        """Whether this object has settled its record (ack, nack or reject)."""

    @abc.abstractmethod
    def ack(self) -> None:
        """Done: the group delivers it no more.

        Raises :class:`~shmq.LeaseExpired` if the lease has ended or the record was settled,
        as the other settlements do; nothing is changed then.
        """

    @abc.abstractmethod
    def nack(self, delay: float = 0.0) -> None:
        """Return it: somebody gets it again, in ``delay`` seconds at the earliest.

        At the group's ``max_deliveries`` it is rejected instead. Raises
        :class:`~shmq.LeaseExpired`, and :class:`~shmq.InvalidOption` for a delay that is not
        0 to 1e9.
        """

    @abc.abstractmethod
    def reject(self) -> None:
        """Move it to the dead-letter queue, or drop it. Raises :class:`~shmq.LeaseExpired`."""

    @abc.abstractmethod
    def extend(self, seconds: float | None = None) -> None:
        """Let the lease end ``seconds`` from now; None: the group's lease.

        Raises :class:`~shmq.LeaseExpired`, and :class:`~shmq.InvalidOption` for seconds that
        are not more than 0, up to 1e9.
        """


class Share(Closing):
    """A member of a group that shares a stream, as consumers share a queue.

    Records of a partition are lent in the order of their offsets, to whoever asks, and settled
    one by one: one that nobody can settle holds up neither those behind it nor the partition.
    What a dead member had is lent again at once, and what a silent one has at the end of the
    lease. One thread at a time uses a member. In the child of a fork it is of no use: share there.

    Where a file is damaged, what gets records raises :class:`~shmq.DamagedFile`, after what the
    other partitions have, and again and again: nobody is lent what is behind it in that
    partition, until a member passes over it, with ``on_damage="skip"``. The group counts those
    records as skipped, and so it does a record that was lent before it was damaged, once it was
    tried ``max_deliveries`` times.
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The group's name."""

    @property
    @abc.abstractmethod
    def damaged(self) -> int:
        """How many records it has passed over, with ``on_damage="skip"``: files are damaged."""

    @abc.abstractmethod
    def get(self, block: bool = True, timeout: float | None = None) -> SharedRecord:
        """The next record, lent to this member, waiting for it up to ``timeout`` seconds.

        None: without end. Raises :class:`~shmq.Empty`.
        """

    @abc.abstractmethod
    def get_many(
        self, limit: int, block: bool = True, timeout: float | None = None
    ) -> Sequence[SharedRecord]:
        """At least one record and at most ``limit``, waiting for the first one alone.

        Raises :class:`~shmq.Empty`, and :class:`~shmq.InvalidOption` for a limit below 1.
        """

    @abc.abstractmethod
    def consume(self, prefetch: int = 16, timeout: float | None = None) -> Iterator[SharedRecord]:
        """Record after record, lent ``prefetch`` at a time.

        It ends where none comes within ``timeout`` seconds; None: never. A record counts as
        delivered once it is handed out, and at the iteration's end the others go back.
        """

    @abc.abstractmethod
    def ack_many(self, receipts: Iterable[int]) -> list[int]:
        """Acknowledge by receipts; those that were good no more are returned."""

    @abc.abstractmethod
    def close(self) -> None:
        """Leave: what it has not settled goes back. May be called again."""
