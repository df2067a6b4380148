"""The hold of a subscription on a server's stream: the server keeps it for the connection.

Each FETCH of the reader includes its position: the server releases the records before it. After a
reconnection the hold is taken again before the reader reads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from shmq import api
from shmq.client.remote.stream_reader import RemoteReader
from shmq.errors import ShmqError, Unsupported
from shmq.protocol.messages.stream import Hold
from shmq.protocol.opcodes import Feature, Type

__all__ = ["RemoteRetentionHold"]


class RemoteRetentionHold:
    """Keeps records of a server's stream. ``number`` identifies it within its connection.

    Raises Unsupported if the server is too old.
    """

    def __init__(self, stream: Any, number: int) -> None:
        greeting = stream.connection.greeting
        if greeting is None or Feature.HOLDS not in greeting.features:
            raise Unsupported(
                f"policy='block': the server of stream {stream.name!r} cannot hold it back for "
                f"others: it needs a newer version of shmq, or subscribe with policy='drop-oldest'"
            )
        self._stream = stream
        self._number = number
        self._ended = False

    def take(self, position: Mapping[int, int]) -> None:
        """See :class:`shmq.client.shared.subscription.RetentionFloors`."""
        self._stream.ask(Type.HOLD, self._said(position))

    def move(self, position: Mapping[int, int]) -> None:
        """Nothing to do: the reader's next FETCH includes the position."""

    def reader(self, position: dict[int, int], limit: int, on_damage: api.OnDamage) -> api.Reader:
        """See :class:`shmq.client.shared.subscription.RetentionFloors`."""
        hold = self._number
        return RemoteReader(
            self._stream, position, limit, None, "skip", None, on_damage, follows=True, hold=hold
        )

    def close(self) -> None:
        """See :class:`shmq.client.shared.subscription.RetentionFloors`."""
        self._end(wait=True)

    def drop(self) -> None:
        """See :class:`shmq.client.shared.subscription.RetentionFloors`."""
        self._end(wait=False)

    def _said(self, position: Mapping[int, int]) -> bytes:
        return Hold(self._stream.identity, self._number, list(position.items())).pack()

    def _end(self, *, wait: bool) -> None:
        """Release the hold; with a lost connection, the server has already dropped it."""
        connection = self._stream.connection
        wire = connection.wire
        if self._ended or wire is None or wire.is_broken or not wire.is_of_this_process:
            return
        self._ended = True
        with contextlib.suppress(ShmqError):
            answer = wire.request(Type.HOLD, True, self._said({}))
            if wait:
                connection.await_(wire, answer, connection.target.request_timeout)
            else:
                wire.forget(answer)
                wire.send()
