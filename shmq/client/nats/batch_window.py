"""Puts to a queue of a cluster that do not wait for each other's answers."""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
from types import TracebackType
from typing import Any

from shmq import api, errors
from shmq.api.options import Confirm
from shmq.client.local.batch_window import refused
from shmq.client.nats.loop_thread import LoopThread

__all__ = ["NatsPipeline"]


class NatsPipeline(api.Pipeline):
    """See :class:`shmq.api.Pipeline`. For one thread at a time."""

    def __init__(self, queue: Any, window: int, confirm: Confirm | None) -> None:
        self._queue = queue
        self._window = window
        self._confirm = confirm
        self._number = 0
        self._taken = 0
        self._flight: collections.deque[tuple[int, concurrent.futures.Future[api.Put]]] = (
            collections.deque()
        )
        self._failures: dict[int, errors.ShmqError] = {}
        self._unknown: list[int] = []

    @property
    def taken(self) -> int:
        """See :class:`shmq.api.Pipeline`."""
        return self._taken

    def put(self, body: api.Body, **properties: Any) -> int:
        """See :class:`shmq.api.Pipeline`."""
        if self._failures or self._unknown:
            self.flush()
        queue = self._queue
        confirm = properties.pop("confirm", None)
        queue.puts.check_confirm(self._confirm if confirm is None else confirm)
        item = queue.puts.item(body, properties)
        if len(self._flight) >= self._window:
            self._settle(self._window // 2)
        queue.check_open()
        put = queue.puts.put(item, queue.puts.waits(None, None), None)
        future = asyncio.run_coroutine_threadsafe(put, LoopThread.get().loop)
        self._flight.append((self._number, future))
        self._number += 1
        return self._number - 1

    def _settle(self, left: int) -> None:
        """Wait until no more than ``left`` puts are in flight."""
        while len(self._flight) > left:
            number, future = self._flight.popleft()
            try:
                future.result()
            except errors.ConnectionLost:
                self._unknown.append(number)
            except errors.ShmqError as error:
                self._failures[number] = error
            else:
                self._taken += 1

    def flush(self) -> None:
        """See :class:`shmq.api.Pipeline`."""
        self._settle(0)
        if self._failures or self._unknown:
            failures, self._failures = self._failures, {}
            unknown, self._unknown = self._unknown, []
            raise refused(self._taken, failures, unknown, self._queue.name)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.flush()
