"""The port of a queue: what a transport does for the handle that keeps the contract."""

from __future__ import annotations

import abc
import contextlib
from array import array
from typing import TYPE_CHECKING, Any, Literal

from shmq import api, errors
from shmq.api.options import QueueOptions
from shmq.client.ports.steps import Steps
from shmq.client.shared.policy import compile_filter
from shmq.native import _core

if TYPE_CHECKING:
    from shmq.model.expression.parse import Where

#: How messages are settled; "return" is a nack that does not count the delivery.
Settlement = Literal["ack", "nack", "return", "reject", "extend"]

#: Packed properties (None: there are none), and the body as a buffer.
Item = tuple[bytes | None, Any]

#: The server's URL, the namespace, and the queue's name.
QueueKey = tuple[str, str, str]


class PrefetchPort(abc.ABC):
    """The messages ahead of one iterator, and its acknowledgements."""

    #: The queue's name.
    name: str
    #: Whether it was closed.
    ended: bool
    #: How many messages were not delivered.
    leased_ahead: int

    @abc.abstractmethod
    def quickly(self) -> Any:
        """Return the next message if it is here and its lease is fresh, else None."""

    @abc.abstractmethod
    def find_next(self) -> Steps[Any]:
        """Return the next message, or None if none arrived within the timeout."""

    def send_acks(self) -> None:  # noqa: B027 - few hold any back
        """Send the acknowledgements so far, without waiting, if some are held back."""

    @abc.abstractmethod
    def confirm_acks(self) -> Steps[None]:
        """Wait until the acknowledgements so far are confirmed. Raises what `flush` raises."""

    @abc.abstractmethod
    def end(self) -> Steps[None]:
        """Return what was not delivered, uncounted, and wait for the acknowledgements. Once."""


class FlightPort(abc.ABC):
    """The puts of one pipeline that are under way."""

    #: The puts that have failed, by number, from 0 on; None: the outcome is unknown.
    failures: dict[int, errors.ShmqError | None]
    #: How many puts are known to have been taken.
    taken: int

    @abc.abstractmethod
    def begin(self, item: Item, known: bool, durable: bool) -> int:
        """Begin a put, once there is room in the window, and return its number.

        The arguments are those of a put. Raises MessageTooLarge.
        """

    @abc.abstractmethod
    def wait(self) -> dict[int, errors.ShmqError | None]:
        """Wait until no put is under way; return ``failures``, and forget them."""

    def leave(self) -> None:  # noqa: B027 - few have not sent them
        """Send what is under way, without waiting: the block has raised."""


class QueuePort(abc.ABC):
    """One queue, through one transport.

    Arguments were checked and have no defaults. Timeouts are in seconds from now, None is without
    limit, and 0 does not wait. A method that returns `Steps` is a procedure, which the handle runs
    for a thread or for a task; the others block. All raise QueueDeleted if the queue was deleted,
    ConnectionLost, and the errors that they name. What is not abstract may be overridden.
    """

    name: str
    options: QueueOptions
    #: The server's URL.
    url: str
    #: By which the waiting puts of this process are counted.
    key: QueueKey
    #: Whether it was closed.
    closed: bool

    def check_open(self) -> None:
        """Raise ShmqError if it was closed."""
        if self.closed:
            raise errors.closed_handle("queue", self.name)

    # ---- puts ----

    def check_durable(self) -> None:  # noqa: B027 - most can
        """Raise InvalidOption if this transport cannot confirm that a message is on disk."""

    @abc.abstractmethod
    def check_bytes(self, size: int, meta: bytes | None) -> None:
        """Raise MessageTooLarge for a body of that size that can never be put."""

    @abc.abstractmethod
    def put(
        self, item: Item, waits: bool, timeout: float | None, known: bool, durable: bool
    ) -> Steps[api.Put]:
        """Put one message, ``waits``: for room; ``known``: the application gave it a dedupe id.

        Raises Full, MessageTooLarge, NotConfirmed.
        """

    @abc.abstractmethod
    def put_many(self, items: list[Item], waits: bool, timeout: float | None, durable: bool) -> int:
        """Put messages in order, as many as fit; return how many.

        Raises NotConfirmed, and MessageTooLarge before it puts any. Another error after the first
        message ends the call without being raised.
        """

    @abc.abstractmethod
    def check_room(self) -> None:
        """Raise Full if the queue holds as many messages as its capacity allows."""

    @abc.abstractmethod
    def flight(self, window: int) -> FlightPort:
        """Return the puts of a new pipeline, of which up to ``window`` are under way."""

    # ---- gets ----

    def check_where(self, where: str) -> None:
        """Raise InvalidOption for an expression that cannot be parsed. Raises Unsupported."""
        compile_filter(where)

    @abc.abstractmethod
    def take(self, limit: int, timeout: float | None, where: str | None) -> Steps[list[Any]]:
        """Lease up to ``limit`` messages, waiting only for the first; ``where``: those matching.

        A wait that ends by an exception has taken nothing.
        """

    @abc.abstractmethod
    def prefetch(self, handle: Any, limit: int, timeout: float | None, where: str | None) -> Any:
        """Return a new `Consumer` of the handles, which keeps a reference to this handle."""

    # ---- messages, for which a transport may have faster ways ----

    def current(self, messages: list[Any]) -> list[Any]:
        """Return the messages whose leases have not ended on the way."""
        return messages

    def is_old(self, message: Any) -> bool:
        """Return whether so much of its lease has passed that the message must be delivered."""
        del message
        return False

    def is_leased(self, message: Any) -> bool:
        """Return whether its lease holds, as far as the client can tell."""
        return bool(message.is_leased)

    def hand_over(self, messages: list[Any]) -> list[Any]:
        """Mark the messages as the application's, which must settle them, and return them."""
        # They are taken out of the list, which the transport may still have. So a message that is
        # dropped is dropped by its holder, who knows in which line.
        found = messages.copy()
        messages.clear()
        for message in found:
            message.in_hand = True
        return found

    def bodies_of(self, messages: list[Any]) -> list[Any]:
        """Return the bodies. Raises ShmqError if a codec cannot decode one."""
        return [message.body for message in messages]

    def receipt_of(self, message: object) -> int:
        """Return the receipt of a message, or the int itself. Raises TypeError otherwise."""
        return message.receipt if isinstance(message, api.Message) else _core.receipt_of(message)

    def have_acked(self, messages: list[Any], refused: set[int]) -> None:
        """Mark the transport's messages as acknowledged, but for the ``refused`` receipts."""
        del messages, refused

    def receipts_of(self, messages: list[Any]) -> list[int]:
        """Return the receipts."""
        return [message.receipt for message in messages]

    def records_in(self, messages: list[Any]) -> int:
        """Return how many records the messages hold; one that is not a packed batch holds one."""
        return sum(len(_records_of(message)) for message in messages)

    def packed_of(self, messages: list[Any]) -> tuple[bytes, int, int | None, bytes | None]:
        """Return the records joined: (data, count, size of each or None, lengths or None)."""
        records = [record for message in messages for record in _records_of(message)]
        sizes = [len(record) for record in records]
        size = sizes[0] if len(set(sizes)) == 1 else None
        return b"".join(records), len(records), size, array("I", sizes).tobytes()

    # ---- settlements ----

    @abc.abstractmethod
    def settle(
        self, kind: Settlement, receipts: list[int], ms: int | None, error: bytes | None = None
    ) -> list[int]:
        """Settle deliveries, of any process; return the refused receipts in their order.

        ``ms`` is the delay of a nack (None: the back-off) or a return, and the new lease of an
        extension, in milliseconds. The messages of a nack or a reject keep the packed ``error``, if
        the transport can.
        """

    # ---- what the queue has ----

    @abc.abstractmethod
    def describe(self, what: Literal["identity", "stats", "attachments"]) -> Any:
        """Return the identity, the QueueStats, or a list of each Attachment. Raises Unsupported.

        The puts of this process that wait by retrying are not among the statistics.
        """

    @abc.abstractmethod
    def peek(self, limit: int, where: Where | None) -> list[api.Message]:
        """Return copies of visible messages, those to be delivered first."""

    @abc.abstractmethod
    def leases(self, limit: int, after: int) -> list[api.Lease]:
        """Return leased messages with sequences above ``after``. Raises Unsupported."""

    @abc.abstractmethod
    def purge(self) -> int:
        """Remove all visible and delayed messages; returns how many."""

    @abc.abstractmethod
    def redrive(self, limit: int | None, where: Where | None) -> int:
        """Send dead letters back, oldest first; return how many. Raises Full if none fits."""

    @abc.abstractmethod
    def move_to(self, target: str, limit: int | None, where: Where | None) -> Steps[int]:
        """Move visible messages to the queue ``target``; return how many. Raises Full if none fits.

        Also raises NoSuchQueue, NoSpace, MessageTooLarge and Unsupported.
        """

    # ---- the end ----

    @abc.abstractmethod
    def close(self) -> None:
        """Return what this handle has leased, and release the connection. May be called again."""


def _records_of(message: api.Message) -> list[bytes]:
    """Return the records of a message; one that is not a valid packed batch is one record."""
    raw = bytes(message.view)
    if message.codec == "packed":
        with contextlib.suppress(Exception):
            return list(_core.unpack_records(raw))
    return [raw]
