"""What a persistence process does: recover, then write until it is stopped."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from shmq.disk.persistence.conflicts import join_memory
from shmq.disk.persistence.move import finish_move, move_files
from shmq.disk.persistence.recovery import recover
from shmq.disk.persistence.writer import Writer
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.inventory import is_written
from shmq.disk.storage.writer_control import Control, ask_to_end
from shmq.errors import ShmqError, WrongDirectory
from shmq.host.namespace.data_directory import (
    DataDirectory,
    is_named,
    other_directory,
    refuse_missing,
    writer_directory,
)
from shmq.host.namespace.directory_record import is_namespace_locked
from shmq.host.namespace.namespace import Namespace
from shmq.host.supervision.descriptors import raise_descriptor_limit
from shmq.native.lock_holder import until_locked

log = logging.getLogger("shmq")

#: How long the previous writer may need for its last snapshots, and how long locks that a stopped
#: process holds are waited for, in seconds.
ENDING: Final = 60.0
#: How often it checks whether that writer has ended, in seconds.
_LOOK: Final = 0.02


class Persistence:
    """Recovers the durable queues of a namespace, and writes them until `stop`.

    ``data_dir`` is the directory; a writer without ``idle`` moves the namespace's files there if
    they are in another one. None: the namespace's own, see
    :func:`~shmq.host.namespace.data_directory.directory_of`, which says what is raised. With
    ``idle`` it ends by itself once no other process has used anything durable for so many seconds,
    and gives way to a writer without ``idle``.
    """

    def __init__(
        self, namespace: str, data_dir: Path | None = None, idle: float | None = None
    ) -> None:
        self._registry = Namespace.of(namespace)
        disk = Disk(writer_directory(self._registry, data_dir))
        self.directory = DataDirectory(namespace, disk)
        self._idle = idle
        self._named = is_named(data_dir)
        self._control: Control | None = None
        self._starting = threading.Lock()
        self._writer = Writer(namespace, self.directory, idle=idle)

    def recover(self) -> None:
        """Recover the queues whose segments are gone; the result for each is logged.

        From here on no other process writes the namespace's queues, or to a directory that was
        named; no process sees this one as the writer before the recovery is complete. The
        default directory is created when there is something to write. Raises
        :class:`~shmq.ShmqError` if the directory cannot be used, or another process writes there,
        and :class:`~shmq.LockTimeout` if a lock is still held after `ENDING`.
        """
        self._repeat_until_locked(self._recover)

    def _repeat_until_locked(self, deed: Callable[[], None]) -> None:
        """Repeat ``deed`` while a stopped process has its locks, which is logged once."""
        until_locked(
            deed,
            time.monotonic() + ENDING,
            lambda error: log.warning("the writer waits for at most %g s: %s", ENDING, error),
        )

    def _recover(self) -> None:
        if self._idle is not None:  # the process that starts it excludes other writers
            self._start()
        else:
            with self._registry.roles.starting(ENDING):
                self._end_automatic_writer()
                self._start()

    def _end_automatic_writer(self) -> None:
        """Ask a writer that was started automatically to end, so that this one replaces it."""
        where = self._registry.roles.data_dir
        if where is not None and self._registry.roles.writer_pid is not None:
            with contextlib.suppress(ShmqError, OSError):
                ask_to_end(where, ENDING)
                log.info("the writer that was started automatically ends, this one follows")

    def _start(self) -> None:
        own = other_directory(self._registry, self.directory.path)
        if own is not None and self._idle is not None:
            raise WrongDirectory(self._registry.name, own, self.directory.path)
        end = time.monotonic() + ENDING
        while self._is_ending() and time.monotonic() < end:
            time.sleep(_LOOK)
        try:
            with self._registry.locked():
                self._take_directory()
            self.directory.when_taken(self._join)
            self.directory.when_taken(self._listen)
            if self.directory.held:
                self._listen()
        except BaseException as error:
            self.directory.close()
            if isinstance(error, OSError) and not isinstance(error, ShmqError):
                raise ShmqError(
                    f"data_dir={str(self.directory.path)!r} cannot be used: "
                    f"{error.strerror or error}"
                ) from error
            raise

    def _take_directory(self) -> None:
        """Claim the directory, move the namespace's files there if need be, and recover them."""
        path, disk = self.directory.path, self.directory.disk
        self._registry.roles.refuse_second_writer(path)
        refuse_missing(self._registry, path)
        own = self.directory.former = other_directory(self._registry, path)
        self.directory.claim(make=self._named)
        if own is not None:
            move_files(self._registry, own, disk)
            self.directory.former = None
        if self.directory.held:
            finish_move(disk)
            recover(self.directory)

    def _join(self) -> None:
        def join() -> None:
            with self._registry.locked():
                join_memory(self._registry, self.directory.disk)

        self._repeat_until_locked(join)  # what has called it is not repeated

    def _is_ending(self) -> bool:
        """Whether a writer that has given up the namespace still writes its last snapshots."""
        if self._registry.roles.writer_pid is not None:
            return False
        where = self._registry.roles.data_dir
        return is_namespace_locked(self._registry.name) or (where is not None and is_written(where))

    def _listen(self) -> None:
        with self._starting:
            if self._control is None:
                try:
                    self._control = Control(self.directory.path, self._writer)
                except OSError as error:
                    raise ShmqError(
                        f"data_dir={str(self.directory.path)!r} cannot have a socket for snapshots "
                        f"and backups: {error.strerror or error}"
                    ) from error
                log.info("durable queues are kept in %s", self.directory.path)

    def run(self, begun: Callable[[], None] | None = None) -> None:
        """Write until `stop` is called; the last snapshots are written before it returns.

        ``begun`` is called once the existing queues are being written. Raises the process's
        descriptor limit to what the system allows: each queue needs two or three.
        """
        raise_descriptor_limit()
        try:
            self._writer.run(begun)
        finally:
            if self._control is not None:
                self._control.close()
            self.directory.close()
            self._registry.retire()

    def stop(self) -> None:
        """Let `run` return when everything is written. For any thread, or a signal handler."""
        self._writer.stop()
