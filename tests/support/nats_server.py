"""One NATS server with JetStream for all tests of a run that need no cluster."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import shmq
from tests.support.waiting import eventually


def server_binary() -> str:
    """The path of the server."""
    from shmq.extras.nats.cluster.binary import find_binary

    return str(find_binary())


class NatsServer:
    """A single server; it is started with the first namespace.

    ``config`` are lines of its configuration, more than where it listens and stores.
    """

    def __init__(self, *config: str) -> None:
        self._more = "".join(line + "\n" for line in config)
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path()
        self.port = 0

    @contextlib.contextmanager
    def serve(self, namespace: str) -> Iterator[str]:
        """Serve a namespace during the block; yields its URL, and removes what it has left."""
        self.start()
        url = f"nats://127.0.0.1:{self.port}/{namespace}"
        try:
            yield url
        finally:
            _remove(url)

    def start(self) -> None:
        """Start it, unless it runs."""
        if self._process is not None:
            return
        self._folder = Path(tempfile.mkdtemp(prefix="shmq-nats-"))
        config = self._folder / "server.conf"
        # The kernel chooses the port: one that was free a moment ago may be taken by now.
        config.write_text(
            f'listen: "127.0.0.1:-1"\nports_file_dir: "{self._folder}"\n'
            f'jetstream {{ store_dir: "{self._folder}/js" }}\n{self._more}'
        )
        self._process = subprocess.Popen(
            [server_binary(), "-c", str(config), "-l", str(self._folder / "log")]
        )
        ports = self._folder / f"nats-server_{self._process.pid}.ports"
        eventually(lambda: self._has_written(ports), "the server listens")
        (url,) = json.loads(ports.read_text())["nats"]
        self.port = int(url.rpartition(":")[2])

    def _has_written(self, ports: Path) -> bool:
        """Whether the file of its ports is complete."""
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "log").read_text()
        return ports.exists() and ports.read_text().endswith("}")

    def close(self) -> None:
        """End it, and remove its files."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None
            shutil.rmtree(self._folder)


def _remove(url: str) -> None:
    """Delete the streams of the namespace."""
    from shmq.extras.nats.client.address import ClusterTarget
    from shmq.extras.nats.client.connection import ClusterConnection

    connection = ClusterConnection(ClusterTarget.of(url))
    prefix = f"shmq_n{connection.namespace.replace('.', '_d')}"
    try:
        found = connection.run(connection.api("STREAM.NAMES"))
        for name in found.get("streams") or ():
            if name.removeprefix("KV_").partition("_q")[0].startswith(prefix):
                with contextlib.suppress(shmq.ShmqError):
                    connection.run(connection.api(f"STREAM.DELETE.{name}"))
    finally:
        connection.close()


#: The server of this run; tests/conftest.py ends it.
NATS_SERVER = NatsServer()
