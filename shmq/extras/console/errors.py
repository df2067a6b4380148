"""The errors of a queue's messages, in groups; one reading serves all callers for some seconds."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterable
from typing import Final

import shmq
from shmq.api.message import error_of
from shmq.host.diagnose.activity import QueueActivity
from shmq.model.expression.error_group import select_group

#: The most messages of a queue that are read, and the most bytes of their bodies.
MOST_MESSAGES: Final = 1000
_MOST_BYTES: Final = 16 << 20
#: How long a reading is used while the queue changes: in seconds, and as a multiple of the time
#: that the reading took; the longer of the two.
_LASTS: Final = 5.0
_TIMES: Final = 20.0
#: The most queues whose errors are remembered.
_MOST_QUEUES: Final = 100


@dataclasses.dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Messages that failed in the same way."""

    #: Why they are dead letters; empty: they are not.
    reason: str
    #: The queue that they came from; empty for messages that are not dead letters.
    source: str
    #: The last error; empty: none was reported.
    error: str
    count: int
    #: When the first and the last of them failed, in seconds since 1970; None: unknown.
    first: float | None
    last: float | None

    @property
    def where(self) -> str | None:
        """The expression that selects the group; None for messages that did not fail."""
        if not self.reason and not self.error:
            return None
        if not self.reason:
            return select_group(self.error)
        return select_group(self.error or None, self.reason, self.source)


@dataclasses.dataclass(frozen=True, slots=True)
class Errors:
    """The errors of one queue."""

    #: When they were read, in seconds since 1970.
    at: float
    #: The one with the newest error first.
    groups: tuple[ErrorGroup, ...] = ()
    #: How many messages were read; of a longer queue the newest.
    read: int = 0


def group_errors(messages: Iterable[shmq.Message]) -> tuple[ErrorGroup, ...]:
    """The messages by reason, source and error; those that never failed have none of them."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for message in messages:
        dead, error = message.dead, error_of(message)
        reason, source = ("", "") if dead is None else (dead.reason, dead.queue)
        at = dead.at if dead is not None else error.at if error is not None else 0.0
        found.setdefault((reason, source, str(error or "")), []).append(at)
    groups = [
        ErrorGroup(*key, count=len(times), first=min(times) or None, last=max(times) or None)
        for key, times in found.items()
    ]
    return tuple(sorted(groups, key=lambda one: (-(one.last or 0.0), -one.count, one.error)))


class ErrorBook:
    """The newest reading of each queue. Its methods may be called by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: By name: what the queue was like, until when the reading lasts, and the reading.
        self._known: dict[str, tuple[object, float, Errors]] = {}

    def of(self, broker: shmq.Broker, queue: QueueActivity) -> Errors:
        """The errors of the queue's visible messages; none of one that cannot be read."""
        stats = queue.stats
        if stats is None or not stats.depth:
            return Errors(time.time())
        like = (queue.identity, stats.put, stats.acked, stats.nacked, stats.expired, stats.depth)
        with self._lock:
            known = self._known.get(queue.name)
        if known is not None and (known[0] == like or time.monotonic() < known[1]):
            return known[2]
        began = time.monotonic()
        found = _read_errors(broker, queue.name, stats)
        lasts = max(_LASTS, _TIMES * (time.monotonic() - began))
        with self._lock:
            self._known.pop(queue.name, None)
            self._known[queue.name] = (like, time.monotonic() + lasts, found)
            if len(self._known) > _MOST_QUEUES:
                del self._known[next(iter(self._known))]
        return found


def _read_errors(broker: shmq.Broker, name: str, stats: shmq.QueueStats) -> Errors:
    held = stats.depth + stats.in_flight + stats.delayed
    mean = max(stats.arena_used // max(held, 1), 1)
    most = max(min(MOST_MESSAGES, _MOST_BYTES // mean), 10)
    at = time.time()
    try:
        with broker.queue(name) as queue:
            newest = f"sequence > {max(stats.put - most, 0)}" if stats.depth > most else None
            messages = queue.peek(most, where=newest) or queue.peek(most)
    except shmq.ShmqError:  # deleted, of another process alone, locked: other numbers are shown
        return Errors(at)
    return Errors(at, group_errors(messages), len(messages))
