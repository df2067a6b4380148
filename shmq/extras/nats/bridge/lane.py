"""A route at work: its steps, the pauses while the other side is away, and its end."""

from __future__ import annotations

import abc
import logging
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

from shmq import api
from shmq.errors import (
    ConnectionLost,
    Full,
    LockTimeout,
    NoSpace,
    NoSuchQueue,
    NoSuchStream,
    NotConfirmed,
    OutOfSequence,
    QueueDeleted,
    ShmqError,
    StreamDeleted,
)
from shmq.extras.nats.bridge.progress import Progress

log = logging.getLogger("shmq.bridge")

#: The pauses after a failure, in seconds: the first, and the longest; each is twice the last one.
_FIRST: Final = 0.1
_LONGEST: Final = 5.0

#: How long one step waits for messages, in seconds, and if the lane is to end without any.
_LOOK: Final = 1.0
_SHORT: Final = 0.05

#: A queue or stream is not there, or not there any more: both sides are opened again.
_GONE: Final = (NoSuchQueue, NoSuchStream, QueueDeleted, StreamDeleted)

#: What passes: the cluster or the queue is away, or one of them is full or locked.
PASSING: Final = (ConnectionLost, Full, LockTimeout, NoSpace, NotConfirmed, OutOfSequence, *_GONE)


class Lane(abc.ABC):
    """One route. One thread calls its methods, in the order `open`, `step` …, `close`."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self._looked = 0.0

    @abc.abstractmethod
    def open(self) -> None:
        """Open both sides. Raises what `PASSING` has if it must be tried again, else ShmqError."""

    @abc.abstractmethod
    def step(self, *, careful: bool, patience: float) -> bool:
        """Take some messages across, or wait so long for some; returns whether there were any.

        ``careful``: the last step failed, so take only a few.
        """

    @abc.abstractmethod
    def is_drained(self) -> bool:
        """Whether this side has nothing left, also nothing that is leased or delayed."""

    @abc.abstractmethod
    def lag(self) -> tuple[int, float]:
        """What is not across yet: how many, and the age of the oldest in seconds."""

    def tell_lag(self, *, again: bool = False) -> None:
        """Tell the lag, once a second; ``again``: now."""
        now = time.monotonic()
        if again or now - self._looked >= _LOOK:
            self._looked = now
            self.progress.lags(*self.lag())

    @property
    @abc.abstractmethod
    def handles(self) -> Sequence[Any]:
        """What `open` has opened; None for what it has not."""

    def close(self) -> None:
        """Close both sides. May be called again."""
        for handle in self.handles:
            if handle is not None:
                handle.close()


def queue_lag(queue: api.Queue) -> tuple[int, float]:
    """The lag of a route from a queue."""
    stats = queue.stats()
    return stats.depth + stats.delayed + stats.in_flight, stats.oldest_age


def drive(lane: Lane, stop: threading.Event, drain: bool) -> None:
    """Work until ``stop`` is set, or with ``drain`` until nothing is left.

    Raises ShmqError for what does not pass.
    """
    name = str(lane.progress)
    pause, is_open, reported = _FIRST, False, ""
    while not stop.is_set():
        try:
            if not is_open:
                lane.open()
                is_open = True
            found = lane.step(careful=pause > _FIRST, patience=_SHORT if drain else _LOOK)
            if reported:
                log.info("%s: going on", name)
            pause, reported = _FIRST, ""
            if drain and not found and lane.is_drained():
                log.info("%s: nothing is left", name)
                return
        except PASSING as error:
            if drain and not is_open and isinstance(error, NoSuchQueue | NoSuchStream):
                error.args = (f"{name}: {error}",)  # nothing will come out of it
                raise
            lane.progress.is_connected(False)
            if str(error) != reported:
                log.warning("%s: waiting: %s", name, error)
                reported = str(error)
            if isinstance(error, _GONE):
                lane.close()
                is_open = False
            pause = min(2 * pause, _LONGEST)
            stop.wait(pause)
        except ShmqError as error:
            error.args = (f"{name}: {error}",)
            raise
