"""A persistence writer for one test, in its own process, whose disk fails on command.

The tests send it the disk's error and where the disk has it, or no error, and get an answer; at
the end of what they send it writes the rest and ends. It is forked by multiprocessing's fork
server, which has loaded what all of them need.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import ClassVar

import shmq
from shmq.disk.persistence.writer import Writer
from shmq.disk.storage.writer_control import Control
from shmq.host.namespace.data_directory import DataDirectory
from tests.support.processes import is_stopped
from tests.support.stepwise_disk import StepwiseDisk
from tests.support.waiting import PATIENCE, eventually

multiprocessing.set_forkserver_preload([__name__])


class WriterProcess:
    """The tests' side. It keeps the namespace's queues in a directory, across restarts."""

    def __init__(self, namespace: str, folder: Path) -> None:
        self.namespace = namespace
        self.folder = folder
        self._process: ForkServerProcess | None = None

    def start(self) -> None:
        """Start the process."""
        context = multiprocessing.get_context("forkserver")
        self._pipe, there = context.Pipe()
        self._process = context.Process(
            target=_main, args=(there, dict(os.environ), self.namespace, self.folder)
        )
        self._process.start()
        there.close()
        self.mend()

    def fail(self, code: int, where: str = "") -> None:
        """Make the disk fail with that errno, in directories whose path contains ``where``."""
        self._set(code, where)

    def mend(self) -> None:
        """Make the disk work again."""
        self._set(0, "")

    def _set(self, code: int, where: str) -> None:
        try:
            self._pipe.send((code, where))
            self._pipe.recv()
        except (EOFError, OSError) as error:
            raise AssertionError("the writer has ended") from error

    def freeze(self) -> None:
        """Stop the process until :meth:`thaw`; its files and locks stay as they are."""
        pid = self._signal(signal.SIGSTOP)
        eventually(lambda: is_stopped(pid), "each of its threads is stopped")

    def thaw(self) -> None:
        """Let the process continue."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> int:
        assert self._process is not None
        assert self._process.pid is not None
        os.kill(self._process.pid, number)
        return self._process.pid

    def kill(self) -> None:
        """Send SIGKILL."""
        self._signal(signal.SIGKILL)
        self._forget()

    def stop(self) -> None:
        """Let it write the rest, and end."""
        self._pipe.send(None)
        assert self._forget() == 0

    def _forget(self) -> int | None:
        process, self._process = self._process, None
        assert process is not None
        self._pipe.close()
        process.join(PATIENCE)
        code = process.exitcode
        process.close()
        return code

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


class _Disk(StepwiseDisk):
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


def _obey(pipe: Connection, writer: Writer) -> None:
    with contextlib.suppress(EOFError):
        while (order := pipe.recv()) is not None:
            _Disk.code, _Disk.where = order
            pipe.send(None)
    writer.stop()


def _main(pipe: Connection, variables: Mapping[str, str], namespace: str, folder: Path) -> None:
    os.environ.clear()
    os.environ.update(variables)
    disk = _Disk(folder)
    directory = DataDirectory(namespace, disk)
    writer = Writer(namespace, directory)

    def listen() -> None:
        Control(folder, writer)

    directory.when_taken(listen)
    threading.Thread(target=_obey, args=(pipe, writer), daemon=True).start()
    try:
        writer.run()
    finally:
        directory.close()
