"""Delivery of messages from an event loop of kombu, such as that of Celery's worker."""

from __future__ import annotations

import os
import threading
from typing import Any, Final, Protocol

import shmq
from shmq.native._core import reserve_standard

#: The most messages that are delivered before the loop's other callbacks have a turn.
_TURN: Final = 64


class Deliverer(Protocol):
    """What delivers messages: a transport."""

    def deliver(self, most: int, empty: set[shmq.Queue]) -> int:
        """Deliver up to ``most`` messages without waiting; returns how many.

        The queues of ``empty`` are passed over, and those that are found empty are added to it.
        """

    def consumed_queues(self) -> set[shmq.Queue]:
        """The queues that messages are delivered from."""

    def send_acks(self) -> None:
        """Send the acknowledgements that have not been sent."""


class LoopDelivery:
    """Delivers the messages of a transport at each turn of a loop, and wakes the loop for them.

    A queue that was found empty is watched, and not asked again until its descriptor is readable.
    After a delivery the loop has another turn at once: it has computed the end of its sleep before,
    and callbacks may have set timers. It sleeps while no message is visible, or while the transport
    may take none: an acknowledgement is a turn anyway.
    """

    def __init__(self, transport: Deliverer, loop: Any) -> None:
        self._transport = transport
        self._loop = loop
        self._thread = 0
        self._events: dict[shmq.Queue, shmq.ReadyEvent] = {}
        #: Those whose descriptor is in the loop: they have had no message since.
        self._empty: set[shmq.Queue] = set()
        reserve_standard()
        self._again = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        loop.add_reader(self._again, os.eventfd_read, self._again)
        loop.on_tick.add(self._turn)

    @property
    def is_here(self) -> bool:
        """Whether this thread runs the loop."""
        return threading.get_ident() == self._thread

    def _turn(self) -> None:
        self._thread = threading.get_ident()
        empty = self._empty.copy()
        delivered = self._transport.deliver(_TURN, empty)
        self._transport.send_acks()
        if self._again < 0:  # what was delivered has closed the connection
            return
        if delivered:
            os.eventfd_write(self._again, 1)
        if len(empty) > len(self._empty):
            self._watch(empty - self._empty)

    def _watch(self, queues: set[shmq.Queue]) -> None:
        for queue in self._events.keys() - self._transport.consumed_queues():
            self._forget(queue)
        for queue in queues:
            event = self._events.get(queue)
            if event is None:
                event = self._events[queue] = shmq.ReadyEvent([queue])
            event.clear()
            self._empty.add(queue)
            self._loop.add_reader(event.fileno(), self._on_readable, queue)

    def _on_readable(self, queue: shmq.Queue) -> None:
        """Leave the descriptor, which stays readable until a message may be taken."""
        self._empty.discard(queue)
        self._leave(self._events[queue].fileno())

    def _forget(self, queue: shmq.Queue) -> None:
        self._empty.discard(queue)
        event = self._events.pop(queue)
        self._leave(event.fileno())
        event.close()

    def _leave(self, descriptor: int) -> None:
        if descriptor in self._loop.readers:
            self._loop.remove_reader(descriptor)

    def close(self) -> None:
        """Leave the loop. May be called again."""
        self._loop.on_tick.discard(self._turn)
        for queue in list(self._events):
            self._forget(queue)
        if self._again >= 0:
            self._leave(self._again)
            again, self._again = self._again, -1
            os.close(again)
