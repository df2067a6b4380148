"""A disk whose commits go through its other methods, so that each can be recorded or fail."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from shmq.disk.storage.disk import Disk, write_whole


class StepwiseDisk(Disk):
    """A `Disk` that writes and syncs a commit by two calls."""

    def commit(self, file: int, pieces: Sequence[bytes | memoryview], offset: int) -> int:
        end = write_whole(self, file, pieces, offset)
        self.sync(file)
        if not os.fstat(file).st_nlink:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return end
