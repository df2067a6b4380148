"""The console beside the job: its queues, in a browser, while they are used."""

from __future__ import annotations

import logging
import multiprocessing
import os
import re
import signal
from multiprocessing.connection import Connection
from typing import Final, Self

import shmq
from examples.flights.errors import DemoError
from examples.flights.queues import PATIENCE
from shmq.errors import InvalidOption, ShmqError
from shmq.supervision.signals import end_with_parent

__all__ = ["PORT", "ConsoleBeside"]

_SPAWN: Final = multiprocessing.get_context("spawn")

#: The port of a console, if it is free; another one if it is not.
PORT: Final = 9990
_HOST: Final = "127.0.0.1"


class ConsoleBeside:
    """``shmq console`` in a process of its own, which only shows. A context manager.

    It does not outlive the process that made it.
    """

    def __init__(self, namespace: str, port: int = PORT) -> None:
        """Start it on that port, or on a free one. Raises :class:`DemoError` if it does not listen.

        Raises :class:`~shmq.ShmqError` if a package that it needs is not installed.
        """
        from shmq.cli.console import check_extra  # noqa: PLC0415 - with a console alone

        check_extra()
        ours, its = _SPAWN.Pipe(duplex=False)
        self._process = _SPAWN.Process(
            target=_serve, args=(namespace, port, its, os.getpid()), name="console"
        )
        self._process.start()
        its.close()
        with ours:
            #: Where it listens: ``http://127.0.0.1:PORT``.
            self.url = self._heard(ours)

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return int(self.url.rpartition(":")[2])

    def _heard(self, ours: Connection) -> str:
        try:
            if ours.poll(PATIENCE):
                return str(ours.recv())
        except EOFError:
            self._process.join(PATIENCE)
            raise DemoError(f"the console ended with exit code {self._process.exitcode}") from None
        except BaseException:
            self.close()
            raise
        self.close()
        raise DemoError(f"the console did not listen within {PATIENCE:.0f} s")

    def kill(self) -> None:
        """Send SIGKILL to it."""
        self._process.kill()
        self._process.join()

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.join(PATIENCE)
        self.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _Address(logging.Handler):
    """Sends the address from the console's log to the process that waits for it."""

    def __init__(self, its: Connection) -> None:
        super().__init__(logging.INFO)
        self._its = its

    def emit(self, record: logging.LogRecord) -> None:
        """See :class:`logging.Handler`."""
        found = re.search(r"the console is at (\S+)/:", record.getMessage())
        if found:
            self._its.send(found[1])


def _serve(namespace: str, port: int, its: Connection, parent: int) -> None:
    """The body of the console's process."""
    from shmq.console.server.process import ConsoleProcess  # noqa: PLC0415 - in its process alone
    from shmq.console.settings import Address, ConsoleSettings  # noqa: PLC0415

    end_with_parent(parent, signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    log = logging.getLogger("shmq")
    log.propagate = False  # the screen shows what happens
    log.setLevel(logging.INFO)
    log.addHandler(_Address(its))
    try:
        with shmq.connect(namespace) as broker:
            try:
                ConsoleProcess(broker, ConsoleSettings(bind=Address(_HOST, port))).run()
            except InvalidOption:  # the port is taken
                ConsoleProcess(broker, ConsoleSettings(bind=Address(_HOST, 0))).run()
    except ShmqError as error:
        raise SystemExit(f"console: {error}") from None
