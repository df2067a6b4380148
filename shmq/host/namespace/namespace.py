"""The namespace: the registry of its queues and streams, and its two other parts.

Everything is in /dev/shm, owned by the user and closed to others. What users of a group share is
in a folder there: see `shmq.host.namespace.folder`. The files:

``shmq@NAMESPACE``
    the namespace's file: see `shmq.host.namespace.processes` and `shmq.host.namespace.roles`
``shmq@NAMESPACE@QUEUE``
    a queue's segment, of the kind that multiprocessing.shared_memory creates.
``sem.shmq@NAMESPACE@ID.not_empty``, ``….not_full``
    its semaphores.
``bell.shmq@NAMESPACE@PROCESS.N``
    the wakeups of its processes, see `shmq.host.namespace.wakeups`.
``names.shmq@NAMESPACE``
    the names of its queues, streams and groups, see `shmq.host.namespace.name_book`.
``schemas.shmq@NAMESPACE``
    the schemas of its queues and streams, see `shmq.model.schema.book`.
``stream.shmq@NAMESPACE@STREAM``, ``log.shmq@NAMESPACE@STREAM@PARTITION``
    a stream's segments: see `shmq.host.namespace.streams`.
``exchanges.shmq@NAMESPACE``
    the exchanges and their bindings, see `shmq.model.routing.book`.
``exchanges.shmq@NAMESPACE@counts``
    what was published to them, see `shmq.model.routing.counters`.
``tables.shmq@NAMESPACE``
    the directory of the tables, see `shmq.model.table.files`.

The lock order is registry first, queue second, never reversed.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from shmq.api.names import check_name, chosen_namespace
from shmq.api.options import QueueOptions
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.erase import erase_queue
from shmq.disk.storage.inventory import is_written
from shmq.errors import ForeignSegment, LockTimeout, NoSuchQueue, SegmentError, ShmqError
from shmq.host.namespace.folder import file_path, folder_of, ready_folder
from shmq.host.namespace.name_book import NameBook
from shmq.host.namespace.processes import Processes
from shmq.host.namespace.roles import Roles
from shmq.host.namespace.semaphores import make_semaphores, remove_semaphores
from shmq.host.namespace.shm_files import (
    as_foreign,
    as_no_file,
    as_no_space,
    new_identity,
    refuse_foreign,
)
from shmq.host.namespace.wakeups import sweep_wakeups
from shmq.native import _core
from shmq.native.descriptors import open_file

_known: Final[dict[str, Namespace]] = {}


class Namespace:
    """The registry of one namespace: its names, and the segments of its queues.

    Invariants: names and segments change only under the registry lock. A name is logged before its
    file is created, and its removal after the file is gone; the files are the truth. A segment
    without its last store, which publishes it, was left by a process that died, and is removed.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        #: The folder of its files.
        self.folder = folder_of(name)
        #: The beginnings of the paths of queues' and streams' segments.
        self._queues = f"{file_path(name, '')}@"
        self._streams = f"{file_path(name, 'stream.')}@"
        #: The file of the namespace's schemas, which exists if there are any.
        self.schemas_path = file_path(name, "schemas.")
        #: The file of the namespace's exchanges, which exists if there are any.
        self.exchanges_path = file_path(name, "exchanges.")
        #: The directory of the tables in memory, which exists if there are any.
        self.tables_path = file_path(name, "tables.")
        self._names = NameBook(name, refuse_foreign)
        self.processes = Processes(name, self.is_empty, self.forget_names)
        self.roles = Roles(self.processes)
        #: Holds the registry lock.
        self.locked = self.processes.locked

    @classmethod
    def of(cls, name: str) -> Namespace:
        """The namespace ``name``. Raises :class:`~shmq.InvalidName`.

        For one of a group the folder is made if need be, and checked once. Raises
        :class:`~shmq.ForeignSegment` for a user who is not in the group, and
        :class:`~shmq.InvalidOption` for an unknown group.

        There is one object for each in a process, because closing any descriptor of a
        file releases all the record locks that the process has on it.
        """
        check_name(name, "namespace")
        if name not in _known:
            ready_folder(name)
        # Atomic, without a lock: a destructor may call this while its thread does anything.
        return _known.get(name) or _known.setdefault(name, cls(name))

    @classmethod
    def chosen(cls, name: str | None) -> Namespace:
        """The namespace of that complete name; None: the one of the environment. Raises as `of`."""
        return cls.of(chosen_namespace(None) if name is None else name)

    def after_fork(self) -> None:
        """Reset the child of a fork, which has the descriptors, but neither locks nor a number."""
        self._names.release()
        self.processes.after_fork()

    # ---- names ----

    def note(self, path: str | os.PathLike[str], there: bool) -> None:
        """Log that the file is about to be created, or was removed. Needs the registry lock.

        A queue, stream or group that is not logged is missing from lists of names until the
        directory is listed. Raises NoSpace, ForeignSegment.
        """
        try:
            self._names.note(os.fspath(path).rpartition("/")[2], there)
        except OSError as error:
            refusal = as_no_space(error, 4096)
            if refusal is error:
                refusal = as_foreign(error, self._names.path)
            raise refusal from error

    def names_of(self, kind: str, begin: str = "") -> list[str]:
        """The names of one kind of `name_book.KINDS` with that beginning, sorted.

        Some may be half created, half removed, or just removed by hand.
        """
        with self.processes.section():
            return self._names.names(kind, self.processes.is_busy, begin)

    def has_names(self) -> bool:
        """Whether there is a queue or a stream."""
        with self.processes.section():
            return self._names.has_any(("shmq", "stream.shmq"), self.processes.is_busy)

    def is_empty(self) -> bool:
        """Whether there is neither a queue nor a stream nor an exchange nor a table in memory."""
        return not (self.has_names() or self.exchanges_path.exists() or self.tables_path.exists())

    def forget_names(self) -> bool:
        """Remove the book of names if the namespace is empty; return whether it is.

        Needs the registry lock.
        """
        if not self.is_empty():
            return False
        self._names.remove()
        return True

    def retire(self) -> None:
        """Remove the namespace's file if the namespace is empty, and no process uses it.

        A file of another user is left alone, and so is one that cannot be locked, or cannot be
        opened for lack of a descriptor.
        """
        processes = self.processes
        with processes.section(), contextlib.suppress(ForeignSegment, LockTimeout, OSError):
            if not self.roles.is_writer and processes.path.exists() and self.is_empty():
                with self.locked():
                    # Without the file it is not known any more which processes are dead.
                    sweep_wakeups(self.name, processes.is_alive)
                    processes.remove_if_unused()
            processes.close_if_removed()

    # ---- segments ----

    def path_of(self, queue: str) -> str:
        """The path of the queue's segment."""
        return self._queues + queue

    def stream_path(self, stream: str) -> str:
        """The path of the stream's control segment."""
        return self._streams + stream

    def has(self, kind: str, name: str) -> bool:
        """Whether there is a ``queue`` or a ``stream`` of that name, in whatever state."""
        return os.path.lexists(self.stream_path(name) if kind == "stream" else self.path_of(name))

    def queue_names(self, begin: str = "") -> list[str]:
        """The names of the queues with that beginning, sorted; see `names_of`."""
        return self.names_of("shmq", begin)

    def noted_queues(self, begin: str) -> list[str]:
        """The names of queues with that beginning, sorted; some may have lost their files."""
        with self.processes.section():
            return self._names.noted("shmq", begin)

    def stream_names(self) -> list[str]:
        """The names of the streams, sorted; see `names_of`."""
        return self.names_of("stream.shmq")

    def open_segment(self, queue: str) -> _core.Segment:
        """The queue's segment, mapped. Raises NoSuchQueue, SegmentError.

        Removes what a process that died while creating or deleting the queue has left.
        """
        segment = self.look_at(queue)
        if segment is not None and not segment.deleted:
            return segment
        with self.locked():
            segment = self.look_at(queue)
            if segment is not None and not segment.deleted:
                return segment
            if segment is not None:
                self.erase(queue, segment)
            self._clear(queue)
        raise NoSuchQueue.of(queue, f"in namespace {self.name!r}")

    def queue_id_of(self, queue: str) -> int:
        """The id of the queue, finished or not; 0 if there is none. Raises SegmentError."""
        path = self.path_of(queue)
        try:
            fd = open_file(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise as_foreign(error, path) from error
        try:
            refuse_foreign(fd, path)
            return _core.unfinished_id(fd)
        finally:
            os.close(fd)

    def find(self, hash_key: int) -> str | None:
        """The name of the queue with that hash key, which survives recovery."""
        for name in self.queue_names():
            with contextlib.suppress(SegmentError, NoSuchQueue):
                if self.open_segment(name).hash_key == hash_key:
                    return name
        return None

    def make_segment(
        self,
        queue: str,
        options: QueueOptions,
        *,
        hash_key: int | None = None,
        publish: bool = True,
    ) -> _core.Segment:
        """Create the segment and the semaphores of a new queue. Needs the registry lock.

        Without ``publish`` no process can attach until :meth:`Segment.publish`. A queue that is
        recovered keeps its ``hash_key``.

        The segment is marked as published by its last store, which distinguishes it from one
        whose creator died. It has its id from the start, so its semaphores can be found.
        """
        # Without a number nothing that is made could be removed: see mark_deleted.
        self.processes.own_number()
        queue_id = new_identity()
        path = self.path_of(queue)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        self.note(path, there=True)
        try:
            try:
                fd = open_file(path, flags)
            except FileExistsError:  # the process that created it has died
                self._clear(queue)
                self.note(path, there=True)
                fd = open_file(path, flags)
        except OSError as error:
            self.note(path, os.path.lexists(path))
            raise as_no_file(error, path) from error
        _core.mark()
        try:
            os.pwrite(fd, queue_id.to_bytes(8, "little"), 8)
            _core.mark()
            make_semaphores(self.name, queue_id)
            _core.mark()
            return _core.Segment.create(
                os.dup(fd),
                queue,
                self.processes.own,
                queue_id,
                options.as_dict(),
                hash_key,
                publish,
            )
        except BaseException as error:
            refusal = as_no_space(error, 4096) if isinstance(error, OSError) else error
            self._clear(queue)
            if refusal is error:
                raise
            raise refusal from error
        finally:
            os.close(fd)

    def remove_segment(self, queue: str, queue_id: int | None = None) -> None:
        """Remove the segment and the semaphores, whatever their state.

        ``queue_id`` None: it is read from the segment's file.
        """
        with self.locked():
            self._clear(queue, queue_id)

    def erase(self, queue: str, segment: _core.Segment | None) -> None:
        """Remove the files of a deleted queue, durably; segment None: it cannot be read.

        Needs the registry lock. The note of the removal stays if there is a writer. Raises
        ShmqError on failure; then the caller must not remove the segment.
        """
        if segment is not None and segment.options["durability"] == "memory":
            return
        directory = self.roles.data_dir
        if directory is None:
            return
        try:
            erase_queue(
                Disk(directory),
                queue,
                None if segment is None else segment.hash_key,
                last=not is_written(directory),
            )
        except OSError as error:
            raise ShmqError(
                f"queue {queue!r} is deleted, but not its files in {directory}: "
                f"{error.strerror or error}; delete it again once they can be removed"
            ) from error

    def look_at(self, queue: str) -> _core.Segment | None:
        """The mapped segment, or None if it is not finished. Removes nothing.

        Raises NoSuchQueue, SegmentError.
        """
        path = self.path_of(queue)
        try:
            fd = open_file(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise NoSuchQueue.of(queue, f"in namespace {self.name!r}") from None
        except OSError as error:
            raise as_foreign(error, path) from error
        try:
            refuse_foreign(fd, path)
        except SegmentError:
            os.close(fd)
            raise
        return _core.Segment.attach(fd, queue, self.processes.own)

    def _clear(self, queue: str, queue_id: int | None = None) -> None:
        """Remove the files of a queue; the segment last, so that this can be resumed."""
        path = self.path_of(queue)
        if queue_id is None:
            queue_id = self.queue_id_of(queue)
        if queue_id:
            remove_semaphores(self.name, queue_id)
            _core.mark()
        Path(path).unlink(missing_ok=True)
        _core.mark()
        self.note(path, there=False)

    def drop_stored(self, file: str) -> bool:
        """Remove that file of definitions from the disk; return whether it is gone.

        If there is a writer, only the writer removes it. Needs the registry lock, so that no
        writer starts in the meantime.
        """
        directory = self.roles.data_dir
        if directory is None or not (directory / file).exists():
            return True
        if is_written(directory):
            return False
        try:
            disk = Disk(directory)
            disk.unlink(file)
            disk.sync_directory()
        except OSError:
            return False
        return True


def _reset_after_fork() -> None:
    for namespace in _known.values():
        namespace.after_fork()


os.register_at_fork(after_in_child=_reset_after_fork)
