"""Delivery of messages from an event loop of kombu, such as that of Celery's worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from shmq.integrations.celery.ready_event import ReadyEvent

if TYPE_CHECKING:
    import shmq
    from shmq.integrations.celery.transport import Transport

__all__ = ["LoopDelivery"]

#: The most messages that are delivered before the loop's other callbacks have a turn.
_TURN: Final = 64


class LoopDelivery:
    """Delivers the messages of a transport at each turn of a loop, and wakes the loop for them.

    While the transport may take no message, the loop sleeps: an acknowledgement is a turn anyway.
    """

    def __init__(self, transport: Transport, loop: Any) -> None:
        self._transport = transport
        self._loop = loop
        self._queues: list[shmq.Queue] = []
        self._event: ReadyEvent | None = None
        loop.on_tick.add(self._turn)

    def _turn(self) -> None:
        self._transport.deliver(_TURN)
        queues = self._transport.active_queues()
        if queues:
            self._watch(queues)

    def _watch(self, queues: list[shmq.Queue]) -> None:
        if queues != self._queues:
            self._forget()
            self._queues, self._event = queues, ReadyEvent(queues)
        assert self._event is not None
        if self._event.fileno() not in self._loop.readers:
            self._loop.add_reader(self._event.fileno(), lambda: None)
        self._event.clear()

    def _forget(self) -> None:
        if self._event is not None:
            if self._event.fileno() in self._loop.readers:
                self._loop.remove_reader(self._event.fileno())
            self._event.close()
        self._queues, self._event = [], None

    def close(self) -> None:
        """Leave the loop."""
        self._loop.on_tick.discard(self._turn)
        self._forget()
