"""The contract of a producer, which appends records to a stream in batches."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any, Literal

from shmq.api.contract import Closing

#: When a batch is done: once it was sent, is in memory, or is on disk.
Acks = Literal["none", "memory", "disk"]

#: Maps a key and the number of partitions to a partition.
Partitioner = Callable[[bytes | None, int], int]


class Producer(Closing):
    """Appends records to a stream in batches, one batch of each partition at a time.

    A batch is appended when it has ``batch_bytes``, when its oldest record has waited for
    ``linger`` seconds, and by `flush` and `close`. Threads may share a producer. As a context
    manager it closes itself. In the child of a fork it is another producer, with an id of its own
    and without the records that were sent before the fork: the parent appends those.
    """

    @property
    @abc.abstractmethod
    def id(self) -> int | None:
        """The id by which the stream detects repeated batches; None: it does not detect them."""

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
        """With ``acks="none"``: how many records were dropped because their append failed."""

    @abc.abstractmethod
    def send(
        self,
        value: Any,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, Any] | None = None,
        partition: int | None = None,
    ) -> int:
        """Add a record to its partition's batch, and append the batch if it is full.

        Returns the partition. If it raises, the record was not taken: it is in no batch and not in
        the stream, and sending it again does not duplicate it. It raises what
        ``Stream.append_block`` raises, if the record itself is refused, or if earlier records must
        be appended first and cannot be.

        If it is not known whether the record was appended (the connection is lost, or the disk has
        not confirmed it), the record stays taken and `send` returns: the next call for that
        partition tries again, and `flush` or `close` raises if that fails. A producer that is not
        idempotent does not retry what the disk has not confirmed: the next `send`, `flush` or
        `close` raises :class:`~shmq.NotConfirmed`. An exception of a signal handler (Ctrl-C) may
        leave a `send` that has taken its record.
        """

    @abc.abstractmethod
    def flush(self) -> None:
        """Append every batch: nothing is pending when it returns.

        If an append fails, it raises the first error. The error says how many records are left, of
        which partitions, and why; the next call tries them again.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Flush and end. May be called again.

        Raises what :meth:`flush` raises; the producer is closed nevertheless, and the records that
        the error counts are not appended any more.
        """
