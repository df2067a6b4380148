"""The contract of a producer: what is appended to a stream, gathered into batches."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any, Literal

from shmq.contract.closing import Closing

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

        Returns the partition. Raises what ``Stream.append_many`` raises where a batch cannot
        be appended: it waits then, to be tried again by the next call. A value that cannot be
        encoded, or can never fit, raises at once and is in no batch.
        """

    @abc.abstractmethod
    def flush(self) -> None:
        """Append every batch. Raises as :meth:`send`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Flush and end. May be called again."""
