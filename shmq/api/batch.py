"""Messages that are leased and settled together."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import Any

from shmq.api.contract import Settling
from shmq.api.message import Failure
from shmq.display import Displayed


class LeasedRun(Settling):
    """Messages leased in one step, without an object for each.

    As a context manager it acknowledges them all, and returns them all to the queue if the block
    raises. If it is garbage collected while they are leased, it issues a ResourceWarning, unless
    the receipts were read.
    """

    @property
    @abc.abstractmethod
    def receipts(self) -> list[int]:
        """The receipt of each message, in order, for any process; empty once settled."""

    def _return_failed(self, error: BaseException | None) -> None:
        self.nack(error=error)

    @property
    @abc.abstractmethod
    def settled(self) -> bool:
        """Whether this object has settled its messages."""

    @abc.abstractmethod
    def ack(self) -> list[int]:
        """Acknowledge them all; returns the receipts that were refused."""

    @abc.abstractmethod
    def nack(
        self,
        delay: float | None = None,
        *,
        counted: bool = True,
        error: BaseException | Failure | str | None = None,
    ) -> list[int]:
        """Return them all after ``delay`` seconds (None: the queue's back-off for each).

        ``counted`` and ``error`` are as for ``Message.nack``. Returns the receipts that were
        refused.
        """

    @abc.abstractmethod
    def __len__(self) -> int: ...


class Batch(LeasedRun, Displayed):
    """The result of ``Queue.get_batch``: the bodies of messages that are leased together."""

    @property
    @abc.abstractmethod
    def bodies(self) -> list[Any]:
        """The bodies, in the order of the receipts."""

    @abc.abstractmethod
    def __iter__(self) -> Iterator[Any]: ...


class Packed(LeasedRun):
    """The result of ``Queue.get_packed``: records, concatenated in one buffer.

    A packed batch has one receipt, whatever it holds: it is leased and settled as one. Any other
    message is a batch of one record.
    """

    @property
    @abc.abstractmethod
    def data(self) -> bytes:
        """All records, concatenated."""

    @property
    @abc.abstractmethod
    def size(self) -> int | None:
        """The size of every record in bytes; None if they are not all of one size."""

    @property
    @abc.abstractmethod
    def lengths(self) -> memoryview:
        """The size of each record in bytes, as unsigned 32-bit numbers."""

    @property
    @abc.abstractmethod
    def offsets(self) -> memoryview:
        """The beginning of each record, and the end of the last, as unsigned 64-bit numbers.

        There is one more than there are records: the offsets of an Arrow large-binary array.
        """

    @abc.abstractmethod
    def __iter__(self) -> Iterator[bytes]: ...
