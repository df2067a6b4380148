"""Every error shmq raises, all under :class:`ShmqError`.

The module imports nothing of shmq, so that every layer, the compiled core
included, can raise these classes. A message names the values involved and what
to do about them; the same values are attributes where a program may want them.
"""

from __future__ import annotations

import queue

__all__ = [
    "DamagedSegment",
    "Empty",
    "ForeignSegment",
    "Full",
    "IncompatibleSegment",
    "InvalidName",
    "InvalidOption",
    "LeaseExpired",
    "MessageTooLarge",
    "NoSpace",
    "NoSuchQueue",
    "QueueDeleted",
    "QueueExists",
    "SegmentError",
    "ShmqError",
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
