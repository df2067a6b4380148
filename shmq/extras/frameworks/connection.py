"""A broker of shmq that is connected at its first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import shmq
from shmq.fork_safe import new_lock

if TYPE_CHECKING:
    from shmq.client.remote.address import Tls


class Connection:
    """Connects at its first use, so that a program can be imported without its server.

    ``url``, ``token`` and ``tls`` are those of :func:`shmq.connect`. After a fork the child's copy
    reconnects, as every handle of shmq does.
    """

    def __init__(self, url: str | None, token: str | None = None, tls: Tls = None) -> None:
        self._url = url
        self._token = token
        self._tls: Tls = tls
        self._lock = new_lock()
        self._broker: shmq.Broker | None = None

    @property
    def broker(self) -> shmq.Broker:
        """The broker. Raises what :func:`shmq.connect` raises."""
        with self._lock:
            if self._broker is None:
                self._broker = shmq.connect(self._url, token=self._token, tls=self._tls)
            return self._broker

    def close(self) -> None:
        """Close the broker and all of its handles; the next use connects again."""
        with self._lock:
            broker, self._broker = self._broker, None
        if broker is not None:
            broker.close()
