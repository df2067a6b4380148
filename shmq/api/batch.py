"""Messages that are leased and settled together."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import Any

from shmq.api.settling import Settling

__all__ = ["Batch", "LeasedRun", "Packed"]


class LeasedRun(Settling):
    """Messages leased in one step, without an object for each.

    As a context manager it acknowledges them all, and returns them all to the queue if
    an exception leaves the block. Dropped while they are leased it issues a ResourceWarning,
    unless the receipts were asked for.
    """

    @property
    @abc.abstractmethod
    def receipts(self) -> list[int]:
        """What settles each of them, in their order, from any process; empty once settled."""

    @property
    @abc.abstractmethod
    def settled(self) -> bool:
        """Whether this object has settled its messages."""

    @abc.abstractmethod
    def ack(self) -> list[int]:
        """Acknowledge them all; returns the receipts that were refused."""

    @abc.abstractmethod
    def nack(self, delay: float | None = None) -> list[int]:
        """Return them all after ``delay`` seconds (None: each by the queue's back-off).

        Returns the receipts that were refused.
        """

    @abc.abstractmethod
    def __len__(self) -> int: ...


class Batch(LeasedRun):
    """What ``Queue.get_batch`` returns: the bodies of messages that are leased together."""

    @property
    @abc.abstractmethod
    def bodies(self) -> list[Any]:
        """The bodies, in the order of the receipts."""

    @abc.abstractmethod
    def __iter__(self) -> Iterator[Any]: ...


class Packed(LeasedRun):
    """What ``Queue.get_packed`` returns: records, one behind the other in one buffer.

    A packed batch that was put in one piece is leased and settled in one piece: it has one
    receipt, whatever it holds. Any other message is a batch of one record.
    """

    @property
    @abc.abstractmethod
    def data(self) -> bytes:
        """All records, without anything between them."""

    @property
    @abc.abstractmethod
    def size(self) -> int | None:
        """The bytes of every record, or None if they are not all of one size."""

    @property
    @abc.abstractmethod
    def lengths(self) -> memoryview:
        """The bytes of each record, as unsigned 32-bit numbers."""

    @property
    @abc.abstractmethod
    def offsets(self) -> memoryview:
        """Where each record begins, and the end of the last, as unsigned 64-bit numbers.

        One more than there are records: the offsets of an Arrow array of large binaries.
        """

    @abc.abstractmethod
    def __iter__(self) -> Iterator[bytes]: ...
