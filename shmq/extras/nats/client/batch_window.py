"""Puts to a queue of a cluster that do not wait for each other's answers."""

from __future__ import annotations

from functools import partial
from typing import Any

from shmq import errors
from shmq.client.ports.queue import FlightPort
from shmq.extras.nats.client.flight import Flight
from shmq.extras.nats.client.put import Item


class NatsFlight(FlightPort):
    """The puts of one pipeline."""

    def __init__(self, port: Any, window: int) -> None:
        self._port = port
        self._window = window
        self._flight = Flight()
        #: Of the puts that have ended, those that were refused or may be lost.
        self._failed = 0

    @property
    def failures(self) -> dict[int, BaseException]:  # type: ignore[override]
        """The errors of the puts that have ended."""
        return self._flight.errors

    def begin(self, item: Item, known: bool, durable: bool) -> int:
        del known, durable  # as of a put
        port, puts = self._port, self._port.puts
        if self._flight.open >= self._window:
            self._flight.wait(self._window // 2)
        port.check_open()
        waits = port.options.overflow == "block"
        is_first = item.is_grouped and not puts.has_groups
        number = self._flight.begin(partial(puts.begin, item, waits, None))
        if is_first:  # the next of the group would overtake it
            self._flight.wait()
        return number

    def wait(self) -> None:
        self._flight.wait()

    def take_failures(self) -> dict[int, errors.ShmqError | None]:
        found = self._flight.take_errors()
        self._failed += len(found)
        failures: dict[int, errors.ShmqError | None] = {}
        for number, error in found.items():
            if not isinstance(error, errors.ShmqError):
                raise error
            failures[number] = None if isinstance(error, errors.ConnectionLost) else error
        return failures

    def count_taken(self) -> int:
        return self._flight.ended - self._failed - len(self._flight.errors)

    def leave(self) -> None:
        pass
