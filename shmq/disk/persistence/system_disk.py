"""The disk of a running writer."""

from __future__ import annotations

from collections.abc import Sequence

from shmq.disk.storage.disk import Disk
from shmq.native import _file


class SystemDisk(Disk):
    """A `Disk` whose commits are one call of the core, without the GIL."""

    def commit(self, file: int, pieces: Sequence[bytes | memoryview], offset: int) -> int:
        """See :meth:`shmq.disk.storage.disk.Disk.commit`."""
        return _file.write_synced(file, list(pieces), offset)
