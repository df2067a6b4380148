"""Puts to a remote queue that do not wait for each other's answers."""

from __future__ import annotations

import collections

from shmq import errors
from shmq.client.ports.queue import FlightPort, Item
from shmq.client.ports.steps import run
from shmq.client.remote.connection import Attempt
from shmq.client.remote.put import RemotePuts
from shmq.native import _clock as time
from shmq.native import _core
from shmq.protocol.opcodes import Status

#: Number, wire, answer, start time, item, whether the application gave it a dedupe id, and whether
#: it must be on disk.
_Flying = tuple[int, _core.Wire, _core.Answer, float, Item, bool, bool]

_TAKEN = (Status.OK, Status.DUPLICATE)


class RemoteFlight(FlightPort):
    """Implements `FlightPort`.

    Requests gather while answers are outstanding: half a window is sent in one piece.
    """

    def __init__(self, puts: RemotePuts, window: int) -> None:
        self._puts = puts
        self._pack = puts.pack
        self._connection = puts.connection
        self._window = window
        self._flight: collections.deque[_Flying] = collections.deque()
        self._unsent = 0
        self._number = 0
        self.taken = 0
        self.failures: dict[int, errors.ShmqError | None] = {}

    def begin(self, item: Item, known: bool, durable: bool) -> int:
        meta, body = item = self._pack(item[0], item[1], known)
        flight = self._flight
        if flight and not flight[0][1].is_of_this_process:
            self._forget_parents()
        if len(flight) >= self._window:
            self._settle(self._window // 2)
        wire: _core.Wire | None = self._connection.wire
        if wire is None or not wire.is_usable or (flight and flight[-1][1] is not wire):
            self._settle(0)  # what was lost with a connection is put again before this one
            patience = self._connection.target.request_timeout
            wire = self._connection.ready(time.monotonic() + patience)
        number = self._number
        began = time.monotonic()
        answer = wire.produce(meta, body, durable)
        flight.append((number, wire, answer, began, item, known, durable))
        self._number += 1
        self._unsent += 1
        if self._unsent * 2 >= self._window:
            wire.send()
            self._unsent = 0
        return number

    def _forget_parents(self) -> None:
        """In the child of a fork, leave the puts in flight to the parent, which has sent them."""
        if self._flight and not self._flight[0][1].is_of_this_process:
            self._flight.clear()
            self._unsent = 0

    def wait(self) -> dict[int, errors.ShmqError | None]:
        self._forget_parents()
        self._settle(0)
        found, self.failures = self.failures, {}
        return found

    def _settle(self, left: int) -> None:
        """Wait until no more than ``left`` puts are in flight."""
        while len(self._flight) > left:
            number, wire, answer, began, item, known, durable = self._flight.popleft()
            if not answer.is_ready:
                self._unsent = 0
                try:
                    run(self._puts.await_put(wire, answer, durable))
                except errors.NotConfirmed as error:
                    self.failures[number] = error
                    continue
                except BaseException:
                    self.failures[number] = None
                    raise
            if answer.done and not answer.lost and answer.status in _TAKEN:
                self.taken += 1
            else:
                self._repeat(number, Attempt(wire, answer, began), item, known, durable)

    def _repeat(self, number: int, first: Attempt, item: Item, known: bool, durable: bool) -> None:
        """Retry a put that was refused or lost, as a single put does."""
        waits = self._puts.options.overflow == "block"
        try:
            run(self._puts.put(item, waits, None, known, durable, first))
        except errors.ConnectionLost as error:
            arrived = first.wire.may_have_arrived(first.answer)
            self.failures[number] = None if arrived else error
        except errors.ShmqError as error:
            self.failures[number] = error
        else:
            self.taken += 1

    def leave(self) -> None:
        if self._flight:
            self._flight[-1][1].send()  # they are put, as those before them were
