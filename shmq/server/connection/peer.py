"""Who is at the other end of a connection."""

from __future__ import annotations

from shmq.server.auth.tokens import ALL_RIGHTS, Doors, Token
from shmq.server.connection.connection import Carrier

__all__ = ["Caller"]


class Caller:
    """What is known of a client. A session carries it as its context."""

    __slots__ = ("carrier", "client", "peer", "token")

    def __init__(self, peer: str) -> None:
        #: What carries its session; None: it is being made.
        self.carrier: Carrier | None = None
        #: Its address.
        self.peer = peer
        #: What it calls itself.
        self.client = ""
        #: What it was let in by; None: it has shown none, or needs none.
        self.token: Token | None = None

    def rights(self, doors: Doors, queue: str) -> int:
        """What it may do to the queue, as the engine's bits."""
        if not doors.ask:
            return ALL_RIGHTS
        return 0 if self.token is None else self.token.rights(queue)

    def stream_rights(self, doors: Doors, stream: str, group: str | None) -> int:
        """What it may do to the stream, or to that group of it: see the token's."""
        if not doors.ask:
            return ALL_RIGHTS
        return 0 if self.token is None else self.token.stream_rights(stream, group)

    def __str__(self) -> str:
        name = f" {self.client!r}" if self.client else ""
        return f"{self.peer}{name}"
