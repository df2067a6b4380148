"""The one thread that looks at all queues, streams and exchanges, however many browsers read."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

import shmq
from shmq.extras.console.history import History
from shmq.host.diagnose.activity import Observation, Observer

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
