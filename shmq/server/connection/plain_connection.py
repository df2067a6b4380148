"""A connection without encryption."""

from __future__ import annotations

from shmq.server.connection.connection import Connection

__all__ = ["PlainConnection"]


class PlainConnection(Connection):
    """A connection whose socket the engine itself reads and writes."""

    def _readable(self) -> None:
        try:
            flags = self.session.readable(self._fd)
            if flags or self._flags:
                self._heed(flags)
        except Exception as error:  # noqa: BLE001 - it ends this connection alone
            self._fail(error)

    def _writable(self) -> None:
        self._heed(self.session.writable(self._fd))
