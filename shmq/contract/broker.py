"""The contract of a broker: the queues of one namespace."""

from __future__ import annotations

import abc
from types import TracebackType
from typing import Any, Self

from shmq.contract.queue import Queue
from shmq.contract.stats import QueueSummary


class Broker(abc.ABC):
    """Makes, finds, lists and deletes the queues of one namespace.

    A broker is a context manager that closes itself and every queue it opened. A method of
    a closed broker raises :class:`~shmq.ShmqError`, as one of a closed queue does. A queue
    whose segment cannot be used raises :class:`~shmq.SegmentError`.
    """

    @property
    @abc.abstractmethod
    def namespace(self) -> str:
        """The namespace whose queues these are."""

    @abc.abstractmethod
    def create_queue(self, name: str, **options: Any) -> Queue:
        """Make the queue ``name`` and attach to it.

        The options are the fields of :class:`shmq.QueueOptions`, by name. A queue that
        exists with the same ones is attached to. Raises :class:`~shmq.QueueExists` if it
        exists with others (and says which differ), :class:`~shmq.InvalidName`,
        :class:`~shmq.InvalidOption` for an unknown option or a value out of range,
        :class:`~shmq.NoSpace`, and TypeError for a value of the wrong type.
        """

    @abc.abstractmethod
    def queue(self, name: str) -> Queue:
        """Attach to the queue ``name``. Raises :class:`~shmq.NoSuchQueue`."""

    @abc.abstractmethod
    def ensure_queue(self, name: str, **options: Any) -> Queue:
        """Attach to the queue ``name``, whatever its options, or make it with these.

        Raises what ``create_queue`` raises, but for :class:`~shmq.QueueExists`: the options
        are checked in any case, and compared in none.
        """

    @abc.abstractmethod
    def delete_queue(self, name: str) -> None:
        """Delete the queue ``name`` and all its messages; its dead-letter queue stays.

        Whoever waits on it gets :class:`~shmq.QueueDeleted`. One whose segment is damaged or
        of another version is deleted too. Raises :class:`~shmq.NoSuchQueue`, and
        :class:`~shmq.ForeignSegment` if it is someone else's.
        """

    @abc.abstractmethod
    def list_queues(self) -> list[QueueSummary]:
        """Every queue of the namespace with its depth, sorted by name.

        One that cannot be used is among them, with its ``problem``.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Detach from every queue this broker opened. May be called again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
