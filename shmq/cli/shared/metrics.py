"""``--metrics HOST:PORT``: the numbers of a command, for Prometheus."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

import click

from shmq.metrics.server import MetricsServer, address_of


def serve_metrics(
    address: str, render: Callable[[], bytes], stack: contextlib.ExitStack, log: logging.Logger
) -> None:
    """Give what ``render`` returns at the address, until the stack is left. Raises UsageError."""
    host, port = address_of(address)
    try:
        server = MetricsServer((host, port), render)
    except OSError as error:
        raise click.UsageError(
            f"--metrics {address}: {error.strerror or error}: take another address"
        ) from None
    stack.enter_context(server)
    log.info("metrics at http://%s:%d/metrics", f"[{host}]" if ":" in host else host, server.port)
