"""The contract of what handles very many messages at once: bulk reading and staged publishing.

Both are asked of a queue by name, with ``Queue.bulk`` and ``Queue.staged_publisher``.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING

from shmq.api.options import STAGING_BYTES, check_whole
from shmq.errors import InvalidOption

if TYPE_CHECKING:
    from shmq.api.columns import Columns, Run
    from shmq.api.message import Row, Rows

__all__ = ["BulkQueue", "StagedPublisher", "check_batch", "check_part", "check_publisher"]

#: The longest name of a publisher or a part, in bytes of UTF-8.
_LONGEST_NAME = 200


class BulkQueue(abc.ABC):
    """A queue whose messages are read as columns, and leased and settled as runs.

    It belongs to the handle that ``Queue.bulk`` was called on, and is closed with it.
    """

    @abc.abstractmethod
    def slots(self) -> int:
        """How many places for messages the queue has so far: the end for `read_columns`.

        So that several processes can read a queue together: each from ``start`` to ``end``.
        """

    @abc.abstractmethod
    def read_columns(
        self, start: int = 0, *, max_bytes: int = 4 << 20, end: int | None = None
    ) -> tuple[Columns, int | None]:
        """The messages from slot ``start`` on, in any state, not leased; and the next start.

        Messages that are visible, delayed, leased or dying, in the order of their places and
        not of the queue. No row is torn, whatever is put and settled meanwhile: a message that
        was there all the time is there once; one that came or went may be. A block has at most
        ``max_bytes``, but for one message that has more itself, and may be empty; the second
        is None at the end. Raises :class:`~shmq.MessageTooLarge` for a message of more than
        2 GiB, or than a server's ``max_frame``.
        """

    @abc.abstractmethod
    def lease_run(self, max: int, *, max_bytes: int | None = None, seconds: float = 600.0) -> Run:
        """Lease up to ``max`` visible messages for ``seconds``; never wait.

        The bodies are read by `read_run`, in any process. It stops when they have
        ``max_bytes``: the message with which they do is leased, too. Of a group one message
        is leased at a time. It counts as a delivery. A server gives no more than one
        connection may have.
        """

    @abc.abstractmethod
    def lease_again(self, sequences: bytes, *, seconds: float = 600.0) -> Run:
        """Lease those of the messages that are visible, in the order in which they are given.

        ``sequences``: a buffer of sequence numbers, unsigned 64-bit. What stands in front of
        them in the queue does not matter; of a group it is one, and none while another one is
        in flight. It counts as a delivery, and looks at the whole queue once.
        """

    @abc.abstractmethod
    def read_run(
        self, slots: bytes, sequences: bytes, *, start: int = 0, max_bytes: int = 4 << 20
    ) -> tuple[Columns, int | None]:
        """The messages of a run, or of a part of one, from item ``start`` on; and the next start.

        Any process may read them, whichever has them leased. The second is None at the end.
        Raises :class:`~shmq.LeaseExpired`, which names them, if some are not there any more,
        and what `read_columns` does.
        """

    @abc.abstractmethod
    def ack_run(self, receipts: bytes) -> int:
        """Acknowledge the messages of a run; returns how many receipts were refused."""

    @abc.abstractmethod
    def extend_run(self, receipts: bytes, seconds: float) -> int:
        """Let the leases end ``seconds`` from now; returns how many receipts were refused."""

    @abc.abstractmethod
    def return_run(self, receipts: bytes) -> int:
        """Give the messages back at once; returns how many receipts were refused.

        This delivery does not count.
        """


class StagedPublisher(abc.ABC):
    """Puts batches of rows into one queue exactly once, under one publisher's name.

    What it stages lies in a queue of its own, ``NAME.staged.`` and eight digits, in memory
    alone, which the first call makes. It is closed with the handle of the target queue.
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

        A row is its body, bytes, or a tuple of that and a map of the properties of a put:
        ``priority``, ``group``, ``headers``, ``delay``, ``ttl``, ``dedupe_id``, ``codec``,
        ``reply_to``, ``correlation``. A body is taken as it is; ``codec`` says what it is.
        Delay and ttl count from the commit. Many rows in columns are a :class:`~shmq.Rows`.

        A part may be staged in several calls, by one process; its rows keep their order. No
        rows make an empty part. Where the batch is sealed, nothing is staged.

        Raises what a put of a row would raise, so that the commit does not, and
        :class:`~shmq.Full` where all that the publisher has staged would be more than
        ``staging_bytes``. A call that raises has staged nothing; over TCP, it may have staged
        some of its rows, so stage the part again under another name.
        """

    @abc.abstractmethod
    def commit_batch(
        self, batch: int, parts: Sequence[str], *, timeout: float | None = None
    ) -> int:
        """Put the rows of the batch's ``parts`` into the queue, once; returns how many it put.

        The first call seals the batch: it settles which parts are committed, and removes what
        else was staged of it. From then on, every call for the batch finishes what is left, as
        after a death on the way, and puts no row twice; ``parts`` does not count any more. A
        call for an earlier batch does nothing. Parts are put in their order. Rows whose
        ``dedupe_id`` the queue knows are left out.

        It waits for room, ``timeout`` seconds at most (None: without limit), and where the
        queue keeps a journal, until that has the rows: always with ``confirm="disk"``, else
        where a writer runs. Raises :class:`~shmq.Full` or :class:`~shmq.NotConfirmed` if the
        time was over first, then call it again; and :class:`~shmq.InvalidOption` if a part
        was never staged, and then nothing is put.
        """

    @abc.abstractmethod
    def sealed(self) -> int | None:
        """The newest batch that is sealed; None if none is."""

    @abc.abstractmethod
    def sweep(self, keep: str | None = None) -> int:
        """Remove what is staged for batches that are not sealed; returns how many chunks.

        Parts whose names begin with ``keep`` stay.
        """

    @abc.abstractmethod
    def discard(self) -> None:
        """Remove the staging queue: what is staged, and which batches are sealed."""


def check_publisher(publisher: str) -> str:
    """Return it. Raises InvalidOption, TypeError."""
    return _check_name("publisher", publisher)


def check_part(part: str) -> str:
    """Return it. Raises InvalidOption, TypeError."""
    return _check_name("part", part)


def check_batch(batch: int) -> int:
    """Return it. Raises InvalidOption, TypeError."""
    return check_whole("batch", batch, 0, (1 << 63) - 1)


def _check_name(what: str, name: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"{what}={name!r:.80} must be a str, not {type(name).__name__}")
    size = len(name.encode("utf-8", "replace"))
    if not 0 < size <= _LONGEST_NAME:
        raise InvalidOption(
            f"{what}={name!r:.80} must be 1 to {_LONGEST_NAME} bytes of UTF-8, and has {size}"
        )
    return name
