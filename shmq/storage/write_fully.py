"""Writes to a file, repeating partial writes until everything is written."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from typing import Final

from shmq.storage.disk import Disk

__all__ = ["write_pushed", "write_whole"]

#: Bytes that are copied before the disk is told to begin with them.
_PUSHED: Final = 1 << 19


def write_whole(disk: Disk, file: int, pieces: Sequence[bytes | memoryview], offset: int) -> int:
    """Write the pieces one after the other; returns where they end. Raises OSError."""
    left = [memoryview(piece).cast("B") for piece in pieces if len(piece)]
    while left:
        written = disk.write(file, left, offset)
        if written <= 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        offset += written
        while left and written >= len(left[0]):
            written -= len(left.pop(0))
        if written:
            left[0] = left[0][written:]
    return offset


def write_pushed(disk: Disk, file: int, pieces: Sequence[bytes | memoryview], offset: int) -> int:
    """Do the same for many bytes that are synced next: the disk begins while the rest is copied."""
    for lot in _lots(pieces):
        begin, offset = offset, write_whole(disk, file, lot, offset)
        if offset - begin == _PUSHED:  # not for the small rest: the sync follows at once
            with contextlib.suppress(OSError):  # only a hint: the sync reports errors
                disk.push(file, begin, offset - begin)
    return offset


def _lots(pieces: Sequence[bytes | memoryview]) -> Iterator[list[memoryview]]:
    """The pieces in lots of `_PUSHED` bytes; the last may be shorter."""
    lot: list[memoryview] = []
    size = 0
    for piece in pieces:
        left = memoryview(piece).cast("B")
        while len(left):
            part = left[: _PUSHED - size]
            left = left[len(part) :]
            lot.append(part)
            size += len(part)
            if size == _PUSHED:
                yield lot
                lot, size = [], 0
    if lot:
        yield lot
