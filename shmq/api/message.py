"""The contract of a message, and of what a put returns."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any, Protocol

from shmq.api.settling import Settling

#: What a queue takes as a body: any buffer (as bytes), a str, or whatever msgpack holds.
Body = Any

#: A row that is staged: its body, or that and the properties of a put, by name.
Row = bytes | tuple[bytes, dict[str, Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class Rows:
    """Many rows, as columns hold them: an array of bytes and where each row's begin.

    ``offsets`` are signed 32-bit integers of this machine, one more than there are rows; row
    ``i`` has the bytes from ``offsets[i]`` to ``offsets[i + 1]``. They need not begin at 0.
    """

    #: The bodies, one behind the other: any buffer.
    data: Any
    #: Where each body begins, and where the last one ends: any buffer.
    offsets: Any
    #: What the bodies are, of all: one of the codecs that have a number; None: bytes.
    codec: str | None = None
    #: The properties of each, a msgpack map as the protocol has them, or nothing.
    metas: Any = None
    #: Where those begin and end, as with the bodies.
    meta_offsets: Any = None


class Put(Protocol):
    """What a put returns: an immutable value with two attributes."""

    @property
    def sequence(self) -> int:
        """The message's sequence number in its queue: rising, from 1, never reused."""

    @property
    def duplicate(self) -> bool:
        """Whether the dedupe id was taken before; ``sequence`` is then the first one's."""


@dataclasses.dataclass(frozen=True, slots=True)
class DeadLetter:
    """Why and from where a message came to a dead-letter queue."""

    #: ``"rejected"``, ``"max_deliveries"`` or ``"expired"``.
    reason: str
    #: The name of the queue it came from.
    queue: str
    #: How often it had been delivered there.
    deliveries: int
    #: When it became a dead letter, in seconds since 1970.
    at: float


class Message(Settling):
    """One leased message.

    As a context manager it acknowledges itself on success and returns itself to the
    queue (``nack``) on an exception, unless it was settled inside the block. It cannot be
    pickled; its receipt can go anywhere. Dropped while it is leased it issues a ResourceWarning,
    unless its receipt was asked for.
    """

    @property
    @abc.abstractmethod
    def body(self) -> Any:
        """The body, decoded by its codec: bytes, str, or what msgpack or JSON held.

        That of a packed batch is a list of its records, as bytes.
        A body over 4 KiB is copied out of shared memory when it is first asked for, or
        when the message is settled. Raises :class:`~shmq.LeaseExpired` if the lease ended
        before that, and :class:`~shmq.ShmqError` if the bytes are not of the codec.
        """

    @property
    @abc.abstractmethod
    def view(self) -> memoryview:
        """The body's bytes in place, read-only. They are not reused while a view lives."""

    @abc.abstractmethod
    def readinto(self, buffer: Any) -> int:
        """Copy the body's bytes to the beginning of a writable buffer; returns how many.

        For large bodies that are read one after the other: no new memory for each. Raises
        :class:`~shmq.InvalidOption` if the buffer is too small, and
        :class:`~shmq.LeaseExpired` as ``body`` does.
        """

    @property
    @abc.abstractmethod
    def headers(self) -> Mapping[str, Any]:
        """The headers that the producer gave; empty if none."""

    @property
    @abc.abstractmethod
    def properties(self) -> Mapping[str, Any]:
        """Every property of the wire contract as it was put, known or not.

        By the names of the wire: ``dedupe`` and ``corr``; ``ttl`` and ``delay`` in ms.
        """

    @property
    @abc.abstractmethod
    def dead(self) -> DeadLetter | None:
        """Why it is a dead letter, or None if it is not one."""

    @property
    @abc.abstractmethod
    def codec(self) -> str:
        """``bytes``, ``text``, ``msgpack``, ``json``, ``command``, ``event`` or another."""

    @property
    @abc.abstractmethod
    def priority(self) -> int:
        """0 to priorities - 1; higher is served first."""

    @property
    @abc.abstractmethod
    def group(self) -> str | None:
        """The message group, or None."""

    @property
    @abc.abstractmethod
    def reply_to(self) -> str | None:
        """Where the producer wants an answer, or None."""

    @property
    @abc.abstractmethod
    def correlation(self) -> str | None:
        """What the producer knows the answer by, or None."""

    @property
    @abc.abstractmethod
    def sequence(self) -> int:
        """The sequence number that the put returned."""

    @property
    @abc.abstractmethod
    def delivery_count(self) -> int:
        """How often it has been delivered, this time included: 1 at the first."""

    @property
    @abc.abstractmethod
    def receipt(self) -> int:
        """What settles this delivery, from any process: see ``Queue.ack_many``."""

    @abc.abstractmethod
    def ack(self) -> None:
        """Done: the message is gone.

        Raises :class:`~shmq.LeaseExpired` if the lease has ended or the message was settled,
        as the other settlements do; nothing is changed then.
        """

    @abc.abstractmethod
    def nack(self, delay: float | None = None) -> None:
        """Return it to the queue after ``delay`` seconds; None: the queue's back-off.

        At the queue's ``max_deliveries`` it becomes a dead letter instead. Raises
        :class:`~shmq.LeaseExpired`, and :class:`~shmq.InvalidOption` for a delay that is
        not 0 to 1e9.
        """

    @abc.abstractmethod
    def reject(self) -> None:
        """Move it to the dead-letter queue at once. Raises :class:`~shmq.LeaseExpired`."""

    @abc.abstractmethod
    def extend(self, seconds: float) -> None:
        """Let the lease end ``seconds`` from now, earlier or later than before.

        0 ends it at once. Raises :class:`~shmq.LeaseExpired`, and
        :class:`~shmq.InvalidOption` for seconds that are not 0 to 1e9.
        """

    @property
    @abc.abstractmethod
    def settled(self) -> bool:
        """Whether this object has settled its message (ack, nack or reject)."""
