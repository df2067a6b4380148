"""Clusters of NATS servers on this host, for tests: each ends with the test, or with pytest."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from shmq.extras.nats.cluster.local import LocalCluster

#: A server of Debian 12, if it is installed: 2.9, which has to be refused.
OLD_BINARY: Final = Path("/usr/sbin/nats-server")

#: Ends a server when the thread that started it ends, however that ends.
PREFIX: Final = ("setpriv", "--pdeathsig", "KILL")


@contextlib.contextmanager
def running_cluster(
    directory: Path, *, binary: Path | None = None, check: bool = True, **options: Any
) -> Iterator[LocalCluster]:
    """A cluster of three servers, ready; ``options`` are those of `LocalCluster.create`.

    By default nothing is synced: the tests kill processes, not machines.
    """
    cluster = LocalCluster.create(directory, **{"sync": "2m", **options})
    try:
        cluster.start(binary, prefix=PREFIX, check=check)
        yield cluster
    finally:
        for node in cluster.nodes:
            if node.pid is not None:
                node.kill()
