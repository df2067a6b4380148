"""The persistence process for the tests, and the loss of what it keeps."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.logged import Logged
from tests.support.processes import ROOT, SHM, environment


class Persist(Logged):
    """``shmq persist`` of one namespace, in a directory of its own."""

    def __init__(self, namespace: str, directory: Path) -> None:
        self.namespace = namespace
        self.directory = directory
        self._log = directory.with_name(f"{directory.name}.log")
        self._log.touch()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and return at once."""
        command = [sys.executable, "-m", "shmq.cli", "persist", "-d", str(self.directory)]
        with self._log.open("ab") as stderr:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment(SHMQ_NAMESPACE=self.namespace),
                stdin=subprocess.DEVNULL,
                stderr=stderr,
            )

    def begin(self) -> None:
        """Start it, and return when the queues are back."""
        before = self.log.count("keeping the durable queues")
        self.start()
        self.hears("keeping the durable queues", before + 1)

    def end(self) -> None:
        """End it as an operator does."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        assert self.waits_for_end() == 0, self.log
        self.process = None

    def kill(self) -> None:
        """End it as the kernel does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def reboot(self) -> None:
        """End it, lose the memory, and start again."""
        self.end()
        lose(self.namespace)
        self.begin()

    def files(self) -> list[str]:
        """What is in the directory and belongs to queues."""
        return sorted(name for name in os.listdir(self.directory) if not name.startswith("writer"))


def lose(namespace: str) -> None:
    """Remove all that the namespace has in shared memory, as a reboot does."""
    for path in SHM.iterdir():
        if f"shmq@{namespace}" in path.name:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def running_writer(namespace: str, directory: Path) -> Iterator[Persist]:
    """One that runs, and that does not outlive the block."""
    persist = Persist(namespace, directory)
    try:
        persist.begin()
        yield persist
        if persist.process is not None:
            persist.end()
    finally:
        persist.kill()
