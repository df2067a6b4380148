"""The retention holds of connections on streams; each ends with its connection."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Final

from shmq.client.local.retention_hold import REMOTE, RetentionHold
from shmq.client.local.stream import LocalStream
from shmq.errors import NoSpace
from shmq.native._core import Session

__all__ = ["RetentionHolds"]

#: The most holds of one connection.
_MOST: Final = 16

#: A stream's identity, and the client's number of the hold.
_Key = tuple[int, int]


class RetentionHolds:
    """The holds of all connections."""

    def __init__(self) -> None:
        self._held: dict[Session, dict[_Key, RetentionHold]] = {}

    @contextlib.contextmanager
    def keeping(
        self, session: Session, stream: LocalStream, number: int, position: Mapping[int, int]
    ) -> Iterator[None]:
        """Take the hold, or move it; the block is the rest of the request.

        Raises InvalidOption, NoSpace, and OffsetOutOfRange. With the last one the hold is taken
        nevertheless, from the earliest remaining offset on. Any other error, also one of the
        block, leaves the hold as it was before.
        """
        mine = self._held.setdefault(session, {})
        key = stream.identity, number
        if key not in mine:
            if len(mine) >= _MOST:
                raise NoSpace(
                    f"this connection has {_MOST} subscriptions that hold streams back, and may "
                    f"have no more: close some, or use another connection"
                )
            mine[key] = RetentionHold(stream, REMOTE)
        try:
            with mine[key].whole():
                mine[key].take(position)
                yield
        finally:
            if mine[key].is_empty:
                del mine[key]

    def end(self, session: Session, stream: LocalStream, number: int) -> None:
        """Release the hold, if there is one."""
        held = self._held.get(session, {}).pop((stream.identity, number), None)
        if held is not None:
            held.close()

    def has(self, stream: LocalStream) -> bool:
        """Whether any connection holds the stream."""
        return any(held.stream is stream for mine in self._held.values() for held in mine.values())

    def left(self, session: Session) -> None:
        """Release the holds of a connection that is gone."""
        for held in self._held.pop(session, {}).values():
            held.close()

    def close(self) -> None:
        """Release all holds."""
        for session in list(self._held):
            self.left(session)
