"""Puts to a remote queue that do not wait for each other's answers."""

from __future__ import annotations

import collections
from types import TracebackType
from typing import Any

from shmq import api, errors
from shmq.api.options import Confirm
from shmq.client.local.batch_window import refused
from shmq.client.remote.durable_wait import is_durable
from shmq.client.remote.put import encode, with_id
from shmq.native import _clock as time
from shmq.native import _core
from shmq.protocol.opcodes import Status

_TAKEN = (Status.OK, Status.DUPLICATE)


class RemotePipeline(api.Pipeline):
    """Implements :class:`shmq.api.Pipeline`. For one thread at a time.

    Requests gather while answers are outstanding: half a window is sent in one piece.
    """

    def __init__(self, queue: Any, window: int, confirm: Confirm | None) -> None:
        self._queue = queue
        self._connection = queue.connection
        self._window = window
        self._confirm = confirm
        self._durable = is_durable(queue, confirm)
        self._flight: collections.deque[_Flight] = collections.deque()
        self._unsent = 0
        self._number = 0
        self._taken = 0
        self._failures: dict[int, errors.ShmqError] = {}
        self._unknown: list[int] = []
        self._unconfirmed: dict[int, errors.ShmqError] = {}

    @property
    def taken(self) -> int:
        return self._taken

    def put(self, body: api.Body, **properties: Any) -> int:
        self._forget_parents()
        if self._failures or self._unknown or self._unconfirmed:
            self.flush()
        queue = self._queue
        durable = self._durable
        if "confirm" in properties:
            confirm = properties.pop("confirm")
            durable = durable if confirm is None else is_durable(queue, confirm)
        if type(body) is bytes and not properties:
            meta = None
        else:
            meta, body = encode(body, queue.options.priorities, properties)
        queue.puts.check_size(body, meta)
        known = properties.get("dedupe_id") is not None
        if queue.puts.identified and not known:
            meta = with_id(meta)
        if len(self._flight) >= self._window:
            self._settle(self._window // 2)
        wire = self._wire()
        number = self._number
        began = time.monotonic()
        answer = wire.produce(meta, body, durable)
        self._flight.append((number, began, wire, answer, meta, body, known, durable))
        self._number += 1
        self._unsent += 1
        if self._unsent * 2 >= self._window:
            self._send(wire)
        return number

    def _forget_parents(self) -> None:
        """In the child of a fork, leave the puts in flight to the parent, which has sent them."""
        if self._flight and not self._flight[0][2].is_of_this_process:
            self._flight.clear()
            self._unsent = 0

    def _wire(self) -> _core.Wire:
        wire: _core.Wire | None = self._connection.wire
        if wire is None or not wire.is_usable:
            patience = self._connection.target.request_timeout
            ready: _core.Wire = self._connection.ready(time.monotonic() + patience)
            return ready
        return wire

    def _send(self, wire: _core.Wire) -> None:
        wire.send()
        self._unsent = 0

    def _settle(self, left: int) -> None:
        """Wait until no more than ``left`` puts are in flight."""
        while len(self._flight) > left:
            flight = self._flight.popleft()
            _, _, wire, answer, *_ = flight
            if not answer.is_ready:
                self._unsent = 0
                try:
                    self._queue.puts.await_put(wire, answer, flight[-1])
                except errors.NotConfirmed as error:
                    self._unconfirmed[flight[0]] = error
                    continue
                except BaseException:
                    self._unknown.append(flight[0])
                    raise
            if answer.done and not answer.lost and answer.status in _TAKEN:
                self._taken += 1
            else:
                self._again(flight)

    def _again(self, flight: _Flight) -> None:
        """Retry a put that was refused or lost, as a single put does."""
        number, began, wire, answer, meta, body, known, durable = flight
        try:
            self._queue.puts.put_again(began, wire, answer, meta, body, None, None, known, durable)
        except errors.NotConfirmed as error:
            self._unconfirmed[number] = error
        except errors.ConnectionLost as error:
            if wire.may_have_arrived(answer):
                self._unknown.append(number)
            else:
                self._failures[number] = error
        except errors.ShmqError as error:
            self._failures[number] = error
        else:
            self._taken += 1

    def flush(self) -> None:
        self._forget_parents()
        self._settle(0)
        if self._failures or self._unknown or self._unconfirmed:
            failures, self._failures = self._failures, {}
            unknown, self._unknown = self._unknown, []
            doubtful, self._unconfirmed = self._unconfirmed, {}
            raise refused(self._taken, failures, unknown, self._queue.name, doubtful)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.flush()
        elif self._flight:
            self._flight[-1][2].send()  # they are put, as those before them were


#: Number, start time, wire, answer, packed properties, body, whether the application gave it a
#: dedupe id, and whether it must be on disk.
_Flight = tuple[int, float, _core.Wire, _core.Answer, bytes | None, Any, bool, bool]
