"""What connections hold back of streams, each hold for as long as its connection."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Final

from shmq.client.local.retention_hold import REMOTE, RetentionHold
from shmq.client.local.stream import LocalStream
from shmq.errors import NoSpace
from shmq.native._core import Session

__all__ = ["RetentionHolds"]

#: How many holds a connection has at most.
_MOST: Final = 16

#: A stream's identity, and the number that the client knows the hold by.
_Key = tuple[int, int]


class RetentionHolds:
    """The holds of all connections, of each by their numbers."""

    def __init__(self) -> None:
        self._held: dict[Session, dict[_Key, RetentionHold]] = {}

    @contextlib.contextmanager
    def keeping(
        self, session: Session, stream: LocalStream, number: int, position: Mapping[int, int]
    ) -> Iterator[None]:
        """Take the hold, or move it, for the rest of the request.

        Raises InvalidOption, NoSpace, and OffsetOutOfRange. With the last one it is held
        nevertheless, from what is left on; with any other error, of the rest as well, nothing
        is that was not before.
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
        """Drop it, if there is one."""
        held = self._held.get(session, {}).pop((stream.identity, number), None)
        if held is not None:
            held.close()

    def has(self, stream: LocalStream) -> bool:
        """Whether anybody holds it back."""
        return any(held.stream is stream for mine in self._held.values() for held in mine.values())

    def left(self, session: Session) -> None:
        """The connection is gone: it holds nothing any more."""
        for held in self._held.pop(session, {}).values():
            held.close()

    def close(self) -> None:
        """Nothing is held any more."""
        for session in list(self._held):
            self.left(session)
