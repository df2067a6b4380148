"""The contract of a message, of the result of a put, and of a handler's outcome."""

from __future__ import annotations

import abc
import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from shmq.api.contract import Settling
from shmq.native._core import check_seconds

#: What a queue accepts as a body: any buffer (as bytes), a str, or any value that msgpack encodes.
Body = Any

#: A row to be staged: its body, or a tuple of its body and the properties of a put, by name.
Row = bytes | tuple[bytes, dict[str, Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class Rows:
    """Many rows as columns: one buffer of bytes and the offset of each row in it.

    ``offsets`` are signed 32-bit integers in native byte order, one more than there are rows; row
    ``i`` is the bytes from ``offsets[i]`` to ``offsets[i + 1]``. They need not begin at 0.
    """

    #: The concatenated bodies: any buffer.
    data: Any
    #: The offset of each body, and the end of the last one: any buffer.
    offsets: Any
    #: The codec of all bodies whose properties do not name one: one of the codecs that have a
    #: number; None: bytes.
    codec: str | None = None
    #: The properties of each row, as the protocol's msgpack map, or no bytes.
    metas: Any = None
    #: The offsets of the properties, as for the bodies.
    meta_offsets: Any = None

    def __len__(self) -> int:
        return max(0, memoryview(self.offsets).nbytes // 4 - 1)

    def pairs(self) -> Iterator[tuple[memoryview, bytes]]:
        """The body and the properties of each row."""
        bodies = _iterate_slices(self.data, self.offsets)
        if self.metas is None:
            return zip(bodies, itertools.repeat(b"", len(self)), strict=True)
        return zip(bodies, map(bytes, _iterate_slices(self.metas, self.meta_offsets)), strict=True)


def _iterate_slices(data: Any, offsets: Any) -> Iterator[memoryview]:
    view, places = memoryview(data).cast("B"), memoryview(offsets).cast("B").cast("i").tolist()
    return (view[start:end] for start, end in itertools.pairwise(places))


class Put(Protocol):
    """The result of a put: an immutable value with two attributes."""

    @property
    def sequence(self) -> int:
        """The message's sequence number in its queue: rising from 1, never reused."""

    @property
    def duplicate(self) -> bool:
        """Whether the dedupe id was already used; ``sequence`` is then that of the first put."""


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """Why a delivery failed, as its consumer reported it. Its text is that of a log line."""

    #: The name of the exception's class, with its module unless that is builtins; empty for a text.
    type: str
    #: The exception's message, or the text.
    text: str
    #: The last frames of the traceback, as Python prints them; empty without one.
    trace: str = ""
    #: When it was reported, in seconds since 1970.
    at: float = 0.0

    def __str__(self) -> str:
        return ": ".join(part for part in (self.type, self.text) if part)


@dataclasses.dataclass(frozen=True, slots=True)
class DeadLetter:
    """Why a message is a dead letter, and which queue it came from."""

    #: ``"rejected"``, ``"max_deliveries"`` or ``"expired"``.
    reason: str
    #: The name of the queue it came from.
    queue: str
    #: How often that queue had delivered it.
    deliveries: int
    #: When it became a dead letter, in seconds since 1970.
    at: float
    #: The error of its last failed delivery there, if its consumer reported one.
    error: Failure | None = None


class Message(Settling):
    """One leased message.

    As a context manager it acknowledges itself on success and returns itself to the queue
    (``nack``) on an exception, unless the block settled it. It cannot be pickled; its receipt can
    be passed to any process. If it is garbage collected while it is leased, it issues a
    ResourceWarning, unless its receipt was read.
    """

    @property
    @abc.abstractmethod
    def body(self) -> Any:
        """The body, decoded by its codec: bytes, str, or the msgpack or JSON value.

        The body of a packed batch is a list of its records, as bytes. A body over 4 KiB is copied
        out of shared memory when it is first read, or when the message is settled. Raises
        :class:`~shmq.LeaseExpired` if the lease ended before that, and :class:`~shmq.ShmqError` if
        its codec cannot decode the bytes.
        """

    @property
    @abc.abstractmethod
    def view(self) -> memoryview:
        """The body's bytes in place, read-only. Their memory is not reused while a view exists."""

    @abc.abstractmethod
    def readinto(self, buffer: Any) -> int:
        """Copy the body's bytes to the beginning of a writable buffer; returns how many.

        Reading large bodies into one buffer avoids an allocation for each. Raises
        :class:`~shmq.InvalidOption` if the buffer is too small, and :class:`~shmq.LeaseExpired` as
        ``body`` does.
        """

    @property
    @abc.abstractmethod
    def headers(self) -> Mapping[str, Any]:
        """The headers that the producer set; empty if none."""

    @property
    @abc.abstractmethod
    def properties(self) -> Mapping[str, Any]:
        """Every property of the wire contract as it was put, including unknown ones.

        The names are those of the wire protocol: ``dedupe`` and ``corr``; ``ttl`` and ``delay`` are
        in ms.
        """

    @property
    @abc.abstractmethod
    def dead(self) -> DeadLetter | None:
        """Why the message is a dead letter; None if it is not one."""

    @property
    @abc.abstractmethod
    def last_error(self) -> Failure | None:
        """The error that its last failed delivery was returned with; None if there was none."""

    @property
    @abc.abstractmethod
    def codec(self) -> str:
        """``bytes``, ``text``, ``msgpack``, ``json``, ``command``, ``event`` or another."""

    @property
    @abc.abstractmethod
    def priority(self) -> int:
        """0 to priorities - 1; higher is served first."""

    # texts of a message: made by tools/options.py

    @property
    def group(self) -> str | None:
        """The message group, or None."""
        return self.properties.get("group")

    @property
    def reply_to(self) -> str | None:
        """The queue to which the producer wants the reply, or None."""
        return self.properties.get("reply_to")

    @property
    def correlation(self) -> str | None:
        """The id by which the producer recognizes the reply, or None."""
        return self.properties.get("corr")

    # end

    @property
    @abc.abstractmethod
    def sequence(self) -> int:
        """The sequence number that the put returned."""

    @property
    @abc.abstractmethod
    def delivery_count(self) -> int:
        """How often the message has been delivered, including this delivery: 1 for the first."""

    @property
    @abc.abstractmethod
    def receipt(self) -> int:
        """The number that settles this delivery, from any process: see ``Queue.ack_many``."""

    @abc.abstractmethod
    def ack(self) -> None:
        """Acknowledge the message, which removes it from the queue.

        Raises :class:`~shmq.LeaseExpired`, and changes nothing, if the lease has ended or the
        message was settled by its receipt; :class:`~shmq.AlreadySettled`, a subclass, if this
        object was settled already. So do the other settlements.
        """

    @abc.abstractmethod
    def nack(
        self,
        delay: float | None = None,
        *,
        counted: bool = True,
        error: BaseException | Failure | str | None = None,
    ) -> None:
        """Return it to the queue after ``delay`` seconds; None: the queue's back-off.

        The message keeps the ``error`` as its ``last_error``, up to the queue's ``error_bytes``
        of it, if the queue has room. At the end of a ``with`` block it is the exception.

        If the message has reached the queue's ``max_deliveries``, it becomes a dead letter instead.
        With ``counted=False`` it returns as if it had not been delivered: this delivery counts
        neither towards that limit nor in ``delivery_count`` nor in the statistics, and a delay of
        None returns it to its place at once; it is no failure, so it has no error. Raises
        :class:`~shmq.LeaseExpired`, :class:`~shmq.InvalidOption` for a delay that is not 0 to 1e9
        and for an error that does not count, and, if the server has no ``counted=False``,
        :class:`~shmq.Unsupported`.
        """

    @abc.abstractmethod
    def reject(self, reason: BaseException | Failure | str | None = None) -> None:
        """Move it to the dead-letter queue at once, where ``reason`` is its ``dead.error``.

        Raises :class:`~shmq.LeaseExpired`.
        """

    @abc.abstractmethod
    def extend(self, seconds: float) -> None:
        """Set the end of the lease to ``seconds`` from now, earlier or later than before.

        0 ends the lease at once. Raises :class:`~shmq.LeaseExpired`, and
        :class:`~shmq.InvalidOption` for seconds that are not 0 to 1e9.
        """

    def _return_failed(self, error: BaseException | None) -> None:
        self.nack(error=error)

    @property
    @abc.abstractmethod
    def settled(self) -> bool:
        """Whether this object has settled its message (ack, nack or reject)."""


class Reject(Exception):
    """Raised by a handler: the message can never be handled, and becomes a dead letter."""


class Retry(Exception):
    """Raised by a handler: the message must be handled again, and nothing is wrong.

    ``delay`` is in seconds; None takes the queue's back-off. The delivery counts as any other. The
    constructor raises :class:`~shmq.InvalidOption` for a delay out of range.
    """

    def __init__(self, delay: float | None = None) -> None:
        if delay is not None:
            delay = check_seconds("delay", delay, 0.0)
        super().__init__("as the queue's back-off says" if delay is None else f"in {delay} s")
        self.delay = delay


def reason_of(outcome: Reject | Retry) -> BaseException | str | None:
    """Return why a handler raised it: the exception that it came from, else a Reject's text."""
    cause = outcome.__cause__ or outcome.__context__
    return cause or (isinstance(outcome, Reject) and str(outcome)) or None


def error_of(message: Message) -> Failure | None:
    """Return the error of its last failed delivery, before or when it became a dead letter."""
    return message.last_error or (message.dead.error if message.dead is not None else None)
