"""Errors and statuses: which status a server answers for an error, and what a client raises."""

from __future__ import annotations

import struct
from typing import Final

import msgpack

from shmq import errors
from shmq.native import _core
from shmq.protocol.opcodes import ERRORS, TEXTS, Status

_RANGE: Final = struct.Struct("!QQQ")
_SEQUENCE: Final = struct.Struct("!QQ")

#: From 0x8000 on a status ends the connection, and no request is answered with it.
_STATUS_OF: Final = {
    kind: status
    for status, kinds in reversed(ERRORS.items())
    for kind in kinds
    if status < Status.BAD_MAGIC
}

#: By status: the error that a client raises, its text, and whether that replaces the server's.
_TEXT_OF: Final[dict[int, tuple[type[errors.ShmqError], str, bool]]] = {
    status: (ERRORS[status][0], text, fixed) for status, (text, fixed) in TEXTS.items()
}


class Refusal(Exception):
    """A refused request. Its text, or its ``payload``, is sent to the client."""

    def __init__(self, status: Status, text: str, payload: bytes | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.payload = text.encode() if payload is None else payload

    @classmethod
    def bad(cls, text: str) -> Refusal:
        """The refusal of a malformed request."""
        return cls(Status.BAD_REQUEST, text)


# ---- the server's side ----


def status_of(error: Exception) -> Status:
    """The error's status; INTERNAL for an error that is not the client's fault."""
    for kind in type(error).__mro__:
        if kind in _STATUS_OF:
            return _STATUS_OF[kind]
    return Status.INTERNAL


def refusal_of(error: Exception) -> tuple[Status, bytes]:
    """The status, and the payload: numbers for the client's program, or the text."""
    if isinstance(error, Refusal):
        return error.status, error.payload
    status = status_of(error)
    if isinstance(error, errors.OffsetOutOfRange):
        return status, _RANGE.pack(error.asked, error.earliest, error.latest)
    if isinstance(error, errors.OutOfSequence):
        return status, _SEQUENCE.pack(error.expected, error.given)
    if isinstance(error, errors.DamagedFile):
        return status, msgpack.packb(
            [
                *(error.path, error.offset, error.what),
                *(error.partition, error.first_offset, error.next_offset),
            ]
        )
    hidden = status == Status.INTERNAL and not isinstance(error, errors.NotConfirmed)
    message = "the server has logged why" if hidden else str(error)
    return status, message.encode()


# ---- the client's side ----


def error_of(answer: _core.Answer, what: str) -> errors.ShmqError:
    """The error for the status of ``answer``; ``what`` is the queue it is about."""
    if answer.status == Status.DAMAGED:
        return _make_damaged_error(answer.payload or b"", what)
    return error_of_status(answer.status, what, _read_text(answer.payload))


def error_of_status(status: int, what: str, said: str = "") -> errors.ShmqError:
    """The error for a status, with the text that the server ``said``."""
    if status not in _TEXT_OF:
        return errors.ServerError(
            f"the server answered with status {status:#06x} about {what}: {said}"
        )
    kind, text, fixed = _TEXT_OF[status]
    message = text.format(what=what)
    return kind(message if fixed else said or message)


def _make_damaged_error(payload: bytes, what: str) -> errors.ShmqError:
    """The error for a damaged file of the server: its path, the byte, and what is wrong there."""
    try:
        path, offset, wrong, *places = msgpack.unpackb(payload)
        partition, first, following = (None if at is None else int(at) for at in places)
        return errors.DamagedFile(str(path), int(offset), str(wrong), partition, first, following)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        return errors.ServerError(
            f"a file of {what} is damaged, and what the server says of it makes no sense: {error}"
        )


def stream_error_of(answer: _core.Answer, name: str) -> errors.ShmqError:
    """The error for a refusal, for a handle of the stream."""
    what = f"stream {name!r}"
    if answer.status == Status.NO_QUEUE:
        return errors.StreamDeleted(f"{what} was deleted")
    if answer.status == Status.OUT_OF_RANGE:
        asked, earliest, latest = _RANGE.unpack_from(whole(answer, _RANGE.size))
        message = (
            f"{what} has no offset {asked} there yet: the next one is {latest}"
            if asked > latest
            else f"offset {asked} of {what} is gone: the oldest there is {earliest}; go on there, "
            f"read sooner, or give the stream more ring_bytes"
        )
        return errors.OffsetOutOfRange(message, asked, earliest, latest)
    if answer.status == Status.OUT_OF_SEQUENCE:
        expected, given = _SEQUENCE.unpack_from(whole(answer, _SEQUENCE.size))
        message = f"{what} expects the sequence {expected} of this producer, not {given}"
        message += (
            ": append what is missing first"
            if given > expected
            else f": it has the records up to {expected - 1}, and not all of these; none was "
            f"appended; go on with {expected}"
        )
        return errors.OutOfSequence(message, expected, given)
    return error_of(answer, what)


def whole(answer: _core.Answer, size: int) -> bytes:
    """The payload of an answer, at least ``size`` bytes long. Raises ServerError."""
    payload = answer.payload or b""
    if len(payload) < size:
        raise senseless(f"it has {len(payload)} bytes, not {size}")
    return payload


def senseless(why: str) -> errors.ServerError:
    """The error for a malformed answer."""
    return errors.ServerError(f"the server's answer makes no sense: {why}")


def _read_text(payload: bytes | None) -> str:
    """The server's text, if it is one line of printable text."""
    try:
        text = (payload or b"").decode()
    except UnicodeDecodeError:
        return ""
    return text if text.isprintable() else ""
