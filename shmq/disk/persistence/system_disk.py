"""The disk of a running writer."""

from __future__ import annotations

from collections.abc import Sequence

from shmq.native import _file
from shmq.storage.disk import Disk


class SystemDisk(Disk):
    """A `Disk` whose commits are one call of the core, without the GIL."""

    def commit(self, file: int, pieces: Sequence[bytes | memoryview], offset: int) -> int:
        """See :meth:`shmq.storage.disk.Disk.commit`."""
        return _file.write_synced(file, list(pieces), offset)
