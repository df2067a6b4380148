"""The writer of one durable queue's snapshots, which all levels of durability share."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time

from shmq.client.local.queue import LocalQueue
from shmq.errors import QueueDeleted
from shmq.native import _core
from shmq.persistence.journal import WriteSizes
from shmq.persistence.snapshot import Snapshot
from shmq.storage.disk import Disk
from shmq.storage.erase import erase_queue
from shmq.storage.file_header import HEADER_BYTES, QueueIdentity, hash_key_of, read_header
from shmq.storage.paths import aside_names, catalog, snapshot_name, unfinished

__all__ = ["SnapshotWriter"]

log = logging.getLogger("shmq")


class SnapshotWriter:
    """Writes one queue with durability "snapshot". Any thread may call any method.

    It owns the handle. Nothing runs by itself: `snapshot` writes one.
    """

    def __init__(self, disk: Disk, handle: LocalQueue, sizes: WriteSizes) -> None:
        self.disk = disk
        self.handle = handle
        self.sizes = sizes
        self.name = handle.name
        self.identity = QueueIdentity.of(handle.segment, handle.name)
        self.interval = handle.options.snapshot_interval
        #: When the last snapshot was begun, on the monotonic clock.
        self.snapshot_at = time.monotonic()
        #: The first segment to replay on top of the snapshot; 0: there is no snapshot.
        self.number = 0
        #: Why the last write failed; None: it succeeded.
        self.error: OSError | None = None
        # One snapshot at a time; taken before `_lock`.
        self._writing = threading.Lock()
        #: Whether it is detached: nothing is written any more.
        self.closed = False
        self._lock = threading.RLock()
        self._settle_in()

    @property
    def deleted(self) -> bool:
        """Whether the queue was deleted."""
        return self.handle.segment.deleted

    @property
    def due(self) -> bool:
        """Whether a snapshot has to be written now."""
        return time.monotonic() >= self.snapshot_at + self.interval

    def snapshot(self) -> None:
        """Write a snapshot that replaces the last one. Raises OSError and QueueDeleted."""
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
        """Detach, and remove the files of a deleted queue. Raises OSError."""
        with self._writing, self._lock:
            gone, self.closed = self.deleted, True
            self.handle.close()
            if gone:
                erase_queue(self.disk, self.name, self.identity.hash_key)

    def held(self) -> contextlib.AbstractContextManager[object]:
        """A lock: while it is held, nothing is published and no snapshot is replaced."""
        return self._lock

    def parts(self) -> list[tuple[str, int]]:
        """The files that hold the queue now, each with its bytes. Needs the lock `held`."""
        if not self.number:
            return []
        file = self.disk.open(snapshot_name(self.name))
        try:
            return [(snapshot_name(self.name), self.disk.size(file))]
        finally:
            self.disk.close(file)

    def _begin(self) -> tuple[Snapshot, _core.Scan]:
        """A new snapshot, and the scan of the queue for it."""
        return Snapshot(self.disk, self.identity, 1), _core.Scan(self.handle)

    def _replace(self, snapshot: Snapshot) -> None:
        with self._lock:
            snapshot.install()
            self.number = snapshot.number
        self.disk.sync_directory()

    def _settle_in(self) -> None:
        """Set aside files of an earlier queue of that name, and remove an unfinished snapshot."""
        self.disk.sync_directory()  # the previous writer may have died before its own sync
        files = catalog(self.disk.names()).get(self.name)
        keys = {name: hash_key_of(self.disk, name) for name in (files.names() if files else ())}
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
