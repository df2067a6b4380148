"""Who is at the other end of a connection."""

from __future__ import annotations

from shmq.server.auth.tokens import ALL_RIGHTS, AccessList, Token
from shmq.server.connection.connection import Connection

__all__ = ["Peer"]


class Peer:
    """What is known of a client. A session carries it as its context."""

    __slots__ = ("client", "connection", "peer", "token")

    def __init__(self, peer: str) -> None:
        #: What carries its session; None: it is being made.
        self.connection: Connection | None = None
        #: Its address.
        self.peer = peer
        #: What it calls itself.
        self.client = ""
        #: What it was let in by; None: it has shown none, or needs none.
        self.token: Token | None = None

    def rights(self, access_list: AccessList, queue: str) -> int:
        """What it may do to the queue, as the engine's bits."""
        if not access_list.ask:
            return ALL_RIGHTS
        return 0 if self.token is None else self.token.rights(queue)

    def stream_rights(self, access_list: AccessList, stream: str, group: str | None) -> int:
        """What it may do to the stream, or to that group of it: see the token's."""
        if not access_list.ask:
            return ALL_RIGHTS
        return 0 if self.token is None else self.token.stream_rights(stream, group)

    def __str__(self) -> str:
        name = f" {self.client!r}" if self.client else ""
        return f"{self.peer}{name}"
