"""Puts and acknowledgements that a thread has started in the loop and does not wait for."""

from __future__ import annotations

import asyncio
import collections
import threading
from collections.abc import Callable
from typing import Any

from shmq.extras.nats.client.loop_thread import Begun, LoopThread
from shmq.native import _core


class Flight:
    """Operations under way, which are started in the order in which they were given.

    The loop is woken once for many, and none has a task unless it must be repeated. For one thread
    at a time.
    """

    def __init__(self) -> None:
        self._waiting: collections.deque[tuple[Callable[[Begun[Any]], None], _Operation]] = (
            collections.deque()
        )
        #: Whether the loop will look for what waits.
        self._is_told = False
        #: How many were given, which the thread counts, and how many have ended: the loop does.
        self._given = 0
        self.ended = 0
        #: The errors by the number of the operation.
        self.errors: dict[int, BaseException] = {}
        #: The number of ends that the thread waits for.
        self._awaited = 0
        self._reached = threading.Event()
        self._drained: asyncio.Future[None] | None = None
        self._generation = _core.generation()

    def _forget_parents(self) -> None:
        """In the child of a fork, leave what is under way to the parent, which has the loop."""
        if _core.generation() != self._generation:
            self._generation = _core.generation()
            self._waiting.clear()
            self._is_told = False
            self._given = self.ended
            self._reached = threading.Event()
            self._drained = None

    @property
    def open(self) -> int:
        """How many are under way."""
        return self._given - self.ended

    def begin(self, begin: Callable[[Begun[Any]], None]) -> int:
        """Have the loop begin an operation; returns its number."""
        self._forget_parents()
        number = self._given
        self._given += 1
        self._waiting.append((begin, _Operation(self, number)))
        if not self._is_told:
            self._is_told = True
            LoopThread.get().loop.call_soon_threadsafe(self._start)
        return number

    def _start(self) -> None:
        self._is_told = False  # before it looks: what is added from now on is announced again
        while self._waiting:
            begin, operation = self._waiting.popleft()
            operation.start(begin)

    def note(self, number: int, error: BaseException | None) -> None:
        """An operation has ended; in the loop."""
        if error is not None:
            self.errors[number] = error
        self.ended += 1
        if self.ended == self._awaited:
            self._reached.set()
        if self._drained is not None and not self.open and not self._drained.done():
            self._drained.set_result(None)

    def wait(self, left: int = 0) -> None:
        """Return once no more than `left` are under way; not in the loop."""
        self._forget_parents()
        awaited = self._given - left
        if self.ended < awaited:
            self._awaited = awaited
            self._reached.clear()
            if self.ended < awaited:  # it looks again: the last one may have ended before `clear`
                self._reached.wait()

    async def drain(self) -> None:
        """Return once none is under way; in the loop."""
        while self.open:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained

    def take_errors(self) -> dict[int, BaseException]:
        """The errors of those that have ended, in their order; they are forgotten."""
        found, self.errors = self.errors, {}
        return dict(sorted(found.items()))


class _Operation(Begun[Any]):
    """One of a flight."""

    __slots__ = ("_flight", "_number")

    def __init__(self, flight: Flight, number: int) -> None:
        super().__init__()
        self._flight = flight
        self._number = number

    def _on_end(self, _: Any, error: BaseException | None) -> None:
        self._flight.note(self._number, error)
