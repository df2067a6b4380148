"""The contracts for very many messages at once: bulk reading and staged publishing.

``Queue.bulk`` and ``Queue.staged_publisher`` return them.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING

from shmq.api.options import STAGING_BYTES, check_whole
from shmq.errors import InvalidOption

if TYPE_CHECKING:
    from shmq.api.columns import Claim, Columns, Run, Takeover
    from shmq.api.message import Row, Rows

#: The longest name of a publisher, a part or a holder of leases, in bytes of UTF-8.
_LONGEST_NAME = 200


class BulkQueue(abc.ABC):
    """A queue whose messages are read as columns, and leased and settled as runs.

    It belongs to the handle on which ``Queue.bulk`` was called, and is closed with it.
    """

    @abc.abstractmethod
    def slots(self) -> int:
        """The number of message slots the queue has so far: the last ``end`` for `read_columns`.

        With it several processes can divide a queue among them, each reading from ``start`` to
        ``end``.
        """

    @abc.abstractmethod
    def read_columns(
        self, start: int = 0, *, max_bytes: int = 4 << 20, end: int | None = None
    ) -> tuple[Columns, int | None]:
        """The messages from slot ``start`` on, in any state, not leased; and the next start.

        The messages are visible, delayed, leased or dying, in the order of their slots, not of the
        queue. No row is torn by concurrent puts and settlements: a message present during the whole
        read appears once; one that came or went may appear. A block has at most ``max_bytes``,
        unless one message alone is larger, and may be empty; the second value is None at the end.
        Raises :class:`~shmq.MessageTooLarge` for a message of more than 2 GiB, or larger than a
        server's ``max_frame``.
        """

    @abc.abstractmethod
    def lease_run(
        self,
        max: int,
        *,
        max_bytes: int | None = None,
        seconds: float = 600.0,
        claim: Claim | None = None,
        epoch: int = 0,
    ) -> Run:
        """Lease up to ``max`` visible messages for ``seconds``, without waiting.

        `read_run` reads the bodies, in any process. Leasing stops with the message that brings the
        bodies to ``max_bytes``; that message is leased, too. A run may have several messages of a
        message group, in order: nobody else gets one of that group until all of them are settled
        or have come back. Each lease counts as a delivery. A server leases no more messages than it
        allows one connection.

        The leases belong to this process or connection, and end with it. With a ``claim`` they
        belong to its name, as the run of that ``epoch``, which is 1 or more: see `take_over`.
        Raises :class:`~shmq.LeaseExpired` if the claim is void.
        """

    @abc.abstractmethod
    def take_over(
        self, name: str, *, settled: int = 0, epoch: int = 0, seconds: float = 600.0
    ) -> Takeover:
        """Claim ``name``, such as that of a query, and take over what was leased in it.

        Every older claim of the name is void at once, whether its process is alive, hangs or is
        dead: with it nothing can be leased, and the receipts of its runs are refused. Of the
        messages that were leased in the name and are not settled, those of epochs up to ``settled``
        are acknowledged, those of ``epoch`` are leased again for ``seconds``, and all others are
        returned. Messages whose leases have run out are among them, unless another consumer has
        got them. The run has exactly the messages of the first lease, if none is lost.

        The leases of a name end only in time, or with `release`. A durable queue keeps on disk
        which messages the last two epochs had. Raises :class:`~shmq.Full` if 64 other names hold
        leases.
        """

    @abc.abstractmethod
    def is_claimed(self, claim: Claim) -> bool:
        """Whether the claim is good; false if the queue does not know its name.

        Raises :class:`~shmq.LeaseExpired` if the name has a newer claim.
        """

    @abc.abstractmethod
    def release(self, name: str) -> int:
        """Return what is leased in ``name``, and forget it; returns the number of messages."""

    @abc.abstractmethod
    def lease_again(self, sequences: bytes, *, seconds: float = 600.0) -> Run:
        """Lease the given messages that are visible, in the order given.

        ``sequences`` is a buffer of sequence numbers, unsigned 64-bit. Messages in front of them in
        the queue do not matter; of a message group one is leased, and none while another is leased.
        Each lease counts as a delivery. The call looks at the whole queue once.
        """

    @abc.abstractmethod
    def read_run(
        self, slots: bytes, sequences: bytes, *, start: int = 0, max_bytes: int = 4 << 20
    ) -> tuple[Columns, int | None]:
        """The messages of a run, or of a part of one, from item ``start`` on; and the next start.

        Any process may read them, whichever leased them. The second value is None at the end.
        Raises :class:`~shmq.LeaseExpired`, which names the messages, if some are gone, and what
        `read_columns` raises.
        """

    @abc.abstractmethod
    def ack_run(self, receipts: bytes) -> int:
        """Acknowledge the messages of a run; returns how many receipts were refused.

        Refused is a receipt whose lease has ended, or whose claim is void.
        """

    @abc.abstractmethod
    def extend_run(self, receipts: bytes, seconds: float) -> int:
        """Let the leases end ``seconds`` from now; returns how many receipts were refused."""

    @abc.abstractmethod
    def return_run(self, receipts: bytes) -> int:
        """Return the messages to the queue at once; returns how many receipts were refused.

        This delivery does not count.
        """


class StagedPublisher(abc.ABC):
    """Puts batches of rows into one queue exactly once, under one publisher's name.

    Staged rows lie in a queue of their own, ``NAME.staged.`` and eight digits, in memory only; the
    first call creates it. The publisher is closed with the handle of the target queue.
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The publisher's name."""

    @abc.abstractmethod
    def stage(
        self,
        batch: int,
        part: str,
        rows: Sequence[Row] | Rows,
        *,
        staging_bytes: int = STAGING_BYTES,
    ) -> None:
        """Stage rows as a part of a batch: no consumer sees them until `commit_batch`.

        A row is its body as bytes, or a tuple of the body and a map of the properties of a put.
        A body is not encoded; ``codec`` says how it is encoded already. Delay and ttl count from
        the commit. For many rows in columns, pass a :class:`~shmq.Rows`.

        One process may stage a part in several calls; its rows keep their order. An empty ``rows``
        makes an empty part. If the batch is already sealed, nothing is staged.

        Raises what a put of a row would raise, so that the commit does not, and :class:`~shmq.Full`
        if everything that the publisher has staged would exceed ``staging_bytes``. A call that
        raises has staged nothing; over TCP, it may have staged some of its rows, so stage the part
        again under another name.
        """

    @abc.abstractmethod
    def commit_batch(
        self, batch: int, parts: Sequence[str], *, timeout: float | None = None
    ) -> int:
        """Put the rows of the batch's ``parts`` into the queue once; returns how many it put.

        The first call seals the batch: it fixes which parts are committed, and removes the batch's
        other staged parts. Every later call for the batch, such as after a crash, finishes what is
        left and puts no row twice; it ignores ``parts``. A call for an earlier batch does nothing.
        Parts are put in the order given. Rows whose ``dedupe_id`` the queue knows are left out.

        It waits at most ``timeout`` seconds (None: no limit) for room, and if the queue has a
        journal, until the journal has the rows: always with ``confirm="disk"``, otherwise while a
        writer runs. Raises :class:`~shmq.Full` or :class:`~shmq.NotConfirmed` if the time ran out
        first: call it again. Raises :class:`~shmq.InvalidOption`, and puts nothing, if a part was
        never staged.
        """

    @abc.abstractmethod
    def sealed(self) -> int | None:
        """The newest sealed batch; None if there is none."""

    @abc.abstractmethod
    def sweep(self, keep: str | None = None) -> int:
        """Remove the staged rows of batches that are not sealed; returns how many chunks.

        Parts whose names begin with ``keep`` stay. Waits a moment while a batch is being committed,
        and removes none if that goes on.
        """

    @abc.abstractmethod
    def discard(self) -> None:
        """Remove the staging queue, with all staged rows and the record of sealed batches."""


def check_publisher(publisher: str) -> str:
    """Return ``publisher`` if it is valid. Raises InvalidOption, TypeError."""
    return _check_name("publisher", publisher)


def check_part(part: str) -> str:
    """Return ``part`` if it is valid. Raises InvalidOption, TypeError."""
    return _check_name("part", part)


def check_batch(batch: int) -> int:
    """Return ``batch`` if it is valid. Raises InvalidOption, TypeError."""
    return check_whole("batch", batch, 0, (1 << 63) - 1)


def check_holder(name: str) -> str:
    """Return ``name`` if leases may be held in it. Raises InvalidOption, TypeError."""
    return _check_name("name", name)


def check_epoch(what: str, epoch: int, least: int = 0) -> int:
    """Return ``epoch`` if it is valid. Raises InvalidOption, TypeError."""
    return check_whole(what, epoch, least, (1 << 32) - 1)


def _check_name(what: str, name: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"{what}={name!r:.80} must be a str, not {type(name).__name__}")
    size = len(name.encode("utf-8", "replace"))
    if not 0 < size <= _LONGEST_NAME:
        raise InvalidOption(
            f"{what}={name!r:.80} must be 1 to {_LONGEST_NAME} bytes of UTF-8, and has {size}"
        )
    return name
