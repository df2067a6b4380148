"""A server of the job's queues, for the consumers that come over TCP."""

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
from shmq.errors import ShmqError
from shmq.server.settings import Source
from shmq.server.supervisor import Supervisor
from shmq.supervision.parent_watch import tether

__all__ = ["Server"]

_SPAWN: Final = multiprocessing.get_context("spawn")

#: Front ends: when one is killed another is there.
_FRONT_ENDS: Final = 2
#: How long one wait for the server lasts before it is looked whether it lives, in seconds.
_LOOK: Final = 0.1


class Server:
    """A server on a free port of the loopback interface, in processes of its own.

    It tells that it listens as it tells a service manager: sd_notify(3). A context; whoever
    made it ends it, and it does not outlive that process.
    """

    def __init__(self, namespace: str, data_dir: Path | None = None) -> None:
        """Raises :class:`DemoError` if it does not come to listen.

        It keeps durable queues in ``data_dir``, and recovers them from there, if that is given.
        """
        with tempfile.TemporaryDirectory(prefix="shmq-demo-") as folder:
            told = str(Path(folder, "notify"))
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
                ear.bind(told)
                self._process = _SPAWN.Process(
                    target=_serve, args=(namespace, data_dir, told, os.getpid()), name="server"
                )
                self._process.start()
                #: Whether one of its processes was killed.
                self.bereft = False
                #: Where it listens.
                self.url = self._heard(ear)

    def _heard(self, ear: socket.socket) -> str:
        """The address that the server tells of."""
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
        """The pids of its processes."""
        assert self._process.pid is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            return {one.pid for one in psutil.Process(self._process.pid).children()}
        return set()

    def kill(self, pid: int) -> None:
        """Send SIGKILL to one of its processes."""
        os.kill(pid, signal.SIGKILL)
        self.bereft = True

    def kill_all(self) -> None:
        """Send SIGKILL to every one of its processes, before any can end in good order."""
        assert self._process.pid is not None
        with contextlib.suppress(psutil.NoSuchProcess):
            itself = psutil.Process(self._process.pid)
            itself.suspend()  # it replaces nobody
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
    tether(parent, signal.SIGTERM)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one that started it
    os.environ["NOTIFY_SOCKET"] = told
    logging.getLogger("shmq").addHandler(logging.NullHandler())  # what dies is on the screen
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
