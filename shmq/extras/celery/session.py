"""The broker of one connection of kombu in one process, with its handles."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

import shmq
from shmq.api.contract import unwrapped
from shmq.client.remote.queue import RemoteQueue

T = TypeVar("T")


class Session:
    """A broker with the handles of the queues and exchanges that were used through it, by name.

    The names are AMQP's. A child of a fork does not use its parent's session: see `is_own`.
    """

    def __init__(self, broker: shmq.Broker) -> None:
        self.broker = broker
        self.pid = os.getpid()
        #: How queues were declared through it, by name.
        self.declared: dict[str, dict[str, Any]] = {}
        self._queues: dict[str, shmq.Queue] = {}
        self._exchanges: dict[str, shmq.Exchange] = {}

    @property
    def is_own(self) -> bool:
        """Whether this process opened it."""
        return self.pid == os.getpid()

    def queue(self, name: str) -> shmq.Queue:
        """The handle of a queue; one that is exclusive to another connection takes puts alone.

        Raises :class:`~shmq.NoSuchQueue`.
        """
        found = self._queues.get(name)
        if found is None:
            found = self._queues[name] = self.broker.put_target(shmq.escape_name(name))
        return found

    def keep_queue(self, name: str, queue: shmq.Queue) -> None:
        """Use this handle from now on."""
        self._queues[name] = queue

    def forget_queue(self, name: str) -> None:
        """Close the handle of a queue, if there is one."""
        found = self._queues.pop(name, None)
        if found is not None:
            found.close()

    def exchange(self, name: str) -> shmq.Exchange:
        """The handle of an exchange. Raises :class:`~shmq.NoSuchExchange`."""
        found = self._exchanges.get(name)
        if found is None:
            found = self._exchanges[name] = self.broker.exchange(shmq.escape_name(name))
        return found

    def keep_exchange(self, name: str, exchange: shmq.Exchange) -> None:
        """Use this handle from now on."""
        self._exchanges[name] = exchange

    def forget_exchange(self, name: str) -> None:
        """Close the handle of an exchange, if there is one."""
        found = self._exchanges.pop(name, None)
        if found is not None:
            found.close()

    def with_queue(self, name: str, use: Callable[[shmq.Queue], T]) -> T:
        """``use`` the queue; once more, if a queue of that name was recreated in the meantime.

        Raises :class:`~shmq.NoSuchQueue`, and what ``use`` raises.
        """
        try:
            return use(self.queue(name))
        except shmq.QueueDeleted:
            self.forget_queue(name)
            return use(self.queue(name))

    def send_acks(self) -> None:
        """Send the acknowledgements to a server that no request has taken along yet."""
        for queue in list(self._queues.values()):  # other threads declare queues
            found = unwrapped(queue)
            if isinstance(found, RemoteQueue):
                found.port.send_acks()

    def close(self) -> None:
        """Close the broker; what was leased through it returns to its queues."""
        if self.is_own:
            self.broker.close()
