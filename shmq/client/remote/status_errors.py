"""What a server's status is in Python."""

from __future__ import annotations

from collections.abc import Callable

import msgpack

from shmq import errors
from shmq.native import _core
from shmq.protocol.opcodes import Status

__all__ = ["of_status", "refusal"]

_Make = Callable[[str, str], errors.ShmqError]

#: By status: what is made of the queue as one speaks of it, and of what the server said.
_ERRORS: dict[int, _Make] = {
    Status.QUEUE_FULL: lambda what, text: errors.Full(text or f"{what} is full"),
    Status.QUEUE_EMPTY: lambda what, text: errors.Empty(text or f"no message is in {what}"),
    Status.NO_QUEUE: lambda what, text: errors.NoSuchQueue(text or f"there is no {what}"),
    Status.QUEUE_EXISTS: lambda what, text: errors.QueueExists(
        text or f"{what} exists with other options"
    ),
    Status.BAD_REQUEST: lambda what, text: errors.InvalidOption(
        text or f"the server refused the form of a request about {what}"
    ),
    Status.TOO_LARGE: lambda what, text: errors.MessageTooLarge(
        text or f"the message can never fit into {what}"
    ),
    Status.LEASE_EXPIRED: lambda what, _: errors.LeaseExpired(
        f"a receipt of {what} is no longer good: its lease ended, or the message was settled"
    ),
    Status.UNSUPPORTED: lambda what, text: errors.Unsupported(
        text or f"the server of {what} does not know this request, or not for this queue"
    ),
    Status.NO_SPACE: lambda what, text: errors.NoSpace(
        text or f"the server of {what} has no more shared memory or disk"
    ),
    Status.SHUTTING_DOWN: lambda what, text: errors.ShuttingDown(
        text or f"the server of {what} is shutting down"
    ),
    Status.INTERNAL: lambda what, text: errors.ServerError(
        text or f"the server failed at a request about {what}: its log says why"
    ),
    Status.FORBIDDEN: lambda what, text: errors.Forbidden(
        text or f"the token has no right to do this to {what}"
    ),
    Status.FENCED: lambda what, text: errors.MemberFenced(
        text or f"a member of a group of {what} is none any more, or lost its partition"
    ),
    Status.NO_GROUP: lambda what, text: errors.NoSuchGroup(text or f"{what} has no such group"),
    Status.BUSY: lambda what, text: errors.LockTimeout(
        text or f"a lock of {what} is held by a process that is stopped or very busy: try again"
    ),
    Status.FRAME_TOO_LARGE: lambda what, text: errors.MessageTooLarge(
        text or f"a request about {what} is larger than the server takes"
    ),
    Status.UNAUTHORIZED: lambda what, _: errors.Unauthorized(
        f"the server of {what} wants a token that it knows: give token= or set SHMQ_TOKEN"
    ),
    Status.TIMED_OUT: lambda what, text: errors.ConnectionLost(
        text or f"the server of {what} closed the connection, which was idle for too long"
    ),
}


def refusal(answer: _core.Answer, what: str) -> errors.ShmqError:
    """The error that the status of ``answer`` means; ``what`` is the queue it is about."""
    if answer.status == Status.DAMAGED:
        return _damaged(answer.payload or b"", what)
    return of_status(answer.status, what, _text(answer.payload))


def _damaged(payload: bytes, what: str) -> errors.ShmqError:
    """What a server says of a file of its own: its path, the byte, and what is wrong there."""
    try:
        path, offset, wrong, *places = msgpack.unpackb(payload)
        partition, first, following = (None if at is None else int(at) for at in places)
        return errors.DamagedFile(str(path), int(offset), str(wrong), partition, first, following)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        return errors.ServerError(
            f"a file of {what} is damaged, and what the server says of it makes no sense: {error}"
        )


def of_status(status: int, what: str, text: str = "") -> errors.ShmqError:
    """The error that a status means."""
    make = _ERRORS.get(status)
    if make is not None:
        return make(what, text)
    return errors.ServerError(f"the server answered with status {status:#06x} about {what}: {text}")


def _text(payload: bytes | None) -> str:
    """What the server said, if that is one line of text."""
    try:
        text = (payload or b"").decode()
    except UnicodeDecodeError:
        return ""
    return text if text.isprintable() else ""
