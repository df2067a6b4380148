"""Reports the state of the service to the service manager: sd_notify(3), without a library."""

from __future__ import annotations

import contextlib
import os
import socket
import time

__all__ = ["Manager"]


class Manager:
    """The service manager that started this process, if it asked to be notified.

    It removes ``NOTIFY_SOCKET`` and ``WATCHDOG_USEC`` from the environment, so that child
    processes do not inherit them.
    """

    def __init__(self) -> None:
        self._address = os.environ.pop("NOTIFY_SOCKET", "")
        usec = os.environ.pop("WATCHDOG_USEC", "")
        pid = os.environ.pop("WATCHDOG_PID", "")
        meant = not pid or pid == str(os.getpid())
        #: How often to send a sign of life, in seconds: half the watchdog's time; or None.
        self.interval = int(usec) / 2e6 if usec.isdigit() and int(usec) and meant else None

    def ready(self, status: str) -> None:
        """Report that the service is up, or has reloaded its settings."""
        self._tell("READY=1", f"STATUS={status}")

    def starting(self, status: str) -> None:
        """Report what the service does before it is up."""
        self._tell(f"STATUS={status}")

    def reloading(self) -> None:
        """Report that the settings are being reloaded."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Report that the service ends."""
        self._tell("STOPPING=1", "STATUS=draining")

    def alive(self) -> None:
        """Send a sign of life."""
        self._tell("WATCHDOG=1")

    def _tell(self, *lines: str) -> None:
        """Send one datagram. A manager that does not receive it is no reason to fail."""
        if not self._address:
            return
        address = self._address
        if address.startswith("@"):
            address = "\0" + address[1:]
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as way,
        ):
            way.sendto("\n".join(lines).encode(), address)
