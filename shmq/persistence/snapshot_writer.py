"""A queue that is kept on disk: what all levels of durability share, which is a snapshot."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time

from shmq.client.local.queue import LocalQueue
from shmq.errors import QueueDeleted
from shmq.native import _core
from shmq.persistence.snapshot import Snapshot
from shmq.storage import queue_erase
from shmq.storage.disk import Disk
from shmq.storage.file_header import HEADER_BYTES, read_header
from shmq.storage.limits import Limits
from shmq.storage.paths import aside_names, catalog, snapshot_name, unfinished
from shmq.storage.queue_identity import Identity

__all__ = ["SnapshotWriter"]

log = logging.getLogger("shmq")


class SnapshotWriter:
    """One queue with durability "snapshot". Any thread may call any of it.

    It owns the handle. Nothing runs by itself: `snapshot` writes one.
    """

    def __init__(self, disk: Disk, handle: LocalQueue, sizes: Limits) -> None:
        self.disk = disk
        self.handle = handle
        self.sizes = sizes
        self.name = handle.name
        self.identity = Identity.of(handle.segment, handle.name)
        self.interval = handle.options.snapshot_interval
        #: When the last snapshot was begun, on the monotonic clock.
        self.snapshot_at = time.monotonic()
        #: The first segment that the snapshot needs on top of it; 0: there is no snapshot.
        self.number = 0
        #: Why it could not be written last; None: it could.
        self.error: OSError | None = None
        # One snapshot at a time; taken before `_lock`.
        self._writing = threading.Lock()
        #: Whether it was detached: nothing is written any more.
        self.closed = False
        self._lock = threading.RLock()
        self._settle_in()

    @property
    def deleted(self) -> bool:
        """Whether the queue is no more."""
        return self.handle.segment.deleted

    @property
    def due(self) -> bool:
        """Whether a snapshot is to be written now."""
        return time.monotonic() >= self.snapshot_at + self.interval

    def snapshot(self) -> None:
        """Write a snapshot, and put it in the place of the last.

        Raises OSError, and QueueDeleted.
        """
        with self._writing:
            if self.closed:
                raise QueueDeleted(f"queue {self.name!r} is no more")
            self.snapshot_at = time.monotonic()
            snapshot, scan = self._begin()
            try:
                snapshot.write(scan, self.sizes.chunk)
                self._replace(snapshot)
            except BaseException:
                self.snapshot_at = -math.inf  # it stays due
                with contextlib.suppress(OSError):
                    snapshot.discard()
                raise
            scan.snapshot_taken(snapshot.bytes)

    def close(self) -> None:
        """Detach. The files of a queue that is no more are removed. Raises OSError."""
        with self._writing, self._lock:
            gone, self.closed = self.deleted, True
            self.handle.close()
            if gone:
                queue_erase.erase(self.disk, self.name, self.identity.hash_key)

    def held(self) -> contextlib.AbstractContextManager[object]:
        """Nothing is published and no snapshot replaced while this is held."""
        return self._lock

    def parts(self) -> list[tuple[str, int]]:
        """The files that hold the queue now, each with how many bytes; while it is `held`."""
        if not self.number:
            return []
        file = self.disk.open(snapshot_name(self.name))
        try:
            return [(snapshot_name(self.name), self.disk.size(file))]
        finally:
            self.disk.close(file)

    def _begin(self) -> tuple[Snapshot, _core.Scan]:
        """A snapshot to be written, and what reads the queue for it."""
        return Snapshot(self.disk, self.identity, 1), _core.Scan(self.handle)

    def _replace(self, snapshot: Snapshot) -> None:
        with self._lock:
            snapshot.install()
            self.number = snapshot.number
        self.disk.sync_directory()

    def _settle_in(self) -> None:
        """Set files of another life of the name aside, and what is not whole."""
        self.disk.sync_directory()  # a writer that died may not have
        files = catalog(self.disk.names()).get(self.name)
        keys = {
            name: queue_erase.hash_key_of(self.disk, name)
            for name in (files.names() if files else ())
        }
        own = {None, self.identity.hash_key}
        strangers = {name: key for name, key in keys.items() if key not in own}
        for name, there in aside_names(strangers, self.disk.names()).items():
            self.disk.rename(name, there)
        if strangers:
            self.disk.sync_directory()
            log.warning(
                "queue %s: %s belonged to another queue of that name, and have been renamed "
                "to FILE.%s in %s",
                self.name,
                ", ".join(strangers),
                "ID",
                self.disk.directory,
            )
        with contextlib.suppress(FileNotFoundError):
            self.disk.unlink(unfinished(self.name))
        if files is not None and files.snapshot and snapshot_name(self.name) not in strangers:
            self.number = self._number_of(snapshot_name(self.name))

    def _number_of(self, name: str) -> int:
        file = self.disk.open(name)
        try:
            raw = self.disk.read(file, HEADER_BYTES, 0)
        finally:
            self.disk.close(file)
        return read_header(raw, str(self.disk.path(name)))[0].number
