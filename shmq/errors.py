"""Every error shmq raises, all under :class:`ShmqError`.

The module imports nothing of shmq, so that every layer, the compiled core
included, can raise these classes. A message names the values involved and what
to do about them; the same values are attributes where a program may want them.
"""

from __future__ import annotations

import queue

__all__ = [
    "ConnectionLost",
    "DamagedFile",
    "DamagedSegment",
    "Empty",
    "FileError",
    "Forbidden",
    "ForeignSegment",
    "Full",
    "IncompatibleFile",
    "IncompatibleSegment",
    "InvalidName",
    "InvalidOption",
    "LeaseExpired",
    "MessageTooLarge",
    "NoSpace",
    "NoSuchQueue",
    "NotConfirmed",
    "PutsRefused",
    "QueueDeleted",
    "QueueExists",
    "SegmentError",
    "ServerError",
    "ShmqError",
    "ShuttingDown",
    "Unauthorized",
    "Unsupported",
]


class ShmqError(Exception):
    """The base of all errors of shmq."""


class Full(ShmqError, queue.Full):
    """The queue holds as many messages, or as many bytes, as it may."""


class Empty(ShmqError, queue.Empty):
    """No message could be had within the time allowed."""


class NoSuchQueue(ShmqError, LookupError):
    """There is no queue of that name in the namespace."""


class QueueExists(ShmqError):
    """A queue of that name exists with other options."""


class QueueDeleted(ShmqError):
    """The queue was deleted while this handle was attached to it."""


class MessageTooLarge(ShmqError, ValueError):
    """The message can never fit into this queue."""


class LeaseExpired(ShmqError):
    """The receipt is no longer the holder's: nothing was settled by it."""


class NoSpace(ShmqError, OSError):
    """Shared memory is exhausted on this machine or in this container."""


class InvalidOption(ShmqError, ValueError):
    """An option is unknown, or a value is out of range; one of a wrong type is a TypeError."""


class InvalidName(ShmqError, ValueError):
    """A queue's or a namespace's name has a wrong length or character."""


class SegmentError(ShmqError):
    """A shared-memory segment cannot be used as a queue."""


class IncompatibleSegment(SegmentError):
    """The segment was written with another version of the layout."""


class DamagedSegment(SegmentError):
    """The segment is truncated, or its contents contradict themselves."""


class ForeignSegment(SegmentError):
    """The segment belongs to someone else, or others may write to it."""


class FileError(ShmqError):
    """A file cannot be used as a snapshot or a journal of a queue."""


class IncompatibleFile(FileError):
    """The file is of a newer version of the format, or of another format altogether."""


class DamagedFile(FileError):
    """The file is cut off, or its bytes are not those that were written."""

    #: Which file, and where in it the damage is, in bytes from its beginning.
    path: str
    offset: int
    #: What is wrong there.
    what: str

    def __init__(self, path: str, offset: int, what: str) -> None:
        super().__init__(f"{path} is damaged at byte {offset}: {what}")
        self.path = path
        self.offset = offset
        self.what = what

    def __reduce__(self) -> tuple[type[DamagedFile], tuple[str, int, str]]:
        return type(self), (self.path, self.offset, self.what)


class NotConfirmed(ShmqError):
    """What was put is in the queue, but is not known to be on disk.

    The journal did not have it in time, or its disk fails. It is written as soon as that is
    possible; put again, it would be there twice. A server that has not answered yet has it,
    too, unless it is about to refuse it: a ``dedupe_id`` makes it safe to put it again.
    """

    #: The sequence number of the message, or of the last one; None if a server has not told it.
    sequence: int | None
    #: How many messages the call has put; of a server, how many it has said that it took.
    taken: int

    def __init__(self, message: str, sequence: int | None = None, taken: int = 1) -> None:
        super().__init__(message)
        self.sequence = sequence
        self.taken = taken

    def __reduce__(self) -> tuple[type[NotConfirmed], tuple[str, int | None, int]]:
        return type(self), (str(self), self.sequence, self.taken)


class PutsRefused(ShmqError):
    """Not every put of a pipeline was taken; the first refusal is the ``__cause__``.

    Puts are known by their number in the pipeline, from 0 on.
    """

    #: How many were taken.
    taken: int
    #: Those that were refused: number to error.
    refused: dict[int, ShmqError]
    #: Those that may have been taken or not: the connection was lost before the answer.
    unknown: list[int]
    #: Those that were to be on disk, and are not known to be: on this host they are taken, a
    #: server has not said so.
    unconfirmed: list[int]

    def __init__(
        self,
        message: str,
        taken: int = 0,
        refused: dict[int, ShmqError] | None = None,
        unknown: list[int] | None = None,
        unconfirmed: list[int] | None = None,
    ) -> None:
        super().__init__(message)
        self.taken = taken
        self.refused = refused or {}
        self.unknown = unknown or []
        self.unconfirmed = unconfirmed or []


class ConnectionLost(ShmqError, ConnectionError):
    """The server cannot be reached, or the connection ended before the answer came."""


class Unauthorized(ShmqError, PermissionError):
    """The server wants a token, or does not know the one it was given."""


class Forbidden(ShmqError, PermissionError):
    """The token has no right to do this to the queue."""


class Unsupported(ShmqError):
    """The server, or the queue, does not know what was asked for."""


class ShuttingDown(ShmqError):
    """The server is ending and takes no more requests."""


class ServerError(ShmqError):
    """The server failed at the request by its own fault, which is in its log."""
