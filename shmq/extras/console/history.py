"""The rates of the last ten minutes, which the console keeps in rings of its own."""

from __future__ import annotations

import array
import dataclasses
import threading
from typing import Final

from shmq.host.diagnose.activity import Observation

#: How far back it reaches, in seconds.
SPAN: Final = 600.0
#: The most points of a queue: one each second.
_POINTS: Final = 600
#: The most queues and streams whose history is kept: 10 KB each.
_MOST_NAMES: Final = 5000
_COLUMNS: Final = ("at", "put", "acked", "depth", "oldest_age")


@dataclasses.dataclass(frozen=True, slots=True)
class Series:
    """What a queue or stream did: a list of values for each column, oldest first.

    ``at`` is in seconds since 1970, the rates in messages per second, ages in seconds.
    """

    at: list[float]
    rate_in: list[float]
    rate_out: list[float]
    depth: list[float]
    oldest_age: list[float]


class _Ring:
    """The totals of one queue at the last looks."""

    __slots__ = ("columns", "identity")

    def __init__(self, identity: int) -> None:
        self.identity = identity
        self.columns = [array.array("d") for _ in _COLUMNS]

    def add(self, *values: float) -> None:
        for column, value in zip(self.columns, values, strict=True):
            column.append(value)
        at = self.columns[0]
        # Cut in halves, so that each point is moved once.
        if len(at) >= 2 * _POINTS:
            for column in self.columns:
                del column[:-_POINTS]

    def series(self) -> Series:
        at, put, acked, depth, age = (list(column[-_POINTS:]) for column in self.columns)
        first = next((n for n, when in enumerate(at) if when >= at[-1] - SPAN), 0) if at else 0
        at, put, acked, depth, age = (one[first:] for one in (at, put, acked, depth, age))
        return Series(at, _rates(at, put), _rates(at, acked), depth, age)


def _rates(at: list[float], totals: list[float]) -> list[float]:
    """The differences of the totals per second; 0 at first."""
    found = [0.0] if at else []
    for n in range(1, len(at)):
        seconds = at[n] - at[n - 1]
        found.append(max(totals[n] - totals[n - 1], 0.0) / seconds if seconds > 0 else 0.0)
    return found


class History:
    """A ring for each queue and stream. Its methods may be called by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rings: dict[tuple[str, str], _Ring] = {}

    def add(self, found: Observation) -> None:
        """Note what was observed; forget what is gone."""
        with self._lock:
            there = set()
            for queue in found.queues[:_MOST_NAMES]:
                if queue.stats is not None:
                    stats = queue.stats
                    key = ("queue", queue.name)
                    there.add(key)
                    ring = self._ring(key, queue.identity)
                    ring.add(found.at, stats.put, stats.acked, stats.depth, stats.oldest_age)
            for stream in found.streams[:_MOST_NAMES]:
                if stream.problem is None:
                    key = ("stream", stream.name)
                    there.add(key)
                    before = self._rings.get(key)
                    put = self._appended(before, found.at, stream.rate_in)
                    self._ring(key, 0).add(found.at, put, 0.0, stream.records, stream.oldest_age)
            self._rings = {key: ring for key, ring in self._rings.items() if key in there}

    def _ring(self, key: tuple[str, str], identity: int) -> _Ring:
        ring = self._rings.get(key)
        if ring is None or ring.identity != identity:
            ring = self._rings[key] = _Ring(identity)
        return ring

    @staticmethod
    def _appended(before: _Ring | None, at: float, rate: float) -> float:
        """A total that rises by the stream's own rate."""
        if before is None or not before.columns[0]:
            return 0.0
        return before.columns[1][-1] + rate * (at - before.columns[0][-1])

    def of(self, kind: str, name: str) -> Series:
        """The series of a ``"queue"`` or ``"stream"``; empty where it was not observed."""
        with self._lock:
            ring = self._rings.get((kind, name))
            return ring.series() if ring is not None else Series([], [], [], [], [])
