"""The client at the other end of a connection."""

from __future__ import annotations

import logging
import time
from typing import Any, Final

from shmq.server.config.tokens import ALL_RIGHTS, AccessList, Token
from shmq.server.connection.connection import Connection


class Peer:
    """A client's address, name and token. A session carries it as its context."""

    __slots__ = ("client", "connection", "peer", "source", "token")

    def __init__(self, peer: str, source: str = "") -> None:
        #: The connection that carries its session; None: it is being made, or is closed.
        self.connection: Connection | None = None
        #: The client's address.
        self.peer = peer
        #: What its failed logins are counted for.
        self.source = source
        #: The name that the client gave.
        self.client = ""
        #: The token it showed; None: it has shown none yet, or needs none.
        self.token: Token | None = None

    def rights(self, access_list: AccessList, queue: str) -> int:
        """The client's rights to the queue, as the engine's bits."""
        if not access_list.ask:
            return ALL_RIGHTS
        return 0 if self.token is None else self.token.rights(queue)

    def stream_rights(self, access_list: AccessList, stream: str, group: str | None) -> int:
        """The client's rights to the stream, or to that group: see `Token.stream_rights`."""
        if not access_list.ask:
            return ALL_RIGHTS
        return 0 if self.token is None else self.token.stream_rights(stream, group)

    def __str__(self) -> str:
        name = f" {self.client!r}" if self.client else ""
        return f"{self.peer}{name}"


#: How long one line of a kind suppresses further ones, in seconds.
PAUSE: Final = 1.0


class RateLimitedLog:
    """Logs at most one line of each kind a second, and how many were left out since."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._kinds: dict[str, tuple[float, int]] = {}

    def warning(self, form: str, *values: Any) -> None:
        """Log a warning as a logger does; the kind is the ``form``."""
        until, left_out = self._kinds.get(form, (0.0, 0))
        now = time.monotonic()
        if now < until:
            self._kinds[form] = (until, left_out + 1)
            return
        self._kinds[form] = (now + PAUSE, 0)
        more = f" (and {left_out} more since the last such line)" if left_out else ""
        self._log.warning(form + "%s", *values, more)
