"""The brokers that answer once it is on disk, each in a folder on a real disk."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

from bench.disk import folder
from bench.tcp import servers
from bench.tcp.server import HOST, Server


class OnDisk(Server):
    """A server whose folder is on a disk, wherever temporary files otherwise are."""

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
    """Redis, which syncs its file before it answers, and does not rewrite it meanwhile."""

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
    """NATS with JetStream, whose streams are in files that are synced with each message."""

    @classmethod
    def missing(cls) -> str | None:
        """See :class:`bench.tcp.server.Server`."""
        return super().missing() or _refused()

    def command(self) -> list[str]:
        """See :class:`bench.tcp.server.Server`."""
        config = self.folder / "nats.conf"
        config.write_text(_config(self.folder))
        return [_program(), "-c", str(config), "-a", HOST, "-p", str(self.port)]


def _program() -> str:
    return shutil.which(Nats.program) or f"/usr/sbin/{Nats.program}"


def _config(where: Path) -> str:
    return f'jetstream {{\n store_dir: "{where}"\n sync_interval: always\n}}\n'


@cache
def _refused() -> str | None:
    """Why the server that is installed cannot sync each message: versions before 2.10."""
    with folder.scratch_folder() as where:
        config = where / "nats.conf"
        config.write_text(_config(where))
        tried = subprocess.run(
            [_program(), "-t", "-c", str(config)], capture_output=True, text=True, check=False
        )
        version = subprocess.run(
            [_program(), "--version"], capture_output=True, text=True, check=False
        ).stdout.split()[-1]
    if tried.returncode == 0:
        return None
    return f"nats-server {version} does not know sync_interval: always (2.10 does)"


class RabbitMq(OnDisk):
    """RabbitMQ, which nothing here speaks the protocol of: it is named as left out."""

    program = "rabbitmq-server"
    package = "rabbitmq-server"
