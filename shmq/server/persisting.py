"""The process of a server that recovers durable queues, and writes them."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from shmq.errors import ShmqError
from shmq.persistence.directory import chosen_directory
from shmq.persistence.process import Persistence
from shmq.processes.lines import show_on_stderr
from shmq.processes.post import PipedPost
from shmq.processes.pulse import Pulse, show_stack_on_demand
from shmq.processes.signals import leave_to_the_supervisor
from shmq.processes.tether import tether
from shmq.server.settings import Settings

__all__ = ["PersistencePost", "main"]

#: What the process tells its supervisor; anything else is why it cannot begin.
_RECOVERED: Final = ""

#: The longest pause before one that dies again and again is started anew, in seconds.
_LONGEST_PAUSE: Final = 2.0


def main(
    namespace: str,
    data_dir: Path | None,
    level: int,
    pulse: Pulse,
    pipe: Connection,
    supervisor: int,
) -> None:
    """Recover, say so, and write until SIGTERM, or the end of the ``supervisor``.

    One that is to end before it has begun still writes what there is by then.
    """
    tether(supervisor, signal.SIGTERM)
    show_stack_on_demand()
    pulse.beat_from_a_thread()
    early: list[bool] = []
    leave_to_the_supervisor(lambda: early.append(True))
    show_on_stderr("shmq", level)
    try:
        persistence = Persistence(namespace, data_dir)
        persistence.recover()
    except ShmqError as error:
        pipe.send(str(error))
        raise SystemExit(1) from None
    leave_to_the_supervisor(persistence.stop)
    if early:
        persistence.stop()
    with contextlib.suppress(OSError):  # a supervisor that was killed hears nothing
        pipe.send(_RECOVERED)
    try:
        persistence.run()
    except ShmqError as error:
        with contextlib.suppress(OSError):
            pipe.send(str(error))
        raise SystemExit(1) from None


class PersistencePost(PipedPost):
    """The place of that process, with the pipe from it."""

    def __init__(self, settings: Callable[[], Settings], log: logging.Logger) -> None:
        first = settings()
        directory = chosen_directory(first.namespace, first.data_dir)
        #: Whether the queues have been recovered, or there is nothing to recover.
        self.recovered = not directory.exists()
        #: Whether a process has begun to write: nobody else does.
        self.begun = False
        #: Why the last process could not begin.
        self.refusal: str | None = None

        def arguments(pipe: Connection) -> tuple[Any, ...]:
            now = settings()
            return now.namespace, now.data_dir, now.level, self.pulse, pipe, os.getpid()

        super().__init__(
            "persistence",
            main,
            arguments,
            log,
            duplex=False,
            expected={0},
            longest_pause=_LONGEST_PAUSE,
        )

    def heard(self, said: str) -> None:
        """See :class:`PipedPost`."""
        self.begun = self.begun or said == _RECOVERED
        self.recovered = self.recovered or self.begun
        self.refusal = said or None
