"""The contract of a subscription: the records of a stream whose keys match a pattern."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from shmq.api.closing import Closing

if TYPE_CHECKING:
    from shmq.api.record import Record

__all__ = ["Policy", "Subscription"]

#: What becomes of a subscriber that is too slow.
Policy = Literal["drop-oldest", "block"]


class Subscription(Closing):
    """An iterator over the records whose keys match a pattern, each subscriber at its own pace.

    It takes nothing away from anybody: the records are in the stream once, and each
    subscription has a position of its own. One thread at a time uses it.
    """

    @property
    @abc.abstractmethod
    def pattern(self) -> str:
        """What the keys have to match."""

    @property
    @abc.abstractmethod
    def policy(self) -> Policy:
        """What becomes of it where it is too slow."""

    @property
    @abc.abstractmethod
    def position(self) -> dict[int, int]:
        """The offset of what it looks at next, of each partition."""

    @property
    @abc.abstractmethod
    def lost(self) -> int:
        """How many records were overwritten before it came to them, whatever their keys."""

    @property
    @abc.abstractmethod
    def damaged(self) -> int:
        """How many were passed over, with ``on_damage="skip"``, whatever their keys."""

    @abc.abstractmethod
    def poll(self, timeout: float | None = 0.0) -> list[Record]:
        """What has come that matches, waiting for the first of it.

        None: without end. Empty if nothing came in time. Raises :class:`~shmq.ShmqError` once
        it is closed, and :class:`~shmq.DamagedFile` as `Reader.poll` does.
        """

    @abc.abstractmethod
    def __next__(self) -> Record: ...

    def __iter__(self) -> Iterator[Record]:
        return self

    @abc.abstractmethod
    def close(self) -> None:
        """End it, and hold nothing back any more. May be called again."""
