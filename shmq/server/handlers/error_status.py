"""What an error means to a remote client: the status that it is answered with."""

from __future__ import annotations

import struct
from typing import Final

import msgpack

from shmq.errors import (
    DamagedFile,
    Empty,
    ExchangeExists,
    Forbidden,
    Full,
    InvalidName,
    InvalidOption,
    LeaseExpired,
    LockTimeout,
    MemberFenced,
    MessageTooLarge,
    NoSpace,
    NoSuchExchange,
    NoSuchGroup,
    NoSuchQueue,
    NoSuchStream,
    NotConfirmed,
    OffsetOutOfRange,
    OutOfSequence,
    PartitionSealed,
    QueueDeleted,
    QueueExists,
    StreamDeleted,
    StreamExists,
    Unsupported,
)
from shmq.protocol.opcodes import Status
from shmq.server.handlers.request_errors import Refusal

__all__ = ["refusal_of", "status_of"]

_RANGE: Final = struct.Struct("!QQQ")
_SEQUENCE: Final = struct.Struct("!QQ")

_STATUSES: Final[tuple[tuple[type[Exception], Status], ...]] = (
    (NoSuchQueue, Status.NO_QUEUE),
    (NoSuchExchange, Status.NO_QUEUE),
    (QueueDeleted, Status.NO_QUEUE),
    (QueueExists, Status.QUEUE_EXISTS),
    (NoSuchStream, Status.NO_QUEUE),
    (StreamDeleted, Status.NO_QUEUE),
    (StreamExists, Status.QUEUE_EXISTS),
    (OffsetOutOfRange, Status.OUT_OF_RANGE),
    (OutOfSequence, Status.OUT_OF_SEQUENCE),
    (MemberFenced, Status.FENCED),
    (PartitionSealed, Status.FENCED),
    (NoSuchGroup, Status.NO_GROUP),
    (ExchangeExists, Status.QUEUE_EXISTS),
    (Forbidden, Status.FORBIDDEN),
    (MessageTooLarge, Status.TOO_LARGE),
    (LeaseExpired, Status.LEASE_EXPIRED),
    (LockTimeout, Status.BUSY),
    (DamagedFile, Status.DAMAGED),
    (Full, Status.QUEUE_FULL),
    (Empty, Status.QUEUE_EMPTY),
    (NoSpace, Status.NO_SPACE),
    (InvalidOption, Status.BAD_REQUEST),
    (InvalidName, Status.BAD_REQUEST),
    (Unsupported, Status.UNSUPPORTED),
)


def status_of(error: Exception) -> Status:
    """The error's status; INTERNAL for whatever is no fault of the client's."""
    for kind, status in _STATUSES:
        if isinstance(error, kind):
            return status
    return Status.INTERNAL


def refusal_of(error: Exception) -> tuple[Status, bytes]:
    """The status, and the payload: numbers that a program may want, or the text."""
    if isinstance(error, Refusal):
        return error.status, error.payload
    status = status_of(error)
    if isinstance(error, OffsetOutOfRange):
        return status, _RANGE.pack(error.asked, error.earliest, error.latest)
    if isinstance(error, OutOfSequence):
        return status, _SEQUENCE.pack(error.expected, error.given)
    if isinstance(error, DamagedFile):
        return status, msgpack.packb(
            [
                *(error.path, error.offset, error.what),
                *(error.partition, error.first_offset, error.next_offset),
            ]
        )
    hidden = status == Status.INTERNAL and not isinstance(error, NotConfirmed)
    told = "the server has logged why" if hidden else str(error)
    return status, told.encode()
