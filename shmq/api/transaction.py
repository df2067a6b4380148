"""The contract of a transaction: what comes out and what went in, all of it or nothing."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from shmq.api.group import Member
    from shmq.api.message import Body, Message
    from shmq.api.queue import Queue
    from shmq.api.stream import Stream

__all__ = ["Transaction"]


class Transaction(abc.ABC):
    """Records and messages to come, and what was read for them, settled together.

    A context manager: leaving its block commits, an exception aborts, and then nothing of it
    is ever seen. Nothing is sent before: the calls collect, and check what can be checked.
    One thread at a time uses a transaction; a process may have any number. All its queues,
    streams and groups are those of one namespace on this host.
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
        """Append a record when the transaction is committed, as ``Stream.append``.

        The records of a partition stay together, in the order of the calls. Those without a
        key and a partition all go to one. Raises :class:`~shmq.NoSuchStream`,
        :class:`~shmq.MessageTooLarge` for a record that can never fit, or for more of one
        partition than half of the stream's ring, and :class:`~shmq.InvalidOption`.
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
        """``append`` for many records; with ``keys`` each goes where its key belongs."""

    @abc.abstractmethod
    def put(
        self,
        queue: str | Queue,
        body: Body,
        *,
        priority: int | None = None,
        group: str | None = None,
        headers: Mapping[str, Any] | None = None,
        reply_to: str | None = None,
        correlation: str | None = None,
        codec: str | None = None,
    ) -> None:
        """Put a message when the transaction is committed, as ``Queue.put``.

        There are no delay, ttl and dedupe id. Raises :class:`~shmq.NoSuchQueue` and
        :class:`~shmq.InvalidOption`.
        """

    @abc.abstractmethod
    def commit(self, member: Member, offsets: Mapping[int, int] | None = None) -> None:
        """With the transaction, commit what the member has handed out by now, or ``offsets``.

        Raises :class:`~shmq.MemberFenced` if it does not have these partitions.
        """

    @abc.abstractmethod
    def ack(self, queue: Queue, *messages: Message) -> None:
        """With the transaction, acknowledge messages of ``queue``, leased by this process."""

    @abc.abstractmethod
    def abort(self) -> None:
        """Forget all of it. What is done with the transaction afterwards raises ShmqError.

        Its block may go on to its end, and commits nothing.
        """

    @property
    @abc.abstractmethod
    def aborted(self) -> bool:
        """Whether nothing of it will happen: it was aborted, or could not be committed."""

    @abc.abstractmethod
    def finish(self) -> None:
        """Commit: after it, all of the transaction has happened.

        Leaving the block does it. Raises, and nothing has happened, :class:`~shmq.MemberFenced`
        if a member has lost a partition, :class:`~shmq.LeaseExpired` if a message is not
        leased any more, :class:`~shmq.Full` if a queue had no room in time,
        :class:`~shmq.MessageTooLarge` and :class:`~shmq.NoSpace`. An append that has to wait
        for room, as its stream does not drop records, waits after all is decided. Raises
        :class:`~shmq.NotConfirmed` if all has happened, and is not known to be on disk where
        a queue or a stream confirms from there.
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
