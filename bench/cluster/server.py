"""Three servers of NATS on this host: what both contestants of a row use."""

from __future__ import annotations

import psutil

from bench.tcp.server import Server, tether
from shmq.errors import ShmqError
from shmq.extras.nats.cluster.binary import find_binary
from shmq.extras.nats.cluster.local import LocalCluster


class Cluster(Server):
    """Three servers that keep each message three times, in files; its port is that of the first."""

    program = "nats-server"
    package = "nats-server"
    #: When the servers sync: see ``shmq cluster start --sync-interval``.
    sync = "2m"

    @classmethod
    def missing(cls) -> str | None:
        """See :class:`bench.tcp.server.Server`."""
        try:
            find_binary()
        except ShmqError as error:
            return str(error)
        return None

    def command(self) -> list[str]:
        """See :class:`bench.tcp.server.Server`; it is started by `start` below."""
        return [str(find_binary())]

    def start(self) -> None:
        """Start the three, and return once they can be used."""
        self.cluster = LocalCluster.create(self.folder / "cluster", sync=self.sync)
        self.cluster.start(prefix=tether())
        self.port = self.cluster.nodes[0].ports.client

    def processes(self) -> list[psutil.Process]:
        """See :class:`bench.tcp.server.Server`."""
        pids = [node.pid for node in self.cluster.nodes]
        return [psutil.Process(pid) for pid in pids if pid is not None]

    def end(self) -> None:
        """See :class:`bench.tcp.server.Server`."""
        self.cluster.stop()
        super().end()


class SyncedCluster(Cluster):
    """The same; a message is on the disk of two servers before it is acknowledged."""

    sync = "always"
