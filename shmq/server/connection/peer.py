"""The client at the other end of a connection."""

from __future__ import annotations

from shmq.server.auth.tokens import ALL_RIGHTS, AccessList, Token
from shmq.server.connection.connection import Connection

__all__ = ["Peer"]


class Peer:
    """A client's address, name and token. A session carries it as its context."""

    __slots__ = ("client", "connection", "peer", "token")

    def __init__(self, peer: str) -> None:
        #: The connection that carries its session; None: it is being made, or is closed.
        self.connection: Connection | None = None
        #: The client's address.
        self.peer = peer
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
