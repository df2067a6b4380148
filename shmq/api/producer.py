"""The contract of a producer: what is appended to a stream, gathered into batches."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any, Literal

from shmq.api.closing import Closing

__all__ = ["Acks", "Partitioner", "Producer"]

#: When a batch is over: once it was given away, is in memory, or is on disk.
Acks = Literal["none", "memory", "disk"]

#: Of a key and the number of partitions, the partition.
Partitioner = Callable[[bytes | None, int], int]


class Producer(Closing):
    """Appends records to a stream in batches, one of each partition at a time.

    A batch goes when it has ``batch_bytes``, when its oldest record has waited for ``linger``
    seconds, and with `flush` and `close`. Threads may share a producer. As a context manager
    it closes itself.
    """

    @property
    @abc.abstractmethod
    def id(self) -> int | None:
        """What the stream knows the batches by, so that none is appended twice; None: nothing."""

    @property
    @abc.abstractmethod
    def pending(self) -> int:
        """How many records wait in batches."""

    @property
    @abc.abstractmethod
    def appended(self) -> int:
        """How many records were appended so far."""

    @property
    @abc.abstractmethod
    def failed(self) -> int:
        """With ``acks="none"``: how many records were dropped, as they could not be appended."""

    @abc.abstractmethod
    def send(
        self,
        value: Any,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, Any] | None = None,
        partition: int | None = None,
    ) -> int:
        """Put a record into its partition's batch, and append that if it is full.

        Returns the partition. If it raises, the record was not taken: it is in no batch and not
        in the stream, and whoever sends it again does not double it. It raises what
        ``Stream.append_block`` raises, where the record itself is refused, or where records that
        were taken before are to be appended first and cannot be.

        If it is not known whether the record was appended (the connection is lost, or the disk
        has not confirmed it), the record stays taken and `send` returns: the next call for that
        partition tries again, and `flush` or `close` raises if that fails. Of a producer that is
        not idempotent, what the disk has not confirmed is not tried again: the next `send`,
        `flush` or `close` raises :class:`~shmq.NotConfirmed`. What a signal handler raises
        (Ctrl-C) may come out of a `send` that has taken its record.
        """

    @abc.abstractmethod
    def flush(self) -> None:
        """Append every batch: nothing is pending afterwards, or it raises.

        The error is the first that came of it. It says how many records are left, of which
        partitions, and why; the next call tries them again.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Flush and end. May be called again.

        Raises as :meth:`flush`; it is closed then all the same, and the records that the error
        counts are not appended any more.
        """
