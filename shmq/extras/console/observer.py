"""The one thread that looks at everything, however many browsers read, and ten minutes of rates."""

from __future__ import annotations

import array
import bisect
import dataclasses
import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Final

import shmq
from shmq.host.diagnose.activity import Observation, Observer, Rates

#: How far back it reaches, in seconds.
SPAN: Final = 600.0
#: The most points of a queue: one each second.
_POINTS: Final = 600
#: The most queues and streams whose history is kept: 50 KB each.
_MOST_NAMES: Final = 5000


@dataclasses.dataclass(frozen=True, slots=True)
class Series:
    """What a queue or stream did: a list of values for each column, oldest first.

    ``at`` is in seconds since 1970, the rates in messages per second, ages in seconds. The rates
    are those of :class:`Rates`; of a stream only ``rate_in`` is not 0.
    """

    at: list[float]
    rate_in: list[float]
    rate_out: list[float]
    rate_failed: list[float]
    rate_expired: list[float]
    rate_dead: list[float]
    depth: list[float]
    oldest_age: list[float]


_COLUMNS: Final = tuple(field.name for field in dataclasses.fields(Series))


class _Ring:
    """What one queue did at the last looks."""

    __slots__ = ("columns", "identity")

    def __init__(self, identity: int) -> None:
        self.identity = identity
        # Times and depths are exact; rates and ages need less.
        self.columns = [array.array("d" if name in {"at", "depth"} else "f") for name in _COLUMNS]

    def add(self, at: float, rates: Rates, depth: float, age: float) -> None:
        paces = (rates.put, rates.acked, rates.failed, rates.expired, rates.dead)
        each = (at, *paces, depth, age)
        for column, value in zip(self.columns, each, strict=True):
            column.append(value)
        # Cut in halves, so that each point is moved once.
        if len(self.columns[0]) >= 2 * _POINTS:
            for column in self.columns:
                del column[:-_POINTS]

    def series(self, until: float) -> Series:
        at = self.columns[0]
        end = bisect.bisect_right(at, until)
        first = max(bisect.bisect_left(at, at[end - 1] - SPAN), end - _POINTS) if end else 0
        return Series(*(list(column[first:end]) for column in self.columns))


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
                    key = ("queue", queue.name)
                    there.add(key)
                    ring = self._ring(key, queue.identity)
                    ring.add(found.at, queue.rates, queue.stats.depth, queue.stats.oldest_age)
            for stream in found.streams[:_MOST_NAMES]:
                if stream.problem is None:
                    key = ("stream", stream.name)
                    there.add(key)
                    rates = Rates(put=stream.rate_in)
                    self._ring(key, 0).add(found.at, rates, stream.records, stream.oldest_age)
            self._rings = {key: ring for key, ring in self._rings.items() if key in there}

    def _ring(self, key: tuple[str, str], identity: int) -> _Ring:
        ring = self._rings.get(key)
        if ring is None or ring.identity != identity:
            ring = self._rings[key] = _Ring(identity)
        return ring

    def of(self, kind: str, name: str, until: float = math.inf) -> Series:
        """The series of a ``"queue"`` or ``"stream"``; empty where it was not observed."""
        with self._lock:
            ring = self._rings.get((kind, name))
            return ring.series(until) if ring is not None else Series(*([] for _ in _COLUMNS))


log = logging.getLogger("shmq.console")

#: The time between two looks, in seconds.
INTERVAL: Final = 1.0
#: At most this part of the time is spent looking, so that a thousand queues take 5% of a core.
_SHARE: Final = 0.05
_LONGEST: Final = 15.0
#: After how long without a look what was seen last is old, in seconds: longer than any pause.
_OLD: Final = 30.0
#: How long the first page may wait for the first look, in seconds.
_PATIENCE: Final = 10.0


class ObserverThread:
    """Keeps the newest :class:`Observation` and the history of ten minutes.

    ``latest`` may be called by any thread; listeners are called by the observer's own.
    """

    def __init__(
        self, broker: shmq.Broker, history: History, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._seen_at = clock()
        self.history = history
        self._observer = Observer(broker)
        self._latest: Observation | None = None
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._listeners: list[Callable[[Observation], None]] = []
        self._thread = threading.Thread(target=self._run, name="shmq-observer", daemon=True)
        #: Why the last look failed; None: it did not.
        self.problem: str | None = None

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and detach from the queues."""
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(_PATIENCE)

    def listen(self, listener: Callable[[Observation], None]) -> Callable[[], None]:
        """Call ``listener`` after each look, from the observer's thread; the result ends that."""
        with self._changed:
            self._listeners.append(listener)

        def end() -> None:
            with self._changed:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return end

    def latest(self) -> Observation:
        """The newest observation; the first is waited for.

        Raises :class:`shmq.ConnectionLost` if there is none within ten seconds.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self._latest is not None or self._stop.is_set(), _PATIENCE
            )
            if self._latest is None:
                raise shmq.ConnectionLost(
                    f"nothing could be observed yet: {self.problem or 'the first look still runs'}"
                )
            return self._latest

    def old(self) -> str | None:
        """Since when, and why, nothing was seen; None if :meth:`latest` is of now."""
        age = self._clock() - self._seen_at
        if self._latest is None or age < _OLD + self._latest.seconds:
            return None
        return f"nothing was seen for {age:.0f} s: {self.problem or 'a look still runs'}"

    def _run(self) -> None:
        pause = 0.0
        with self._observer:
            while not self._stop.wait(pause):
                began = time.thread_time()
                self._poll()
                spent = time.thread_time() - began
                pause = min(max(INTERVAL, spent / _SHARE), _LONGEST)

    def _poll(self) -> None:
        try:
            found = self._observer.look()
        except (shmq.ShmqError, OSError) as error:
            if self.problem is None:
                log.warning("the queues cannot be observed: %s", error)
            self.problem = str(error)
            return
        except Exception as error:
            log.exception("the observer failed: it looks again")
            self.problem = f"{type(error).__name__}: {error}"
            return
        self.problem = None
        self.history.add(found)
        with self._changed:
            self._latest, self._seen_at = found, self._clock()
            listeners = list(self._listeners)
            self._changed.notify_all()
        for listener in listeners:
            try:
                listener(found)
            except Exception:
                log.exception("what follows the observer failed: it goes on")
