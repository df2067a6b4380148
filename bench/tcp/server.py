"""A server that a measurement starts, uses and ends."""

from __future__ import annotations

import abc
import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar, TypeVar

import psutil

from bench.ending import unbroken
from bench.machine import Place, cores_of
from bench.stage import Failed

#: Seconds within which a server must have started, and must have ended.
PATIENCE = 30.0
#: The address on which all servers listen.
HOST = "127.0.0.1"

S = TypeVar("S", bound="Server")


class Server(abc.ABC):
    """A process that listens on a port of the loopback, with its own folder."""

    #: The program, which must be in the path.
    program: ClassVar[str]
    #: The Debian package that has it.
    package: ClassVar[str] = ""

    def __init__(self) -> None:
        self.folder = self.make_folder()
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @classmethod
    def missing(cls) -> str | None:
        """Why it cannot be started here; None if it can."""
        if shutil.which(cls.program) or Path("/usr/sbin", cls.program).exists():
            return None
        return f"{cls.program} is not installed (apt install {cls.package})"

    def make_folder(self) -> Path:
        """A new folder for its files; :meth:`end` removes it."""
        return Path(tempfile.mkdtemp(prefix="bench-"))

    @abc.abstractmethod
    def command(self) -> list[str]:
        """The command that starts it."""

    def start(self) -> None:
        """Start it, and return once it listens. Raises Failed if it does not listen in time."""
        with (self.folder / "log").open("wb") as log, unbroken():
            self.process = subprocess.Popen(
                [*tether(), *self.command()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        end = time.monotonic() + PATIENCE
        while not self.listens():
            if self.process.poll() is not None or time.monotonic() > end:
                raise Failed(f"{self.program} did not start: {self.log()}")
            time.sleep(0.01)

    def end(self) -> None:
        """End it and remove its folder."""
        if self.process is not None:
            family = self.processes()
            self.process.terminate()
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            for left in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    left.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self) -> str:
        """The end of its output."""
        return (self.folder / "log").read_text(errors="replace")[-2000:]

    def processes(self) -> list[psutil.Process]:
        """Its process and all descendants."""
        assert self.process is not None
        try:
            first = psutil.Process(self.process.pid)
            return [first, *first.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    @contextlib.contextmanager
    def on(self, core: int) -> Iterator[None]:
        """Run all its threads on that core during the block."""
        everywhere = os.sched_getaffinity(0)
        self._move({core})
        try:
            yield
        finally:
            self._move(everywhere)

    def _move(self, cores: set[int]) -> None:
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                for thread in process.threads():
                    with contextlib.suppress(ProcessLookupError):
                        os.sched_setaffinity(thread.id, cores)

    def memory(self) -> int:
        """The private memory of its processes in bytes, without files and shared memory."""
        return sum(_anonymous(process.pid) for process in self.processes())

    def listens(self) -> bool:
        """Whether all its processes accept connections by now."""
        with socket.socket() as probe:
            return probe.connect_ex((HOST, self.port)) == 0


def _anonymous(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def tether() -> list[str]:
    """A command prefix that ends a program when this process is killed; needs util-linux."""
    return ["setpriv", "--pdeathsig", "TERM", "--"] if shutil.which("setpriv") else []


def free_port() -> int:
    """A free port of the loopback."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


# ---- where they run ----


def no_place(place: Place | None) -> str | None:
    """Why measuring at that place is impossible; None if it is possible."""
    return "there is one core here" if place and cores_of(place) is None else None


@contextlib.contextmanager
def placed(place: Place | None, server: Server) -> Iterator[int | None]:
    """Keep the server on its core during the block; yields the core of its client.

    Without a place the kernel chooses the cores, and it yields None.
    """
    cores = cores_of(place) if place else None
    if cores is None:
        yield None
        return
    with server.on(cores[1]):
        yield cores[0]


# ---- servers that run as long as the measurement ----

_running: dict[type[Server], Server] = {}


def running(kind: type[S]) -> S:
    """The server of that kind, started at the first use."""
    if kind not in _running:
        with unbroken():
            server = _running[kind] = kind()
        server.start()
    found = _running[kind]
    assert isinstance(found, kind)
    return found


def end_all() -> None:
    """End every server that :func:`running` started."""
    while _running:
        _, server = _running.popitem()
        server.end()


@contextlib.contextmanager
def fresh(kind: Callable[..., S], *given: str) -> Iterator[S]:
    """A new, unused server for the block."""
    with contextlib.ExitStack() as stack:
        with unbroken():
            server = kind(*given)
            stack.callback(server.end)
        server.start()
        yield server
