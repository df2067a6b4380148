"""What an error means to a remote client: the status that it is answered with."""

from __future__ import annotations

from typing import Final

from shmq.errors import (
    Empty,
    Full,
    InvalidName,
    InvalidOption,
    LeaseExpired,
    MessageTooLarge,
    NoSpace,
    NoSuchQueue,
    QueueDeleted,
    QueueExists,
)
from shmq.protocol import Status

__all__ = ["status_of"]

_STATUSES: Final[tuple[tuple[type[Exception], Status], ...]] = (
    (NoSuchQueue, Status.NO_QUEUE),
    (QueueDeleted, Status.NO_QUEUE),
    (QueueExists, Status.QUEUE_EXISTS),
    (MessageTooLarge, Status.TOO_LARGE),
    (LeaseExpired, Status.LEASE_EXPIRED),
    (Full, Status.QUEUE_FULL),
    (Empty, Status.QUEUE_EMPTY),
    (NoSpace, Status.NO_SPACE),
    (InvalidOption, Status.BAD_REQUEST),
    (InvalidName, Status.BAD_REQUEST),
)


def status_of(error: Exception) -> Status:
    """The error's status; INTERNAL for whatever is no fault of the client's."""
    for kind, status in _STATUSES:
        if isinstance(error, kind):
            return status
    return Status.INTERNAL
