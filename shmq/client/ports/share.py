"""The port of a share: leasing a stream's records to the member of a group, and settling them."""

from __future__ import annotations

import abc
from typing import Protocol

from shmq import api

#: A receipt, the partition, the offset, and the number of earlier deliveries.
Lent = tuple[int, int, int, int]


class Settler(Protocol):
    """Settles leased records by receipt; each method tells whether the lease was still valid."""

    def ack(self, receipt: int, /) -> bool:
        """Mark the record as done."""

    def nack(self, receipt: int, delay: int, counted: bool = True, /) -> bool:
        """Return the record after ``delay`` ns, or as a dead letter after its last delivery.

        Without ``counted`` it is returned as if it had not been delivered.
        """

    def reject(self, receipt: int, /) -> bool:
        """Make the record a dead letter."""

    def extend(self, receipt: int, ns: int, /) -> bool:
        """Extend the lease to ``ns`` from now; 0: by the group's lease."""

    def hand(self, receipt: int, /) -> bool:
        """Note that the application gets the record."""

    def lost(self, receipt: int, /) -> bool:
        """Note that the stream no longer has the record."""


class Lender(abc.ABC):
    """Leases records of a stream to one member of a group: the port of a share."""

    #: The stream, and the group's name.
    stream: api.Stream
    name: str
    #: The lease of a record, in seconds.
    lease: float
    #: The fork generation of the member's process, see ``_core.generation``.
    generation: int
    #: How many records in damaged files the group has skipped for this member.
    damaged: int
    #: Whether records leased with ``handed`` need no `Settler.hand`.
    hands_over: bool

    @property
    @abc.abstractmethod
    def settler(self) -> Settler:
        """Settles the records that are leased from now on."""

    @abc.abstractmethod
    def attend(self) -> None:
        """Send a heartbeat, and do the group's maintenance."""

    @abc.abstractmethod
    def lend(self, limit: int, *, handed: bool) -> list[Lent]:
        """Lease up to ``limit`` records; ``handed``: they go to the application at once."""

    @abc.abstractmethod
    def outlook(self) -> tuple[float, dict[int, int]]:
        """The seconds until a held record is due, and the end of each partition."""

    @abc.abstractmethod
    def ack_many(self, receipts: list[int]) -> list[int]:
        """Acknowledge records; returns the receipts that were refused."""

    @abc.abstractmethod
    def leave(self) -> None:
        """End the membership."""

    @abc.abstractmethod
    def drop(self) -> None:
        """`leave`, without waiting: for destructors."""
