"""Delivery of messages from an event loop of kombu, such as that of Celery's worker."""

from __future__ import annotations

import os
from typing import Any, Final, Protocol

import shmq
from shmq.native._core import reserve_standard

#: The most messages that are delivered before the loop's other callbacks have a turn.
_TURN: Final = 64


class Deliverer(Protocol):
    """What delivers messages: a transport."""

    def deliver(self, most: int) -> int:
        """Deliver up to ``most`` messages without waiting; returns how many."""

    def active_queues(self) -> list[shmq.Queue]:
        """The queues from which a message may be taken now."""


class LoopDelivery:
    """Delivers the messages of a transport at each turn of a loop, and wakes the loop for them.

    After a delivery the loop has another turn at once: it has computed the end of its sleep before,
    and callbacks may have set timers. It sleeps while no message is visible, or while the transport
    may take none: an acknowledgement is a turn anyway.
    """

    def __init__(self, transport: Deliverer, loop: Any) -> None:
        self._transport = transport
        self._loop = loop
        self._queues: set[shmq.Queue] = set()
        self._event: shmq.ReadyEvent | None = None
        reserve_standard()
        self._again = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        loop.add_reader(self._again, os.eventfd_read, self._again)
        loop.on_tick.add(self._turn)

    def _turn(self) -> None:
        if self._transport.deliver(_TURN):
            os.eventfd_write(self._again, 1)
            return
        queues = set(self._transport.active_queues())
        if queues:
            self._watch(queues)
        elif self._event is not None:
            self._leave(self._event.fileno())  # it may be readable until a message can be taken

    def _watch(self, queues: set[shmq.Queue]) -> None:
        if queues != self._queues:
            self._forget()
            self._queues, self._event = queues, shmq.ReadyEvent(list(queues))
        if self._event is not None:
            if self._event.fileno() not in self._loop.readers:
                self._loop.add_reader(self._event.fileno(), lambda: None)
            self._event.clear()

    def _forget(self) -> None:
        if self._event is not None:
            self._leave(self._event.fileno())
            self._event.close()
        self._queues, self._event = set(), None

    def _leave(self, descriptor: int) -> None:
        if descriptor in self._loop.readers:
            self._loop.remove_reader(descriptor)

    def close(self) -> None:
        """Leave the loop. May be called again."""
        self._loop.on_tick.discard(self._turn)
        self._forget()
        if self._again >= 0:
            self._leave(self._again)
            again, self._again = self._again, -1
            os.close(again)
