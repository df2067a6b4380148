"""The contract of a subscription: the records of a stream whose keys match a pattern."""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Literal, Self

from shmq.api.contract import AsyncClosing, Closing

if TYPE_CHECKING:
    from shmq.api.record import Record

#: What happens to a subscriber that is too slow.
Policy = Literal["drop-oldest", "block"]


class _Subscribed(abc.ABC):
    """What a subscription is, and how far it has come."""

    @property
    @abc.abstractmethod
    def pattern(self) -> str:
        """The pattern that keys must match."""

    @property
    @abc.abstractmethod
    def policy(self) -> Policy:
        """What happens if the subscriber is too slow."""

    @property
    @abc.abstractmethod
    def position(self) -> dict[int, int]:
        """The offset that it examines next, for each partition."""

    @property
    @abc.abstractmethod
    def lost(self) -> int:
        """How many records were overwritten before it reached them, whatever their keys."""

    @property
    @abc.abstractmethod
    def damaged(self) -> int:
        """How many records were skipped with ``on_damage="skip"``, whatever their keys."""


class Subscription(_Subscribed, Closing):
    """An iterator over the records whose keys match a pattern, at the subscriber's own pace.

    It does not affect other subscribers: the stream stores each record once, and each subscription
    has its own position. One thread at a time may use it.
    """

    @abc.abstractmethod
    def poll(self, timeout: float | None = 0.0) -> list[Record]:
        """The matching records that have come, waiting only for the first.

        A ``timeout`` of None waits without limit. The list is empty if none came in time. Raises
        :class:`~shmq.ShmqError` once it is closed, and :class:`~shmq.DamagedFile` as `Reader.poll`
        does.
        """

    @abc.abstractmethod
    def __next__(self) -> Record: ...

    def __iter__(self) -> Iterator[Record]:
        return self

    @abc.abstractmethod
    def close(self) -> None:
        """End the subscription and stop holding back appends. May be called again."""


class AsyncSubscription(_Subscribed, AsyncClosing):
    """An asynchronous :class:`Subscription`. One task at a time may use it.

    A task that is cancelled while it waits has taken no record: the next step returns it. The
    position is empty until it has started.
    """

    @abc.abstractmethod
    async def __anext__(self) -> Record: ...

    def __aiter__(self) -> AsyncIterator[Record]:
        return self

    @abc.abstractmethod
    async def aclose(self) -> None:
        """End the subscription and stop holding back appends. May be called again."""

    @abc.abstractmethod
    async def __aenter__(self) -> Self:
        """Start it. Raises what :meth:`Stream.subscribe` raises."""
