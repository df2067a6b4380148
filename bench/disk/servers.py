"""The brokers that confirm on disk, each in a folder on a real disk."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from bench.disk import folder
from bench.ending import unbroken
from bench.stage import Failed
from bench.tcp import servers
from bench.tcp.server import HOST, Server


class OnDisk(Server):
    """A server whose folder is on a disk, even if temporary files are not."""

    @classmethod
    def missing(cls) -> str | None:
        """See :class:`bench.tcp.server.Server`."""
        return super().missing() or folder.missing()

    def make_folder(self) -> Path:
        """See :class:`bench.tcp.server.Server`."""
        return folder.make()


class Shmq(OnDisk, servers.Shmq):
    """``shmq serve -w 2``, which keeps durable queues in its folder."""

    def command(self) -> list[str]:
        """See :class:`bench.tcp.server.Server`."""
        return [*super().command(), "--data-dir", str(self.folder / "data")]


class Redis(OnDisk, servers.Redis):
    """Redis, which syncs its file before it answers, with rewrites turned off."""

    def command(self) -> list[str]:
        """See :class:`bench.tcp.server.Server`."""
        where = ["--bind", HOST, "--port", str(self.port), "--dir", str(self.folder)]
        keeps = ["--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        return [self.program, *where, *keeps, "--auto-aof-rewrite-percentage", "0"]


class Beanstalkd(OnDisk, servers.Beanstalkd):
    """beanstalkd, which syncs its log after each job."""

    def command(self) -> list[str]:
        """See :class:`bench.tcp.server.Server`."""
        return [*super().command(), "-b", str(self.folder), "-f0"]


class Nats(OnDisk, servers.Nats):
    """NATS with JetStream, with streams in files that are synced with each message."""

    @classmethod
    def is_too_old(cls) -> bool:
        """Whether the installed version, being before 2.10, cannot sync each message."""
        return super().missing() is None and _refuses()

    def command(self) -> list[str]:
        """See :class:`bench.tcp.server.Server`."""
        config = self.folder / "nats.conf"
        config.write_text(_config(self.folder))
        return [_program(), "-c", str(config), "-a", HOST, "-p", str(self.port)]


class Postgres(OnDisk):
    """PostgreSQL on a UNIX socket, with its defaults: fsync and synchronous_commit are on."""

    program = "postgres"
    package = "postgresql"
    #: The user that runs it if this process is root, which it refuses; the package creates it.
    user = "postgres"

    @classmethod
    def missing(cls) -> str | None:
        """See :class:`bench.tcp.server.Server`."""
        if cls._path_of("initdb") is None:
            return f"{cls.program} is not installed (apt install {cls.package})"
        return folder.missing()

    def command(self) -> list[str]:
        """See :class:`bench.tcp.server.Server`."""
        where = ["-D", str(self.folder / "data"), "-k", str(self.folder)]
        return self._command("postgres", *where, "-c", "listen_addresses=")

    def start(self) -> None:
        """See :class:`bench.tcp.server.Server`."""
        if os.geteuid() == 0:
            shutil.chown(self.folder, self.user)
        how = ["-D", str(self.folder / "data"), "--username", "bench", "--auth", "trust"]
        with unbroken():  # what it leaves running would go on to write to the folder
            made = subprocess.run(
                self._command("initdb", *how),
                capture_output=True,
                text=True,
                cwd=self.folder,
                check=False,
            )
        if made.returncode:
            raise Failed(f"initdb failed: {made.stderr}")
        super().start()

    def listens(self) -> bool:
        """See :class:`bench.tcp.server.Server`."""
        return "ready to accept connections" in self.log()

    @property
    def conninfo(self) -> str:
        """The connection string for clients."""
        return f"host={self.folder} user=bench dbname=postgres"

    @classmethod
    def _path_of(cls, program: str) -> str | None:
        """Debian has the programs in a folder for each version."""
        debian = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{program}"))
        return shutil.which(program) or (str(debian[-1]) if debian else None)

    @classmethod
    def _command(cls, program: str, *arguments: str) -> list[str]:
        """A change of the user ends the tie of :func:`bench.tcp.server.tether`: it is renewed."""
        change = [f"--reuid={cls.user}", f"--regid={cls.user}", "--init-groups"]
        prefix = ["setpriv", *change, "--pdeathsig", "INT", "--"] if os.geteuid() == 0 else []
        return [*prefix, str(cls._path_of(program)), *arguments]


def _program() -> str:
    return shutil.which(Nats.program) or f"/usr/sbin/{Nats.program}"


def _config(where: Path) -> str:
    return f'jetstream {{\n store_dir: "{where}"\n sync_interval: always\n}}\n'


@cache
def _refuses() -> bool:
    """Whether the installed server does not know the setting."""
    with folder.scratch_folder() as where:
        config = where / "nats.conf"
        config.write_text(_config(where))
        command = [_program(), "-t", "-c", str(config)]
        return subprocess.run(command, capture_output=True, check=False).returncode != 0
