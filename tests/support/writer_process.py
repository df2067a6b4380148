"""A persistence writer for one test, in its own process, whose disk fails on command.

The tests send lines to its standard input: ``fail ERRNO [WHERE]`` and ``mend``, each answered
with an empty line. At the end of its input it writes the rest and ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import shmq
from shmq.disk.persistence.writer import Writer
from shmq.disk.storage.disk import Disk
from shmq.disk.storage.writer_control import Control
from shmq.host.namespace.data_directory import DataDirectory
from tests.support.processes import PATIENCE, ROOT, eventually, of_threads


class WriterProcess:
    """The tests' side. It keeps the namespace's queues in a directory, across restarts."""

    def __init__(self, namespace: str, folder: Path) -> None:
        self.namespace = namespace
        self.folder = folder
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start the process."""
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.support.writer_process",
                self.namespace,
                str(self.folder),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self._ask("mend")

    def fail(self, code: int, where: str = "") -> None:
        """Make the disk fail with that errno, in directories whose path contains ``where``."""
        self._ask(f"fail {code} {where}")

    def mend(self) -> None:
        """Make the disk work again."""
        self._ask("mend")

    def _ask(self, line: str) -> None:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == "\n", "the writer has ended"

    def freeze(self) -> None:
        """Stop the process until :meth:`thaw`; its files and locks stay as they are.

        When this returns none of its threads runs: a signal alone stops each a little later.
        """
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        pid = self._process.pid

        def stands() -> bool:
            found = of_threads(pid, "stat").values()
            return all(text.rpartition(")")[2].split()[0] == "T" for text in found)

        eventually(stands, "each of its threads is stopped")

    def thaw(self) -> None:
        """Let the process continue."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Send SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._forget()

    def stop(self) -> None:
        """Let it write the rest, and end."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._forget() == 0

    def _forget(self) -> int:
        process, self._process = self._process, None
        assert process is not None
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()
        return process.wait(PATIENCE)

    def follows(self, queue: shmq.Queue) -> None:
        """Return once the writer follows the queue."""
        eventually(lambda: queue.stats().journal_writer, "the writer follows the queue")

    def close(self) -> None:
        """End the process by any means."""
        if self._process is not None:
            self.kill()


@contextlib.contextmanager
def running_writer(namespace: str) -> Iterator[WriterProcess]:
    """A running writer of the namespace's durable queues, for the block."""
    with tempfile.TemporaryDirectory(prefix="shmq-disk-") as folder:
        writer_process = WriterProcess(namespace, Path(folder))
        try:
            writer_process.start()
            yield writer_process
        finally:
            writer_process.close()


class _Disk(Disk):
    """Fails all writing calls while ``code`` is not 0, and so do disks made from it."""

    code: ClassVar[int] = 0
    where: ClassVar[str] = ""

    def _check(self) -> None:
        if self.code and self.where in str(self.directory):
            raise OSError(self.code, os.strerror(self.code))

    def create(self, name: str) -> int:
        self._check()
        return super().create(name)

    def write(self, file: int, pieces: Sequence[bytes | memoryview], offset: int) -> int:
        self._check()
        return super().write(file, pieces, offset)

    def sync(self, file: int) -> None:
        self._check()
        super().sync(file)


def _obey(writer: Writer) -> None:
    for line in sys.stdin:
        order, *rest = line.split()
        _Disk.where = rest[1] if len(rest) > 1 else ""
        _Disk.code = int(rest[0]) if order == "fail" else 0
        print(flush=True)
    writer.stop()


def _main(namespace: str, folder: str) -> None:
    disk = _Disk(folder)
    directory = DataDirectory(namespace, disk)
    writer = Writer(namespace, directory)

    def listen() -> None:
        Control(Path(folder), writer)

    directory.when_taken(listen)
    threading.Thread(target=_obey, args=(writer,), daemon=True).start()
    try:
        writer.run()
    finally:
        directory.close()


if __name__ == "__main__":
    _main(*sys.argv[1:])
