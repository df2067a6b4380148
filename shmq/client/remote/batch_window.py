"""Puts to a remote queue that do not wait for each other's answers."""

from __future__ import annotations

import collections

from shmq import errors
from shmq.client.ports.queue import FlightPort
from shmq.client.ports.steps import run
from shmq.client.remote.connection import Attempt
from shmq.client.remote.put import Packed, RemotePuts
from shmq.native import _clock as time
from shmq.native import _core
from shmq.protocol.opcodes import Status

#: Number, attempt, item, whether the application gave it a dedupe id, whether it must be on disk.
_Flying = tuple[int, Attempt, Packed, bool, bool]

_TAKEN = (Status.OK, Status.DUPLICATE)


class RemoteFlight(FlightPort):
    """The puts of one pipeline.

    Requests gather while answers are outstanding: half a window is sent in one piece.
    """

    def __init__(self, puts: RemotePuts, window: int) -> None:
        self._puts = puts
        self._connection = puts.connection
        self._window = window
        self._flight: collections.deque[_Flying] = collections.deque()
        self._unsent = 0
        self._number = 0
        self._taken = 0
        self._failures: dict[int, errors.ShmqError] = {}
        self._unknown: list[int] = []

    @property
    def open(self) -> int:
        self._forget_parents()
        return len(self._flight)

    @property
    def has_failed(self) -> bool:
        return bool(self._failures or self._unknown)

    def count_taken(self) -> int:
        return self._taken

    def begin(self, item: Packed, known: bool, durable: bool) -> int:
        wire: _core.Wire | None = self._connection.wire
        if wire is None or not wire.is_usable:
            patience = self._connection.target.request_timeout
            wire = self._connection.ready(time.monotonic() + patience)
        number = self._number
        began = time.monotonic()
        answer = wire.produce(item[0], item[1], durable)
        self._flight.append((number, Attempt(wire, answer, began), item, known, durable))
        self._number += 1
        self._unsent += 1
        if self._unsent * 2 >= self._window:
            wire.send()
            self._unsent = 0
        return number

    def _forget_parents(self) -> None:
        """In the child of a fork, leave the puts in flight to the parent, which has sent them."""
        if self._flight and not self._flight[0][1].wire.is_of_this_process:
            self._flight.clear()
            self._unsent = 0

    def wait(self, left: int) -> None:
        self._forget_parents()
        while len(self._flight) > left:
            number, (wire, answer, began), item, known, durable = self._flight.popleft()
            if not answer.is_ready:
                self._unsent = 0
                try:
                    run(self._puts.await_put(wire, answer, durable))
                except errors.NotConfirmed as error:
                    self._failures[number] = error
                    continue
                except BaseException:
                    self._unknown.append(number)
                    raise
            if answer.done and not answer.lost and answer.status in _TAKEN:
                self._taken += 1
            else:
                self._repeat(number, Attempt(wire, answer, began), item, known, durable)

    def _repeat(
        self, number: int, first: Attempt, item: Packed, known: bool, durable: bool
    ) -> None:
        """Retry a put that was refused or lost, as a single put does."""
        waits = self._puts.options.overflow == "block"
        try:
            run(self._puts.put(item[0], item[1], waits, None, known, durable, first))
        except errors.ConnectionLost as error:
            if first.wire.may_have_arrived(first.answer):
                self._unknown.append(number)
            else:
                self._failures[number] = error
        except errors.ShmqError as error:
            self._failures[number] = error
        else:
            self._taken += 1

    def take_failures(self) -> tuple[dict[int, errors.ShmqError], list[int]]:
        found = self._failures, self._unknown
        self._failures, self._unknown = {}, []
        return found

    def leave(self) -> None:
        if self._flight:
            self._flight[-1][1].wire.send()  # they are put, as those before them were
