"""Puts to a queue of a cluster that do not wait for each other's answers."""

from __future__ import annotations

from functools import partial
from types import TracebackType
from typing import Any

from shmq import api, errors
from shmq.api.options import Confirm
from shmq.client.handles.pipeline import refused
from shmq.extras.nats.client.flight import Flight


class NatsPipeline(api.Pipeline):
    """Implements :class:`shmq.api.Pipeline`. For one thread at a time."""

    def __init__(self, queue: Any, window: int, confirm: Confirm | None) -> None:
        self._queue = queue
        self._window = window
        self._confirm = confirm
        self._flight = Flight()
        #: Of the puts that have ended, those that were refused or may be lost.
        self._failed = 0

    @property
    def taken(self) -> int:
        return self._flight.ended - self._failed - len(self._flight.errors)

    def put(self, body: api.Body, **properties: Any) -> int:
        if self._flight.errors:
            self.flush()
        queue, puts = self._queue, self._queue.puts
        confirm = properties.pop("confirm", None)
        puts.check_confirm(self._confirm if confirm is None else confirm)
        item = puts.item(body, properties)
        if self._flight.open >= self._window:
            self._flight.wait(self._window // 2)
        queue.check_open()
        is_first = item.is_grouped and not puts.has_groups
        number = self._flight.begin(partial(puts.begin, item, puts.waits(None, None), None))
        if is_first:  # the next of the group would overtake it
            self._flight.wait()
        return number

    def flush(self) -> None:
        self._flight.wait()
        found = self._flight.take_errors()
        self._failed += len(found)
        failures: dict[int, errors.ShmqError] = {}
        for number, error in found.items():
            if not isinstance(error, errors.ShmqError):
                raise error
            failures[number] = error
        unknown = [n for n, error in failures.items() if isinstance(error, errors.ConnectionLost)]
        for number in unknown:
            del failures[number]
        if failures or unknown:
            raise refused(self.taken, failures, unknown, self._queue.name)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.flush()
