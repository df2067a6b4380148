"""A process that serves any number of namespaces over TCP, for tests that need many servers.

It runs the server's own front end, one for each namespace, in one event loop. The tests send
commands to its standard input: ``serve NAMESPACE``, answered with the port, and ``end
NAMESPACE``, answered with an empty line once its connections are closed and its queues deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import shmq
from shmq.server.config.settings import Settings
from shmq.server.connection.connection import ConnectionCounts
from shmq.server.frontend import FrontEnd
from tests.support.namespaces import delete_all


class TcpServers:
    """The tests' side. The process is started with the first namespace."""

    #: What the process runs.
    module = "tests.support.tcp_servers"

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    @contextlib.contextmanager
    def serve(self, namespace: str) -> Iterator[str]:
        """Serve a namespace during the block; yields its URL."""
        port = self._ask(f"serve {namespace}")
        try:
            yield f"shmq://127.0.0.1:{port}"
        finally:
            self._ask(f"end {namespace}")

    def _ask(self, line: str) -> str:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self.module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=Path(__file__).resolve().parents[2],
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the process that serves the tests has ended"
        return answer.strip()

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.close()
            self._process.wait()
            self._process.stdout.close()


#: The process of this run; tests/conftest.py ends it.
TCP_SERVERS = TcpServers()


class _TcpServer:
    """The process's side: one namespace."""

    def __init__(self, namespace: str, counts: ConnectionCounts) -> None:
        self._namespace = namespace
        listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        listening.setblocking(False)
        self.port = listening.getsockname()[1]
        settings = Settings(namespace=namespace, port=self.port, workers=1)
        self._listening = listening
        self._task = asyncio.create_task(FrontEnd(settings, listening, counts, 0).run())

    async def end(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listening.fileno())
        self._listening.close()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        with shmq.connect(self._namespace) as broker:
            delete_all(broker)


async def _main() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    served: dict[str, _TcpServer] = {}
    counts = ConnectionCounts.of(1)
    while line := await reader.readline():
        verb, namespace = line.decode().split()
        if verb == "serve":
            served[namespace] = _TcpServer(namespace, counts)
            print(served[namespace].port, flush=True)
        else:
            await served.pop(namespace).end()
            print(flush=True)
    for each in served.values():
        await each.end()


if __name__ == "__main__":
    asyncio.run(_main())
