"""The contract of a transaction: its appends, puts and acknowledgements happen all or none."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from shmq.api.group import Member
    from shmq.api.message import Body, Message
    from shmq.api.options import Level
    from shmq.api.queue import Queue
    from shmq.api.stream import Stream


class Transaction(abc.ABC):
    """Appends, puts, acknowledgements and offset commits that take effect together or not at all.

    As a context manager it commits at the end of its block; an exception aborts it, and then
    nothing of it becomes visible. Its methods only collect the operations, and check what can be
    checked early. One thread at a time may use a transaction; a process may have any number. All
    its queues, streams and groups belong to one namespace on this host.
    """

    @abc.abstractmethod
    def append(
        self,
        stream: str | Stream,
        value: Body,
        *,
        key: bytes | str | None = None,
        headers: Mapping[str, Any] | None = None,
        partition: int | None = None,
        codec: str | None = None,
    ) -> None:
        """Append a record when the transaction commits, as ``Stream.append`` does.

        The records of a partition stay together, in the order of the calls. All records without a
        key and a partition go to one partition. Raises :class:`~shmq.NoSuchStream`,
        :class:`~shmq.MessageTooLarge` for a record that can never fit, or if the records of one
        partition exceed half of the stream's ring, and :class:`~shmq.InvalidOption`.
        """

    @abc.abstractmethod
    def append_many(
        self,
        stream: str | Stream,
        values: Sequence[Body],
        *,
        keys: Sequence[bytes | str | None] | None = None,
        headers: Sequence[Mapping[str, Any] | None] | None = None,
        partition: int | None = None,
        codec: str | None = None,
    ) -> None:
        """``append`` for many records; with ``keys`` each goes to the partition of its key."""

    @abc.abstractmethod
    def put(
        self,
        queue: str | Queue,
        body: Body,
        *,
        # signature of a transaction: made by tools/options.py
        priority: int | Level | None = None,
        group: str | None = None,
        headers: Mapping[str, Any] | None = None,
        codec: str | None = None,
        reply_to: str | None = None,
        correlation: str | None = None,
        # end
    ) -> None:
        """Put a message when the transaction commits, as ``Queue.put`` does.

        Delay, ttl and dedupe id are not available. Raises :class:`~shmq.NoSuchQueue` and
        :class:`~shmq.InvalidOption`.
        """

    @abc.abstractmethod
    def commit(self, member: Member, offsets: Mapping[int, int] | None = None) -> None:
        """Commit ``offsets``, or all records the member has delivered, with the transaction.

        Raises :class:`~shmq.MemberFenced` if the member does not own these partitions.
        """

    @abc.abstractmethod
    def ack(self, queue: Queue, *messages: Message) -> None:
        """Acknowledge messages of ``queue``, leased by this process, with the transaction."""

    @abc.abstractmethod
    def abort(self) -> None:
        """Discard the whole transaction. Its methods raise ShmqError from then on.

        The block may run to its end, and commits nothing.
        """

    @property
    @abc.abstractmethod
    def aborted(self) -> bool:
        """Whether nothing of it will happen: it was aborted, or its commit failed."""

    @abc.abstractmethod
    def finish(self) -> None:
        """Commit: when it returns, all of the transaction has happened.

        The end of the block calls it. If it raises one of these, nothing has happened:
        :class:`~shmq.MemberFenced` if a member has lost a partition, :class:`~shmq.LeaseExpired` if
        a lease has expired, :class:`~shmq.Full` if a queue had no room in time,
        :class:`~shmq.MessageTooLarge` and :class:`~shmq.NoSpace`. An append that must wait for
        room, because its stream does not drop records, waits after the commit is decided.
        :class:`~shmq.NotConfirmed` means that all of it has happened, but a queue or a stream with
        ``confirm="disk"`` is not known to have it on disk.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.abort()
        elif not self.aborted:
            self.finish()
