"""The records of a server's stream that a subscription keeps."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from shmq.errors import ShmqError
from shmq.protocol.messages.stream import Hold
from shmq.protocol.opcodes import Type


class RemoteRetentionHold:
    """Keeps records of a server's stream. ``number`` identifies it within its connection.

    The server keeps the hold for the connection. Each FETCH of the reader includes its position:
    the server releases the records before it. After a reconnection the hold is taken again before
    the reader reads.

    Raises Unsupported if the server has no HOLD.
    """

    def __init__(self, stream: Any, number: int) -> None:
        self._stream = stream
        self.number = number
        self._ended = False

    def take(self, position: Mapping[int, int]) -> None:
        """Hold the records from these offsets on; moves a hold that exists."""
        self._stream.ask(Type.HOLD, self._pack_position(position))

    def move(self, position: Mapping[int, int]) -> None:
        """Nothing to do: the reader's next FETCH includes the position."""

    def close(self) -> None:
        """Release the records. May be called again."""
        self._end(wait=True)

    def drop(self) -> None:
        """Release the records, from a destructor."""
        self._end(wait=False)

    def _pack_position(self, position: Mapping[int, int]) -> bytes:
        return Hold(self._stream.identity, self.number, list(position.items())).pack()

    def _end(self, *, wait: bool) -> None:
        """Release the hold; with a lost connection, the server has already dropped it."""
        connection = self._stream.connection
        wire = connection.wire
        if self._ended or wire is None or wire.is_broken or not wire.is_of_this_process:
            return
        self._ended = True
        with contextlib.suppress(ShmqError):
            answer = wire.request(Type.HOLD, True, self._pack_position({}))
            if wait:
                connection.await_(wire, answer, connection.target.request_timeout)
            else:
                wire.forget(answer)
                wire.send()
