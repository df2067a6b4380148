"""A process that serves any number of namespaces over HTTP, for tests that need many consoles.

It runs the console's own application, one for each namespace, under a path of its own in one event
loop. Commands are those of `tcp_servers`: ``serve NAMESPACE``, answered with the URL's port, and
``end NAMESPACE``.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

import shmq
from shmq.extras.console.server.app import application
from shmq.extras.console.server.process import ConsoleProcess
from shmq.extras.console.settings import ConsoleSettings
from tests.support.namespaces import delete_all


class _Site:
    """The process's side: the console of one namespace."""

    def __init__(self, namespace: str) -> None:
        settings = ConsoleSettings(prefix=f"/{namespace}", allow_changes=True)
        self._broker = shmq.connect(namespace)
        self.console = ConsoleProcess(self._broker, settings).console
        self.app: ASGIApp = application(self.console)
        self.console.observer.start()

    def end(self) -> None:
        self.console.ending.set()
        self.console.leases.close()
        self.console.observer.stop()
        delete_all(self._broker)
        self._broker.close()


class _Sites:
    """Every console, by the first part of the path."""

    def __init__(self) -> None:
        self.by_namespace: dict[str, _Site] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        namespace: Any = scope["path"].split("/")[1]
        await self.by_namespace[namespace].app(scope, receive, send)


async def _main() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    sites = _Sites()
    listening = socket.create_server(("127.0.0.1", 0), backlog=128)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as the console does
    config = uvicorn.Config(sites, log_config=None, access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    serving = loop.create_task(server.serve([listening]))
    while line := await reader.readline():
        verb, namespace = line.decode().split()
        if verb == "serve":
            sites.by_namespace[namespace] = await asyncio.to_thread(_Site, namespace)
            print(listening.getsockname()[1], flush=True)
        else:
            await asyncio.to_thread(sites.by_namespace.pop(namespace).end)
            print(flush=True)
    server.force_exit = server.should_exit = True
    await serving


if __name__ == "__main__":
    asyncio.run(_main())
