"""The service manager: its socket and credentials, and notifications to it: sd_notify(3)."""

from __future__ import annotations

import contextlib
import os
import socket
import time

from shmq.errors import InvalidOption
from shmq.native._core import reserve_standard

#: The first descriptor that a service manager passes: sd_listen_fds(3).
_FIRST = 3

#: How long a service manager may leave its socket full, in seconds, before it misses a change.
_PATIENCE = 1.0


def inherited_socket() -> socket.socket | None:
    """The socket that the service manager has opened for this process: socket activation.

    It removes ``LISTEN_FDS`` and the like from the environment. Raises
    :class:`~shmq.InvalidOption` if there are several.
    """
    pid = os.environ.pop("LISTEN_PID", "")
    count = os.environ.pop("LISTEN_FDS", "")
    os.environ.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not count.isdigit() or not int(count):
        return None
    if int(count) > 1:
        raise InvalidOption(f"LISTEN_FDS={count}: a server listens on one socket; name one")
    os.set_inheritable(_FIRST, False)
    return socket.socket(fileno=_FIRST)


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
        self._notify("READY=1", f"STATUS={status}")

    def starting(self, status: str) -> None:
        """Report what the service does before it is up."""
        self._notify(f"STATUS={status}")

    def reloading(self) -> None:
        """Report that the settings are being reloaded."""
        self._notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Report that the service ends."""
        self._notify("STOPPING=1", "STATUS=draining")

    def alive(self) -> None:
        """Send a sign of life. It is not sent to a full socket: that holds earlier ones."""
        self._notify("WATCHDOG=1", patience=0)

    def _notify(self, *lines: str, patience: float = _PATIENCE) -> None:
        """Send one datagram. A manager that does not receive is no reason to fail or to wait."""
        if not self._address:
            return
        address = self._address
        if address.startswith("@"):
            address = "\0" + address[1:]
        reserve_standard()
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as way,
        ):
            way.settimeout(patience)
            way.sendto("\n".join(lines).encode(), address)
