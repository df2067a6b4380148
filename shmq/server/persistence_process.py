"""The process of a server that recovers durable queues and writes their journals."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from shmq.disk.persistence.process import Persistence
from shmq.errors import ShmqError
from shmq.host.namespace.data_directory import other_directory, writer_directory
from shmq.host.namespace.namespace import Namespace
from shmq.host.namespace.roles import AlreadyWritten
from shmq.host.supervision.child_process import PipedChildProcess
from shmq.host.supervision.heartbeat import Heartbeat
from shmq.host.supervision.signals import end_with_parent, handle_sigterm
from shmq.host.supervision.stderr import show_on_stderr, show_stack_on_demand
from shmq.server.config.settings import Settings

log = logging.getLogger("shmq.server")

#: What the process tells its supervisor once the durable queues are recovered. Any other message
#: is why it cannot begin.
_RECOVERED: Final = ""

#: How often it checks whether another writer has ended, in seconds.
_LOOK: Final = 0.2

#: The longest pause before a process that keeps dying is started again, in seconds.
_LONGEST_PAUSE: Final = 2.0


def main(
    namespace: str,
    data_dir: Path | None,
    level: int,
    heartbeat: Heartbeat,
    pipe: Connection,
    supervisor: int,
) -> None:
    """Recover, report that, and write until SIGTERM, or until the ``supervisor`` ends.

    While another process writes the namespace's durable queues, it reports them as recovered
    and waits. A process that is stopped before it begins still writes what exists by then.
    """
    end_with_parent(supervisor, signal.SIGTERM)
    show_stack_on_demand()
    heartbeat.beat_from_a_thread()
    early: list[bool] = []
    handle_sigterm(lambda: early.append(True))
    show_on_stderr("shmq", level)
    try:
        persistence = _recover(namespace, data_dir, pipe, early)
    except ShmqError as error:
        pipe.send(str(error))
        raise SystemExit(1) from None
    if persistence is None:
        return
    handle_sigterm(persistence.stop)
    if early:
        persistence.stop()
    _say(pipe, _RECOVERED)
    try:
        persistence.run()
    except ShmqError as error:
        _say(pipe, str(error))
        raise SystemExit(1) from None


def _recover(
    namespace: str, data_dir: Path | None, pipe: Connection, early: list[bool]
) -> Persistence | None:
    """The writer, once no other process is the writer; None: stopped before. Raises ShmqError.

    A ``data_dir`` that differs from the other writer's directory is refused.
    """
    where = data_dir
    while True:
        persistence = Persistence(namespace, where)
        try:
            persistence.recover()
        except AlreadyWritten as other:
            where = other.directory
            if where is None or (data_dir is not None and data_dir.resolve() != where.resolve()):
                raise
            _say(pipe, _RECOVERED)
            if not _wait_for(namespace, other, early):
                return None
        else:
            return persistence


def _wait_for(namespace: str, other: AlreadyWritten, early: list[bool]) -> bool:
    """Wait until that process is not the writer any more; false: this one was stopped before."""
    who = f"process {other.pid}" if other.pid else "a process of another container"
    log.warning(
        "%s writes the durable queues of namespace %r, in %s: this server does not, and takes "
        "over once that process has ended",
        who,
        namespace,
        other.directory,
    )
    registry = Namespace.of(namespace)
    while not early and registry.roles.writer_pid == other.pid:
        time.sleep(_LOOK)
    if not early:
        log.info("%s has ended: this server writes the durable queues", who)
    return not early


def _say(pipe: Connection, what: str) -> None:
    """Tell the supervisor, if it is still alive."""
    with contextlib.suppress(OSError):
        pipe.send(what)


class PersistenceProcess(PipedChildProcess):
    """The persistence process as its supervisor sees it, with the pipe from it."""

    def __init__(self, settings: Callable[[], Settings], log: logging.Logger) -> None:
        first = settings()
        namespace = Namespace.of(first.namespace)
        directory = writer_directory(namespace, first.data_dir)
        #: Whether the queues have been recovered, or there is nothing to recover.
        self.recovered = other_directory(namespace, directory) is None and not directory.exists()
        #: Whether a process has started to write, or waits for another writer's end.
        self.begun = False
        #: Why the last process could not begin.
        self.refusal: str | None = None

        def arguments(pipe: Connection) -> tuple[Any, ...]:
            now = settings()
            return now.namespace, now.data_dir, now.level, self.heartbeat, pipe, os.getpid()

        super().__init__(
            "persistence",
            main,
            arguments,
            log,
            duplex=False,
            expected={0},
            longest_pause=_LONGEST_PAUSE,
        )

    def received(self, said: str) -> None:
        self.begun = self.begun or said == _RECOVERED
        self.recovered = self.recovered or self.begun
        self.refusal = said or None
