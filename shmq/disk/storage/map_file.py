"""A file of the data directory that holds one msgpack map, and is replaced as a whole.

It has the usual header, 4 bytes of length, 4 of CRC-32C, and the map. It is written under a
temporary name, synced and renamed, so that either the old file or the new one exists.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

import msgpack

from shmq.disk.storage.disk import Disk, read_whole, replace_file
from shmq.disk.storage.file_header import HEADER_BYTES, FileHeader, read_header
from shmq.errors import DamagedFile
from shmq.native import _core

#: Bytes of the map, and their CRC-32C.
_LENGTH: Final = struct.Struct("<II")


def write_map(
    disk: Disk,
    name: str,
    unfinished: str,
    header: FileHeader,
    entries: Mapping[str, Any],
    guard: AbstractContextManager[object] | None = None,
) -> None:
    """Replace the file ``name`` durably: see :func:`shmq.disk.storage.disk.replace_file`.

    Raises OSError; then the file has its old contents or the new ones.
    """
    packed: bytes = msgpack.packb(entries)
    content = _LENGTH.pack(len(packed), _core.crc32c(packed)) + packed
    replace_file(disk, name, unfinished, [header.pack(), content], guard)


def read_map(disk: Disk, name: str, kind: int) -> tuple[FileHeader, dict[str, Any], int] | None:
    """The header, the map, and the map's position; None: no such file.

    Raises :class:`~shmq.FileError` and OSError.
    """
    path = str(disk.path(name))
    try:
        raw = read_whole(disk, name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return parse_map(raw, path, kind)


def parse_map(raw: bytes, path: str, kind: int) -> tuple[FileHeader, dict[str, Any], int]:
    """The header, the map, and the map's position in the bytes of the file ``path``.

    Raises :class:`~shmq.FileError`.
    """
    header, at = read_header(raw[:HEADER_BYTES], path, (kind,))
    return header, _unpack_map(raw, at, path), at


def _unpack_map(raw: bytes, at: int, path: str) -> dict[str, Any]:
    if len(raw) < at + _LENGTH.size:
        raise DamagedFile(path, len(raw), "the file is cut off")
    size, crc = _LENGTH.unpack_from(raw, at)
    packed = raw[at + _LENGTH.size :]
    if len(packed) != size or _core.crc32c(packed) != crc:
        raise DamagedFile(path, at, "the checksum is not that of the bytes")
    try:
        return dict(msgpack.unpackb(packed, strict_map_key=False))
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise DamagedFile(path, at, f"it cannot be read: {error}") from None
