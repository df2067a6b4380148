"""The console: pages, an HTTP and WebSocket API and metrics, in a process beside the queues."""

from __future__ import annotations

from shmq.plugins import Command

CONSOLE = Command("Host", "Watch all in a browser", "shmq.extras.console.cli.console:console")
