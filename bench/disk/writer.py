"""The persistence writer of a measurement: ``shmq persist``, with its queue and files.

The measurement's own process never attaches to the namespace: shared memory that it removes, as
a reboot would, must not be open anywhere.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import shmq
from bench.compiled import ROOT
from bench.disk.folder import scratch_folder
from bench.ending import unbroken
from bench.scratch import unique_name
from bench.stage import Failed, Side, Stage, together
from bench.tcp.server import PATIENCE, tether

SHM = Path("/dev/shm")
#: The queue of a measurement.
QUEUE = "q"


class Writer:
    """``shmq persist`` for a namespace, with its files in a folder."""

    def __init__(self, namespace: str, folder: Path) -> None:
        self.namespace = namespace
        self.data = folder / "data"
        self.log = folder / "log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; recovery goes on in the background."""
        program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from shmq.cli.main import main"
        command = [sys.executable, "-c", f"{program}; main()", "--namespace", self.namespace]
        where = ["persist", "--data-dir", str(self.data)]
        with self.log.open("ab") as log, unbroken():
            self.process = subprocess.Popen(
                [*tether(), *command, *where], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def listens(self) -> None:
        """Return once it accepts requests for snapshots. Raises Failed if it does not."""
        end = time.monotonic() + PATIENCE
        while not (self.data / "writer.sock").exists():
            self.check()
            if time.monotonic() > end:
                raise Failed(f"the writer did not listen within {PATIENCE} s")
            time.sleep(0.01)

    def check(self) -> None:
        """Raise Failed if it has ended."""
        if self.process is not None and self.process.poll() is not None:
            raise Failed(f"the writer ended: {self.log.read_text(errors='replace')[-2000:]}")

    def kill(self) -> None:
        """End it as a power cut does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def end(self) -> None:
        """End it as an operator does."""
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()
            self.process = None


class Kept:
    """A namespace with one queue, its writer, and its files."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        self.name = unique_name()
        self.writer = Writer(self.name, folder)
        self.options = options

    def create(self) -> None:
        """Make the queue, and start the writer."""
        alone(_create, self.name, self.options)
        self.writer.start()

    def lose(self) -> None:
        """Kill the writer, and remove all that is in shared memory, as a reboot does."""
        self.writer.kill()
        lose(self.name)

    def recover(self) -> None:
        """Start the writer again, and return once the queue is recovered."""
        self.writer.start()
        end = time.monotonic() + PATIENCE
        while alone(_there, self.name) is False:
            self.writer.check()
            if time.monotonic() > end:
                raise Failed(f"the queue was not recovered within {PATIENCE} s")
            time.sleep(0.05)

    def remove(self) -> None:
        """Remove all of it from shared memory."""
        self.writer.end()
        lose(self.name)


def lose(namespace: str) -> None:
    """Remove everything of the namespace from shared memory."""
    own = f"shmq@{namespace}"
    for path in SHM.iterdir():
        name = path.name[max(0, path.name.find("shmq@")) :]  # without the prefix of its kind
        if name == own or name.startswith(f"{own}@"):
            path.unlink(missing_ok=True)


def alone(act: Any, *given: Any) -> Any:
    """Call the function in its own process, and return its result."""
    (value,) = together([Side(act, *given, core=None)])
    return value


@contextlib.contextmanager
def kept(**options: Any) -> Iterator[Kept]:
    """A queue with these options and its writer, for the block."""
    with scratch_folder() as folder:
        made = Kept(folder, {"dead_letter": None, "overflow": "block", **options})
        try:
            made.create()
            yield made
        except Failed:
            made.writer.check()
            raise
        finally:
            made.remove()


# ---- in separate processes ----


def _create(stage: Stage, name: str, options: dict[str, Any]) -> None:
    stage.meet()
    with shmq.connect(name) as broker:
        broker.create_queue(QUEUE, **options)


def _there(stage: Stage, name: str) -> bool:
    stage.meet()
    with shmq.connect(name) as broker:
        if QUEUE not in broker.queue_names():
            return False  # while no writer runs, opening it is an error
        try:
            broker.queue(QUEUE).stats()
        except shmq.NoSuchQueue:
            return False
    return True
