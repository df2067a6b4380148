"""The records of a server's stream that a subscription keeps."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from shmq.client.ports.steps import Steps
from shmq.errors import ShmqError
from shmq.native import _core
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

    def taking(self, position: Mapping[int, int]) -> Steps[None]:
        """Hold the records from these offsets on; moves a hold that exists."""
        yield self._stream.asking(Type.HOLD, self._pack_position(position))

    def move(self, position: Mapping[int, int]) -> None:
        """Nothing to do: the reader's next FETCH includes the position."""

    def closing(self) -> Steps[None]:
        """Release the records. May be called again."""
        connection = self._stream.connection
        with contextlib.suppress(ShmqError):
            if (sent := self._send_end()) is not None:
                yield connection.answering(*sent, connection.target.request_timeout)

    def drop(self) -> None:
        """Release the records, from a destructor."""
        with contextlib.suppress(ShmqError):
            if (sent := self._send_end()) is not None:
                wire, answer = sent
                wire.forget(answer)
                wire.send()

    def _pack_position(self, position: Mapping[int, int]) -> bytes:
        return Hold(self._stream.identity, self.number, list(position.items())).pack()

    def _send_end(self) -> tuple[_core.Wire, _core.Answer] | None:
        """Request the release; with a lost connection, the server has already dropped the hold."""
        wire = self._stream.connection.wire
        if self._ended or wire is None or wire.is_broken or not wire.is_of_this_process:
            return None
        self._ended = True
        return wire, wire.request(Type.HOLD, True, self._pack_position({}))
