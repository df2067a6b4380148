"""The console of the job's queues, for people who want to look at them."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, Self

from examples.flights.errors import DemoError
from examples.flights.queues import PATIENCE
from examples.flights.workers import interrupts_blocked
from shmq.host.supervision.signals import end_with_parent

_SPAWN: Final = multiprocessing.get_context("spawn")

#: Where the console listens if nothing else does, and where it listens otherwise.
_ADDRESSES: Final = ("127.0.0.1:9990", "127.0.0.1:0")
#: How often a wait for the console looks at its log, in seconds.
_LOOK: Final = 0.05


class FlightsConsole:
    """``shmq console`` on the job's namespace, in a process of its own.

    A context manager; the console does not outlive the process that made it.
    """

    def __init__(self, namespace: str) -> None:
        """Start it. Raises :class:`DemoError` if it cannot listen."""
        with tempfile.TemporaryDirectory(prefix="shmq-demo-") as folder:
            log = Path(folder, "console.log")
            for address in _ADDRESSES:
                log.write_bytes(b"")
                self._process = _SPAWN.Process(
                    target=_serve, args=(namespace, address, log, os.getpid()), name="console"
                )
                with interrupts_blocked():
                    self._process.start()
                found = self._heard(log)
                if found is not None:
                    #: The address of its first page.
                    self.url = found
                    return
            raise DemoError(f"the console cannot run: {log.read_text().strip()}")

    def _heard(self, log: Path) -> str | None:
        """The address in its log; None if it ended."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            found = re.search(r"the console is at (\S+/):", log.read_text())
            if found:
                return found[1]
            if self._process.exitcode is not None:
                return None
            time.sleep(_LOOK)
        self.close()
        raise DemoError(f"the console did not listen within {PATIENCE:.0f} s")

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


def _serve(namespace: str, address: str, log: Path, parent: int) -> None:
    """The body of the console's process: the command, with its log in that file."""
    end_with_parent(parent, signal.SIGTERM)
    with log.open("ab", buffering=0) as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    from shmq.cli.main import main  # noqa: PLC0415 - in this process alone

    sys.argv = ["shmq", "-n", namespace, "console", "--bind", address]
    main()
