"""The queues or streams that a query reads, as the process beside the driver has them open."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

import shmq
from shmq.errors import NoSuchQueue, NoSuchStream, QueueDeleted, StreamDeleted
from shmq.spark.shared.address import Address
from shmq.spark.shared.subscription import Subscription

#: The errors that say that a queue or a stream was deleted.
GONE: Final = (NoSuchQueue, QueueDeleted, NoSuchStream, StreamDeleted)

#: How often what costs more is looked up again, in seconds.
LOOK: Final = 1.0

_Handle = TypeVar("_Handle", shmq.Queue, shmq.Stream)


class Handles(Generic[_Handle]):
    """One connection, and a handle of each queue or stream. One thread calls its methods."""

    def __init__(
        self, address: Address, subscription: Subscription, chosen: Mapping[str, Any]
    ) -> None:
        self._address = address
        self._subscription = subscription
        self._strict: bool = chosen["failOnDataLoss"]
        self._broker: shmq.Broker | None = None
        self._handles: dict[str, _Handle] = {}
        self._names: tuple[str, ...] = ()
        self._looked = 0.0

    def names(self) -> tuple[str, ...]:
        """Those that exist. Raises NoSuchQueue or NoSuchStream for a named one that does not."""
        now = time.monotonic()
        if not self._names or now - self._looked >= LOOK:
            self._names = self._subscription.find(self._ensure_connected(), strict=self._strict)
            self._looked = now
        return self._names

    def report(self) -> dict[str, Any]:
        """What waits to be read, for the query's progress."""
        raise NotImplementedError

    def close(self) -> None:
        """Detach."""
        if self._broker is not None:
            self._broker.close()

    def _open(self, broker: shmq.Broker, name: str) -> _Handle:
        raise NotImplementedError

    def _ensure_connected(self) -> shmq.Broker:
        if self._broker is None:
            self._broker = self._address.connect()
        return self._broker

    def _handle(self, name: str) -> _Handle:
        if name not in self._handles:
            self._handles[name] = self._open(self._ensure_connected(), name)
        return self._handles[name]

    def _forget(self, name: str) -> None:
        self._looked = 0.0
        if name in self._handles:
            self._handles.pop(name).close()

    @contextlib.contextmanager
    def _gone_is_fine(self, name: str) -> Iterator[None]:
        """Ignore that it is deleted: the next lookup finds those that exist then."""
        try:
            yield
        except GONE:
            self._forget(name)
