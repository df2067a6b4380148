"""The whole of what a persistence process does: recover, then write until it is to end."""

from __future__ import annotations

import logging
import resource
import threading
from collections.abc import Callable
from pathlib import Path

from shmq.errors import ShmqError
from shmq.persistence.control import Control
from shmq.persistence.directory import DataDirectory, chosen_directory, is_named
from shmq.persistence.disk import Disk
from shmq.persistence.recovery import recover
from shmq.persistence.writer import Writer

__all__ = ["Persistence"]

log = logging.getLogger("shmq")


class Persistence:
    """Recovers the durable queues of a namespace, and writes them until `stop`.

    ``data_dir`` is where; None: see :func:`~shmq.persistence.directory.chosen_directory`,
    which says what is raised.
    """

    def __init__(self, namespace: str, data_dir: Path | None = None) -> None:
        disk = Disk(chosen_directory(namespace, data_dir))
        self.directory = DataDirectory(namespace, disk)
        self._named = is_named(data_dir)
        self._control: Control | None = None
        self._starting = threading.Lock()
        self._writer = Writer(namespace, self.directory)

    def recover(self) -> None:
        """Bring back the queues whose segments are gone; what becomes of each is logged.

        From here on no other process writes the namespace's queues, or in a directory that
        was named. The usual place is made when there is something to keep. Raises
        :class:`~shmq.ShmqError` if the directory cannot be used, or another process
        writes there.
        """
        self.directory.claim(make=self._named)
        if self.directory.held:
            recover(self.directory)
        self.directory.when_taken(self._listen)
        if self.directory.held:
            self._listen()

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
        """Write until `stop` is called; the last snapshots are made before it returns.

        ``begun`` is called once the queues that were there before are kept. The process may
        have as many descriptors open as the system allows it: it needs two or three for each
        queue.
        """
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        try:
            self._writer.run(begun)
        finally:
            if self._control is not None:
                self._control.close()
            self.directory.close()

    def stop(self) -> None:
        """Let `run` return when all is written. For any thread, or a signal handler."""
        self._writer.stop()
