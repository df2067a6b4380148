"""The port of a queue: what a transport does for the handle that keeps the contract."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, Literal

from shmq import api, errors
from shmq.api.options import QueueOptions
from shmq.client.ports.steps import Steps

if TYPE_CHECKING:
    from shmq.model.expression.parse import Where

#: How messages are settled; "return" is a nack that does not count the delivery.
Settlement = Literal["ack", "nack", "return", "reject", "extend"]


class PrefetchPort(abc.ABC):
    """The messages ahead of one iterator, and its acknowledgements."""

    #: The queue's name.
    name: str
    #: Whether it was closed.
    ended: bool

    @abc.abstractmethod
    def quickly(self) -> Any:
        """Return the next message if it is here and its lease is fresh, else None."""

    @abc.abstractmethod
    def find_next(self) -> Steps[Any]:
        """Return the next message, or None if none arrived within the timeout."""

    @abc.abstractmethod
    def count_ahead(self) -> int:
        """Return how many messages were not handed out."""

    @abc.abstractmethod
    def send_acks(self) -> None:
        """Send the acknowledgements so far, without waiting."""

    @abc.abstractmethod
    def confirm_acks(self) -> Steps[None]:
        """Wait until the acknowledgements so far are confirmed. Raises what `flush` raises."""

    @abc.abstractmethod
    def end(self) -> Steps[None]:
        """Return what was not handed out, uncounted, and wait for the acknowledgements. Once."""


class FlightPort(abc.ABC):
    """The puts of one pipeline that are under way."""

    #: The puts that have failed, by number, from 0 on; None: the outcome is unknown.
    failures: dict[int, errors.ShmqError | None]

    @abc.abstractmethod
    def begin(self, item: Any, known: bool, durable: bool) -> int:
        """Begin a put, once there is room in the window, and return its number.

        The arguments are those of a put.
        """

    @abc.abstractmethod
    def wait(self) -> None:
        """Wait until no put is under way."""

    @abc.abstractmethod
    def take_failures(self) -> dict[int, errors.ShmqError | None]:
        """Return ``failures``, and forget them."""

    @abc.abstractmethod
    def count_taken(self) -> int:
        """Return how many puts are known to have been taken."""

    @abc.abstractmethod
    def leave(self) -> None:
        """Send what is under way, without waiting: the block has raised."""


class QueuePort(abc.ABC):
    """One queue, through one transport.

    Arguments were checked and have no defaults. Timeouts are in seconds from now, None is without
    limit, and 0 does not wait. A method that returns `Steps` is a procedure, which the handle runs
    for a thread or for a task; the others block. All raise QueueDeleted if the queue was deleted,
    ConnectionLost, and the errors that they name.
    """

    name: str
    options: QueueOptions

    @property
    @abc.abstractmethod
    def closed(self) -> bool:
        """Whether it was closed."""

    @property
    @abc.abstractmethod
    def url(self) -> str:
        """The server's URL."""

    @abc.abstractmethod
    def check_open(self) -> None:
        """Raise ShmqError if it was closed."""

    @abc.abstractmethod
    def identity(self) -> int:
        """Return the queue's identity. Raises Unsupported."""

    # ---- puts ----

    @abc.abstractmethod
    def check_durable(self) -> None:
        """Raise InvalidOption if this transport cannot confirm that a message is on disk."""

    @abc.abstractmethod
    def check_bytes(self, size: int, meta: bytes | None) -> None:
        """Raise MessageTooLarge for a body of that size that can never be put."""

    @abc.abstractmethod
    def pack(self, meta: bytes | None, body: Any, known: bool) -> Any:
        """Return the message of packed properties and a buffer as the puts accept it.

        ``known``: the application gave it a dedupe id. Raises MessageTooLarge.
        """

    @abc.abstractmethod
    def put(
        self, item: Any, waits: bool, timeout: float | None, known: bool, durable: bool
    ) -> Steps[api.Put]:
        """Put one message, ``waits``: for room. Raises Full, NotConfirmed."""

    @abc.abstractmethod
    def put_many(self, items: list[Any], waits: bool, timeout: float | None, durable: bool) -> int:
        """Put messages in order, as many as fit; return how many. Raises NotConfirmed.

        An error other than NotConfirmed after the first message ends the call without being raised.
        """

    @abc.abstractmethod
    def wait_for_room(self, waits: bool, timeout: float | None) -> None:
        """Return once a message may fit. Raises Full."""

    @abc.abstractmethod
    def flight(self, window: int) -> FlightPort:
        """Return the puts of a new pipeline, of which up to ``window`` are under way."""

    # ---- gets ----

    @abc.abstractmethod
    def check_where(self, where: str) -> None:
        """Raise InvalidOption for an expression that cannot be parsed. Raises Unsupported."""

    @abc.abstractmethod
    def take(self, limit: int, timeout: float | None, where: str | None) -> Steps[list[Any]]:
        """Lease up to ``limit`` messages, waiting only for the first; ``where``: those matching.

        A wait that ends by an exception has taken nothing.
        """

    @abc.abstractmethod
    def prefetch(self, handle: Any, limit: int, timeout: float | None, where: str | None) -> Any:
        """Return a new `Consumer` of the handles, which keeps a reference to this handle."""

    @abc.abstractmethod
    def current(self, messages: list[Any]) -> list[Any]:
        """Return the messages whose leases have not ended on the way."""

    @abc.abstractmethod
    def is_old(self, message: Any) -> bool:
        """Return whether so much of its lease has passed that the message must be delivered."""

    @abc.abstractmethod
    def is_leased(self, message: Any) -> bool:
        """Return whether its lease holds, as far as the client can tell."""

    @abc.abstractmethod
    def hand_over(self, messages: list[Any]) -> list[Any]:
        """Mark the messages as the application's, which must settle them, and return them."""

    @abc.abstractmethod
    def bodies_of(self, messages: list[Any]) -> list[Any]:
        """Return the bodies. Raises ShmqError if a codec cannot decode one."""

    @abc.abstractmethod
    def receipt_of(self, message: object) -> int:
        """Return the receipt of a message, or the int itself. Raises TypeError otherwise."""

    @abc.abstractmethod
    def receipts_of(self, messages: list[Any]) -> list[int]:
        """Return the receipts."""

    @abc.abstractmethod
    def records_in(self, messages: list[Any]) -> int:
        """Return how many records the messages hold; one that is not a packed batch holds one."""

    @abc.abstractmethod
    def packed_of(self, messages: list[Any]) -> tuple[bytes, int, int | None, bytes | None]:
        """Return the records joined: (data, count, size of each or None, lengths or None)."""

    # ---- settlements ----

    @abc.abstractmethod
    def settle(self, kind: Settlement, receipts: list[int], ms: int | None) -> list[int]:
        """Settle deliveries, of any process; return the refused receipts in their order.

        ``ms`` is the delay of a nack (None: the back-off) or a return, and the new lease of an
        extension, in milliseconds.
        """

    # ---- what the queue has ----

    @abc.abstractmethod
    def peek(self, limit: int, where: Where | None) -> list[api.Message]:
        """Return copies of visible messages, those to be delivered first."""

    @abc.abstractmethod
    def purge(self) -> int:
        """Remove the visible and the delayed messages; return how many."""

    @abc.abstractmethod
    def redrive(self, limit: int | None, where: Where | None) -> int:
        """Send dead letters back, oldest first; return how many. Raises Full if none fits."""

    @abc.abstractmethod
    def stats(self) -> api.QueueStats:
        """Return the statistics."""

    @abc.abstractmethod
    def depth(self) -> int:
        """Return how many messages are visible."""

    @abc.abstractmethod
    def is_full(self) -> bool:
        """Return whether the queue holds as many messages as its capacity allows."""

    @abc.abstractmethod
    def attachments(self) -> list[api.Attachment]:
        """Return the open handles of all processes. Raises Unsupported."""

    @abc.abstractmethod
    def leases(self, limit: int, after: int) -> list[api.Lease]:
        """Return leased messages with sequences above ``after``. Raises Unsupported."""

    # ---- the end ----

    @abc.abstractmethod
    def close(self) -> None:
        """Return what this handle has leased, and release the connection. May be called again."""
