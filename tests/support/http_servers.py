"""A process that serves any number of namespaces over HTTP, for tests that need many consoles."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tests.support.tcp_servers import TcpServers


class HttpServers(TcpServers):
    """The tests' side."""

    module = "tests.support.http_sites"

    @contextlib.contextmanager
    def serve(self, namespace: str) -> Iterator[str]:
        """Serve a namespace during the block; yields its console's URL."""
        port = self._ask(f"serve {namespace}")
        try:
            yield f"http://127.0.0.1:{port}/{namespace}"
        finally:
            self._ask(f"end {namespace}")


#: The process of this run; tests/conftest.py ends it.
HTTP_SERVERS = HttpServers()
