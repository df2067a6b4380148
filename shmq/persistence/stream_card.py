"""The card of a durable stream: that there is one, what it is, and how far its groups are.

A header as every file has, then one map of msgpack with its length and its checksum. It is
written aside, synced and renamed, so there is the old one or the new one.
"""

from __future__ import annotations

import contextlib
import struct
from dataclasses import dataclass
from typing import Any, Final

import msgpack

from shmq.core import _core
from shmq.errors import DamagedFile
from shmq.persistence.disk import Disk
from shmq.persistence.format import HEADER_BYTES, STREAM_CARD, FileHeader, read_header
from shmq.persistence.stream_identity import StreamIdentity
from shmq.persistence.stream_places import CARD, UNFINISHED
from shmq.persistence.writing import write_whole
from shmq.stream_era import Era, eras_of
from shmq.stream_options import MAX_PARTITIONS

__all__ = ["StreamCard", "read_card", "write_card"]

#: Bytes of the map, and their CRC-32C.
_LENGTH: Final = struct.Struct("<II")
#: The last time that shared memory has room for, in ns since 1970.
_LAST_TIME: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class StreamCard:
    """What it says beside its header."""

    groups: dict[str, Any]
    #: All partitions that there may be files of. One that is not the last one's is sealed, and
    #: what was appended to it is in its files to the end.
    eras: list[Era]


def write_card(disk: Disk, identity: StreamIdentity, card: StreamCard) -> None:
    """Have the card in the stream's directory say this, durably. Raises OSError."""
    told: dict[str, Any] = {"groups": card.groups}
    if len(card.eras) > 1:  # else the options say it
        told["eras"] = [(era.count, era.made) for era in card.eras]
    packed: bytes = msgpack.packb(told)
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


def read_card(disk: Disk) -> tuple[FileHeader, StreamCard] | None:
    """What the card says: its header, and the rest; None: there is none.

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
    told = _told_by(raw, at, path)
    try:
        eras = told.get("eras") or [(header.options.get("partitions", 0), 0)]
        card = StreamCard(dict(told["groups"]), eras_of((int(n), int(made)) for n, made in eras))
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise DamagedFile(path, at, f"the card cannot be read: {error}") from None
    if not all(map(_may_be, card.eras)) or card.eras[-1].end > MAX_PARTITIONS:
        raise DamagedFile(path, at, f"no stream has the partitions of the card: {eras}")
    return header, card


def _may_be(era: Era) -> bool:
    return era.count >= 1 and 0 <= era.made <= _LAST_TIME


def _told_by(raw: bytes, at: int, path: str) -> dict[str, Any]:
    if len(raw) < at + _LENGTH.size:
        raise DamagedFile(path, len(raw), "the card is cut off")
    size, crc = _LENGTH.unpack_from(raw, at)
    packed = raw[at + _LENGTH.size :]
    if len(packed) != size or _core.crc32c(packed) != crc:
        raise DamagedFile(path, at, "the card's checksum is not that of its bytes")
    try:
        return dict(msgpack.unpackb(packed, strict_map_key=False))
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise DamagedFile(path, at, f"the card cannot be read: {error}") from None
