"""The part of the writer that finds the durable streams, and starts and ends their writers."""

from __future__ import annotations

import contextlib
import errno
import functools
import logging

from shmq.client.local.stream import LocalStream, attach
from shmq.disk.persistence.discovery import Discovery
from shmq.disk.persistence.segment_writer import WriteSizes
from shmq.disk.persistence.stream_partition_writer import StreamPartitionWriters
from shmq.disk.persistence.stream_recovery import groups_of
from shmq.disk.persistence.transactions import NO_TRANSACTIONS, Notes
from shmq.disk.storage.file_header import StreamIdentity
from shmq.errors import LockTimeout, NoSuchStream, ShmqError, StreamDeleted
from shmq.host.namespace import streams
from shmq.host.namespace.data_directory import DataDirectory
from shmq.host.namespace.namespace import Namespace

log = logging.getLogger("shmq")


class StreamWriter:
    """Writes the durable streams of a namespace. For one thread; it has threads of its own."""

    def __init__(
        self,
        namespace: Namespace,
        directory: DataDirectory,
        sizes: WriteSizes,
        transactions: Notes = NO_TRANSACTIONS,
    ) -> None:
        self._namespace = namespace
        self._transactions = transactions
        self._directory = directory
        self._sizes = sizes
        self._kept: dict[str, StreamPartitionWriters] = {}
        self.discovery = Discovery("stream", namespace.stream_names, namespace.stream_path)

    def names(self) -> list[str]:
        """The streams that are written, sorted."""
        return sorted(self._kept)

    def kept(self, name: str) -> StreamPartitionWriters | None:
        """The stream's writers, if it is written. For any thread."""
        return self._kept.get(name)

    def look_around(self) -> None:
        """Begin to write new streams, and leave deleted ones."""
        self.leave_deleted()
        self.discovery.attach_new(self._attach)

    def has_new(self) -> bool:
        """Whether there is a stream that was not looked at yet. Needs the registry lock."""
        for name in self.discovery.find_untried():
            with contextlib.suppress(ShmqError, OSError):
                control = streams.look_at(self._namespace, name)
                if control is not None and not control.deleted:
                    return True
        return False

    def leave_deleted(self) -> None:
        """Detach from deleted streams, and remove their files."""
        for name, kept in list(self._kept.items()):
            if kept.deleted:
                self._detach(name)

    def grow(self) -> None:
        """Begin to write partitions that were added to streams."""
        for kept in self._kept.values():
            known = len(kept.handle.logs)
            kept.grow()
            self._note_writer(kept, known)

    def note_groups(self) -> None:
        """Write the groups' offsets to each stream's metadata file."""
        for kept in self._kept.values():
            try:
                kept.tell_transactions()
                kept.note_groups()
            except StreamDeleted:
                continue  # it is left in the next round
            except (ShmqError, OSError) as error:
                log.error("stream %s: its metadata file cannot be written: %s", kept.name, error)

    def end(self) -> None:
        """Write the rest, and detach from all streams."""
        for kept in self._kept.values():
            kept.stop()
        for name in list(self._kept):
            self._detach(name)

    def _attach(self, name: str) -> None:
        control = streams.look_at(self._namespace, name)
        if control is None or control.deleted:
            raise NoSuchStream(name)
        if control.options["durability"] != "memory":
            self._start_writing(name)

    def _start_writing(self, name: str) -> None:
        if name in self._kept:  # it was deleted and created again
            self._detach(name)
        stream = attach(self._namespace, name)
        try:
            self._directory.ready()
            groups = functools.partial(groups_of, self._namespace, stream.identity)
            kept = StreamPartitionWriters(
                self._directory.disk,
                stream,
                _read_identity(stream),
                self._sizes,
                groups,
                self._transactions,
                self._namespace.locked,
            )
        except BaseException as error:
            if isinstance(error, (ShmqError, OSError)):
                _publish_error(stream, error)
            stream.close()
            raise
        self._note_writer(kept, 0)
        self._kept[name] = kept
        kept.start()
        log.info("stream %s is kept in %s", name, self._directory.path)

    def _note_writer(self, kept: StreamPartitionWriters, known: int) -> None:
        """Note this process as the writer in all partitions from number ``known`` on."""
        for partition in kept.handle.logs[known:]:
            partition.writer = self._namespace.processes.own_number()

    def _detach(self, name: str) -> None:
        kept = self._kept.pop(name)
        try:
            kept.close()
        except (ShmqError, OSError) as error:
            log.error("stream %s: its files cannot be completed or removed: %s", name, error)


def _publish_error(stream: LocalStream, error: ShmqError | OSError) -> None:
    """Publish the error to all partitions, for the callers that wait for the disk.

    They go on waiting while a stopped process holds a lock.
    """
    if isinstance(error, LockTimeout):
        return
    for partition in stream.logs:
        partition.fail(getattr(error, "errno", None) or errno.EIO)


def _read_identity(stream: LocalStream) -> StreamIdentity:
    control = stream.control
    return StreamIdentity(stream.name, control.stream_id, control.identity, control.options)
