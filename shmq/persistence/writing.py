"""Writing to a file until all of it is written."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from shmq.persistence.disk import Disk

__all__ = ["write_whole"]


def write_whole(disk: Disk, file: int, pieces: Sequence[bytes | memoryview], offset: int) -> int:
    """Write the pieces one behind the other; returns where they end. Raises OSError."""
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
