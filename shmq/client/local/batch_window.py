"""A pipeline of a queue of this host, where only the disk makes a put wait."""

from __future__ import annotations

import collections
from types import TracebackType
from typing import Any

from shmq import api
from shmq.api.options import Confirm
from shmq.client.handles.pipeline import refused
from shmq.client.shared.durable_wait import not_confirmed
from shmq.errors import Full, NoSpace, PutsRefused, QueueDeleted, ShmqError


class LocalPipeline(api.Pipeline):
    """Implements :class:`shmq.api.Pipeline`.

    Messages to be confirmed on disk are put at once; the journal is asked to write at every half
    window, and waited for once a whole window is in flight.
    """

    def __init__(self, queue: Any, window: int, confirm: Confirm | None) -> None:
        self._queue = queue
        self._window = window
        self._confirm = confirm
        self._taken = 0
        self._number = 0
        #: Puts that wait for the disk: number in the pipeline, sequence number.
        self._flight: collections.deque[tuple[int, int]] = collections.deque()
        self._asked = 0

    @property
    def taken(self) -> int:
        return self._taken

    def put(self, body: api.Body, **properties: Any) -> int:
        number = self._number
        confirms = self._queue.confirms_on_disk(properties.pop("confirm", self._confirm))
        try:
            put = self._queue.put(body, **properties, confirm="memory")
        except (Full, NoSpace, QueueDeleted) as error:
            self._number += 1
            raise refused(self._taken, {number: error}, [], self._queue.name) from error
        self._number += 1
        self._taken += 1
        if confirms:
            self._flight.append((number, put.sequence))
            self._ask()
        return number

    def _ask(self) -> None:
        """Ask the journal for the last half window, and wait for the one before."""
        self._asked += 1
        if self._asked * 2 >= self._window:
            self._asked = 0
            self._queue.journal.request_sync(self._flight[-1][1])
        if len(self._flight) >= self._window:
            self._settle(self._window // 2)

    def _settle(self, left: int) -> None:
        """Wait until no more than ``left`` puts are not on disk. Raises PutsRefused."""
        while len(self._flight) > left:
            last = max(seq for _, seq in list(self._flight)[: len(self._flight) - left])
            if not self._queue.journal.wait_synced(last, None):
                raise self._make_unconfirmed()
            while self._flight and self._flight[0][1] <= last:
                self._flight.popleft()

    def _make_unconfirmed(self) -> PutsRefused:
        synced = self._queue.journal.synced
        doubtful: dict[int, ShmqError] = {
            number: not_confirmed(self._queue, seq, 1)
            for number, seq in self._flight
            if seq > synced
        }
        self._flight.clear()
        return refused(self._taken, {}, [], self._queue.name, doubtful)

    def flush(self) -> None:
        if self._flight:
            self._settle(0)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.flush()
