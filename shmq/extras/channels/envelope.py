"""What is in the queues of a channel layer: a message with its receiver, or a change of groups."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import msgpack


class Kind(enum.IntEnum):
    """What an envelope is."""

    #: A message for the channel ``name``.
    CHANNEL = 0
    #: A message for the members of the group ``name``.
    GROUP = 1
    #: The channel ``payload`` of the process that reads this joins the group ``name``, or leaves.
    JOIN = 2
    LEAVE = 3
    #: The exchange is new: the process binds its groups again.
    BIND = 4
    #: The process forgets its groups and messages.
    FLUSH = 5


class Envelope(NamedTuple):
    """One body of a queue."""

    kind: Kind
    name: str
    payload: bytes

    def pack(self) -> bytes:
        """The body."""
        packed: bytes = msgpack.packb(self)
        return packed

    @classmethod
    def unpack(cls, body: Any) -> Envelope:
        """The envelope of a body. Raises ValueError and TypeError if it is of something else."""
        kind, name, payload = msgpack.unpackb(body)
        if not isinstance(name, str) or not isinstance(payload, bytes):
            raise TypeError("the body is not that of a channel layer")
        return cls(Kind(kind), name, payload)


def pack_message(message: dict[str, Any]) -> bytes:
    """The message as msgpack. Raises TypeError for a value that msgpack does not have."""
    try:
        packed: bytes = msgpack.packb(message)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(
            f"this message cannot be sent: {error}; its values must be None, bools, integers of 64 "
            f"bits, floats, text, bytes, lists and dicts"
        ) from error
    return packed


def unpack_message(payload: bytes) -> dict[str, Any]:
    """The message, a new one by each call."""
    message: dict[str, Any] = msgpack.unpackb(payload, strict_map_key=False)
    return message
