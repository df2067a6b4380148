"""The servers: shmq with two front-end workers, its peers, and an echo server."""

from __future__ import annotations

import shutil
import subprocess
import sys

from bench.compiled import ROOT, compiled, no_compiler
from bench.ending import unbroken
from bench.scratch import delete_all, unique_name
from bench.tcp.server import HOST, Server, tether

#: Connections that each server allows.
CONNECTIONS = 12_000
#: The limit for a body, in bytes, with some margin.
LARGEST = 2 << 20


class Shmq(Server):
    """``shmq serve -w 2``, in its own namespace."""

    program = "shmq"

    def __init__(self, namespace: str | None = None) -> None:
        super().__init__()
        self.namespace = namespace or unique_name()

    @classmethod
    def missing(cls) -> str | None:
        """See :class:`bench.tcp.server.Server`."""
        return None

    def command(self) -> list[str]:
        """See :class:`bench.tcp.server.Server`."""
        where = ["--bind", HOST, "--port", str(self.port), "--namespace", self.namespace]
        config = self.folder / "shmq.toml"
        config.write_text(f"[limits]\nconnections = {CONNECTIONS}\ndrain = 1\n")
        program = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from shmq.cli.main import main"
        return [
            sys.executable,
            "-c",
            f"{program}; main()",
            "serve",
            *where,
            "--workers",
            "2",
            "--config",
            str(config),
        ]

    def listens(self) -> bool:
        """See :class:`bench.tcp.server.Server`."""
        return "listening on" in self.log()

    def end(self) -> None:
        """See :class:`bench.tcp.server.Server`."""
        super().end()
        delete_all(self.namespace)

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"shmq://{HOST}:{self.port}"


class Redis(Server):
    """Redis, which keeps nothing on disk."""

    program = "redis-server"
    package = "redis-server"

    def command(self) -> list[str]:
        """See :class:`bench.tcp.server.Server`."""
        where = ["--bind", HOST, "--port", str(self.port), "--dir", str(self.folder)]
        keeps = ["--save", "", "--appendonly", "no", "--maxclients", str(CONNECTIONS)]
        return [self.program, *where, *keeps]


class Beanstalkd(Server):
    """beanstalkd, which keeps nothing on disk."""

    program = "beanstalkd"
    package = "beanstalkd"

    def command(self) -> list[str]:
        """See :class:`bench.tcp.server.Server`."""
        return [self.program, "-l", HOST, "-p", str(self.port), "-z", str(LARGEST)]


class Nats(Server):
    """NATS with JetStream, with streams in memory."""

    program = "nats-server"
    package = "nats-server"

    def command(self) -> list[str]:
        """See :class:`bench.tcp.server.Server`."""
        program = shutil.which(self.program) or f"/usr/sbin/{self.program}"
        return [program, "-js", "-sd", str(self.folder), "-a", HOST, "-p", str(self.port)]


class Echo(Server):
    """The C loop that sends back what it receives."""

    program = "echo"

    @classmethod
    def missing(cls) -> str | None:
        """See :class:`bench.tcp.server.Server`."""
        return no_compiler()

    def command(self) -> list[str]:
        """See :class:`bench.tcp.server.Server`."""
        return [str(compiled(ROOT / "bench/limits/echo.c"))]

    def start(self) -> None:
        """Start it and read its port from its output."""
        command = [*tether(), *self.command()]
        with unbroken():
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.process.stdout.close()
