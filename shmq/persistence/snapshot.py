"""A snapshot of one queue: a temporary file that is written, synced, then replaces the last one.

No lock is held while it is written: the queue goes on, and each message is copied as it is found.
So the snapshot alone shows no single moment. With the segments from its number on it does: they
have all changes since the journal rolled.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from shmq.native import _core
from shmq.storage.disk import Disk, write_whole
from shmq.storage.file_header import SNAPSHOT, QueueIdentity, Trailer
from shmq.storage.paths import snapshot_name, unfinished

__all__ = ["Snapshot"]


class Snapshot:
    """One snapshot of a queue: `write` it, then `install` it; or `discard` it.

    ``number`` is the first segment to be replayed on top of it.
    """

    def __init__(self, disk: Disk, identity: QueueIdentity, number: int) -> None:
        self.number = number
        #: Its length, once written.
        self.bytes = 0
        self._disk = disk
        self._identity = identity

    def write(self, scan: _core.Scan, chunk: int) -> None:
        """Copy the queue to the temporary file, and sync it.

        ``chunk`` is how many bytes are copied at a time. Raises OSError.
        """
        self.discard()
        file = self._disk.create(unfinished(self._identity.name))
        try:
            for piece in self._pieces(scan, chunk):
                start, self.bytes = self.bytes, write_whole(self._disk, file, [piece], self.bytes)
                self._disk.push(file, start, self.bytes - start)
            self._disk.sync(file)
        finally:
            self._disk.close(file)

    def install(self) -> None:
        """Rename it to the snapshot. The caller syncs the directory before it removes anything."""
        self._disk.rename(unfinished(self._identity.name), snapshot_name(self._identity.name))

    def discard(self) -> None:
        """Remove the temporary file."""
        with contextlib.suppress(FileNotFoundError):
            self._disk.unlink(unfinished(self._identity.name))

    def _pieces(self, scan: _core.Scan, chunk: int) -> Iterator[bytes | memoryview]:
        header = self._identity.header(SNAPSHOT, self.number, first_batch=1)
        trailer = Trailer()
        yield header.pack()
        batch, before = 1, 0
        while (piece := scan.read(chunk, header.salt, batch)) is not None:
            trailer.note(self.bytes, batch, scan.limit, scan.count - before)
            yield piece
            batch, before = batch + 1, scan.count
            piece.release()
        yield trailer.pack(self.bytes, header.salt)
