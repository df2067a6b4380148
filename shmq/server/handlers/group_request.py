"""What a client asks as a member of a group, read from the bytes that it sent."""

from __future__ import annotations

import array
import struct
import sys
from typing import Any, Final

from shmq.api.names import check_name
from shmq.errors import InvalidName
from shmq.protocol.opcodes import Status
from shmq.server.handlers.request_errors import Refusal, map_of

__all__ = ["GroupRequest", "PartitionPositions", "ShareTake", "receipts_of"]

_SIZE: Final = struct.Struct("!H")
_MEMBER: Final = struct.Struct("!QQ")
_PLACE: Final = struct.Struct("!IQ")
_TAKE: Final = struct.Struct("!I")


class GroupRequest:
    """A request of a member: the group, the stream's identity, its id, and what follows."""

    def __init__(self, rest: bytes) -> None:
        if len(rest) < _SIZE.size:
            raise _bad("behind the stream's name is a group's")
        size = _SIZE.unpack_from(rest)[0]
        at = _SIZE.size + size
        if len(rest) < at + _MEMBER.size:
            raise _bad("behind a group's name are two numbers of 64 bits")
        try:
            self.group: str = check_name(rest[_SIZE.size : at].decode("ascii"), "group")
        except (UnicodeDecodeError, InvalidName) as error:
            raise _bad(str(error)) from error
        #: Of the stream, and of the member.
        self.identity: int
        self.member: int
        self.identity, self.member = _MEMBER.unpack_from(rest, at)
        self.rest = rest[at + _MEMBER.size :]

    def number(self) -> int:
        """What follows: one number of 64 bits."""
        if len(self.rest) != 8:
            raise _bad("one number of 64 bits has to follow")
        return int.from_bytes(self.rest, "big")

    def options(self) -> dict[str, Any]:
        """What follows: a msgpack map."""
        return map_of(self.rest)


class PartitionPositions:
    """What follows a request that takes, leaves or commits partitions."""

    def __init__(self, rest: bytes, partitions: int) -> None:
        if len(rest) % _PLACE.size:
            raise _bad("partitions and offsets have 12 bytes each")
        self.places: list[tuple[int, int]] = list(_PLACE.iter_unpack(rest))
        for partition, offset in self.places:
            if partition >= partitions or offset >= 1 << 63:
                raise _bad(f"partition {partition}, offset {offset}: there is none such")


class ShareTake:
    """What follows a SHARE_TAKE: how many, and whether they are handed out at once."""

    def __init__(self, rest: bytes) -> None:
        if len(rest) != _TAKE.size + 1 or rest[-1] > 1:
            raise _bad("a SHARE_TAKE has a number of 32 bits, and a byte of 0 or 1")
        self.limit: int = _TAKE.unpack_from(rest)[0]
        self.handed = bool(rest[-1])
        if not self.limit:
            raise _bad("a SHARE_TAKE takes one record at least")


def receipts_of(raw: bytes) -> list[int]:
    """Receipts, to the end. Raises Refusal."""
    if len(raw) % 8:
        raise _bad("receipts have 8 bytes each")
    found = array.array("Q", raw)
    if sys.byteorder == "little":
        found.byteswap()
    return found.tolist()


def _bad(why: str) -> Refusal:
    return Refusal(Status.BAD_REQUEST, why)
