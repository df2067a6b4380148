"""The server of the job's queues, for consumers over TCP."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import re
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, Self

import psutil

from examples.flights.errors import DemoError
from examples.flights.queues import PATIENCE
from examples.flights.workers import interrupts_blocked
from shmq.errors import ShmqError
from shmq.host.supervision.signals import end_with_parent
from shmq.server.config.settings import Source
from shmq.server.supervisor import Supervisor

_SPAWN: Final = multiprocessing.get_context("spawn")

#: The number of front ends: if one is killed, another serves.
_FRONT_ENDS: Final = 2
#: How often a wait for the server checks that it lives, in seconds.
_LOOK: Final = 0.1


class Server:
    """A server on a free port of the loopback interface, in its own processes.

    It reports that it listens as to a service manager: sd_notify(3). A context manager; the
    server does not outlive the process that made it.
    """

    def __init__(self, namespace: str, data_dir: Path | None = None) -> None:
        """Start it. Raises :class:`DemoError` if it does not begin to listen.

        With a ``data_dir`` it keeps durable queues there, and recovers them from there.
        """
        with tempfile.TemporaryDirectory(prefix="shmq-demo-") as folder:
            told = str(Path(folder, "notify"))
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
                ear.bind(told)
                self._process = _SPAWN.Process(
                    target=_serve, args=(namespace, data_dir, told, os.getpid()), name="server"
                )
                with interrupts_blocked():
                    self._process.start()
                #: Whether one of its processes was killed.
                self.bereft = False
                #: The address on which it listens.
                self.url = self._heard(ear)

    def _heard(self, ear: socket.socket) -> str:
        """The address that the server reports."""
        ear.settimeout(_LOOK)
        until = time.monotonic() + PATIENCE
        try:
            while time.monotonic() < until:
                self.check()
                with contextlib.suppress(TimeoutError):
                    found = re.search(r"listening on (\S+)", ear.recv(4096).decode())
                    if found:
                        return found[1]
            raise DemoError(f"the server did not listen within {PATIENCE:.0f} s")
        except BaseException:
            self.close()
            raise

    def processes(self) -> set[int]:
        """The process ids of the server."""
        assert self._process.pid is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            return {one.pid for one in psutil.Process(self._process.pid).children()}
        return set()

    def kill(self, pid: int) -> None:
        """Send SIGKILL to one of its processes."""
        os.kill(pid, signal.SIGKILL)
        self.bereft = True

    def kill_all(self) -> None:
        """Send SIGKILL to all of its processes, before any can end cleanly."""
        assert self._process.pid is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            itself = psutil.Process(self._process.pid)
            itself.suspend()  # so that it does not replace the others
            for one in [*itself.children(recursive=True), itself]:
                one.kill()
        self._process.join()

    def check(self) -> None:
        """Raise :class:`DemoError` if it has ended."""
        if self._process.exitcode is not None:
            raise DemoError(f"the server ended with exit code {self._process.exitcode}")

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.join(PATIENCE)
        self._process.kill()
        self._process.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _serve(namespace: str, data_dir: Path | None, told: str, parent: int) -> None:
    """The body of the server's process."""
    end_with_parent(parent, signal.SIGTERM)
    os.environ["NOTIFY_SOCKET"] = told
    logging.getLogger("shmq").addHandler(logging.NullHandler())  # the screen shows deaths
    settings = {
        "data_dir": data_dir,
        "persist": data_dir is not None,
        "namespace": namespace,
        "port": 0,
        "workers": _FRONT_ENDS,
        "log_level": "error",
    }
    try:
        Supervisor(Source(over=settings)).run()
    except ShmqError as error:
        print(f"server: {error}", file=sys.stderr)
        sys.exit(1)
