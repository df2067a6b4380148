"""The card of a durable stream: that there is one, what it is, and how far its groups are.

A header as every file has, then one map of msgpack with its length and its checksum. It is
written aside, synced and renamed, so there is the old one or the new one.
"""

from __future__ import annotations

import contextlib
import struct
from typing import Any, Final

import msgpack

from shmq.core import _core
from shmq.errors import DamagedFile
from shmq.persistence.disk import Disk
from shmq.persistence.format import HEADER_BYTES, STREAM_CARD, FileHeader, read_header
from shmq.persistence.stream_identity import StreamIdentity
from shmq.persistence.stream_places import CARD, UNFINISHED
from shmq.persistence.writing import write_whole

__all__ = ["read_card", "write_card"]

#: Bytes of the map, and their CRC-32C.
_LENGTH: Final = struct.Struct("<II")


def write_card(disk: Disk, identity: StreamIdentity, groups: dict[str, Any]) -> None:
    """Have the card in the stream's directory say this, durably. Raises OSError."""
    packed: bytes = msgpack.packb({"groups": groups})
    content = _LENGTH.pack(len(packed), _core.crc32c(packed)) + packed
    with contextlib.suppress(FileNotFoundError):
        disk.unlink(UNFINISHED)
    file = disk.create(UNFINISHED)
    try:
        write_whole(disk, file, [identity.card().pack(), content], 0)
        disk.sync(file)
    finally:
        disk.close(file)
    disk.rename(UNFINISHED, CARD)
    disk.sync_directory()


def read_card(disk: Disk) -> tuple[FileHeader, dict[str, Any]] | None:
    """What the card says: its header, and the groups; None: there is none.

    Raises :class:`~shmq.FileError` and OSError.
    """
    path = str(disk.path(CARD))
    try:
        file = disk.open(CARD)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        raw = disk.read(file, disk.size(file), 0)
    finally:
        disk.close(file)
    header, at = read_header(raw[:HEADER_BYTES], path, (STREAM_CARD,))
    return header, _groups_of(raw, at, path)


def _groups_of(raw: bytes, at: int, path: str) -> dict[str, Any]:
    if len(raw) < at + _LENGTH.size:
        raise DamagedFile(path, len(raw), "the card is cut off")
    size, crc = _LENGTH.unpack_from(raw, at)
    packed = raw[at + _LENGTH.size :]
    if len(packed) != size or _core.crc32c(packed) != crc:
        raise DamagedFile(path, at, "the card's checksum is not that of its bytes")
    try:
        return dict(msgpack.unpackb(packed, strict_map_key=False)["groups"])
    except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        raise DamagedFile(path, at, f"the card cannot be read: {error}") from None
