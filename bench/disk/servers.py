"""The brokers that confirm on disk, each in a folder on a real disk."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

from bench.disk import folder
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
