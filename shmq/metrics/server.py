"""The server that gives the text of a command's numbers to Prometheus."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from shmq.errors import InvalidOption
from shmq.metrics.exposition import CONTENT_TYPE

#: How long one request may take, in seconds.
_PATIENCE: Final = 5.0


def address_of(text: str) -> tuple[str, int]:
    """``HOST:PORT``; without a host it is 127.0.0.1. Raises :class:`~shmq.InvalidOption`."""
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InvalidOption(f"invalid address {text!r}: expected HOST:PORT, such as 127.0.0.1:9991")
    return host.strip("[]") or "127.0.0.1", int(port)


class MetricsServer:
    """Answers ``GET /metrics`` with what ``render`` returns, in a thread, one request at a time.

    Anybody who reaches the address may ask. Raises OSError if the address cannot be used.
    """

    def __init__(self, address: tuple[str, int], render: Callable[[], bytes]) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            timeout = _PATIENCE

            def do_GET(self) -> None:
                if self.path.partition("?")[0] != "/metrics":
                    self.send_error(404, "ask for /metrics")
                    return
                body = render()
                self.send_response(200)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing: a scrape is not an event."""

        self._server = http.server.HTTPServer(address, Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="shmq metrics", daemon=True
        )

    @property
    def port(self) -> int:
        """The port, also if 0 was asked for."""
        return self._server.server_port

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_PATIENCE)
