"""The bridge: its lanes, each in a thread, and their end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

import shmq
from shmq.extras.nats.bridge.backward import BackwardLane
from shmq.extras.nats.bridge.config import Bridge
from shmq.extras.nats.bridge.forward import ForwardLane
from shmq.extras.nats.bridge.lane import Lane, drive
from shmq.extras.nats.bridge.mirror import MirrorLane
from shmq.extras.nats.bridge.progress import Numbers

log = logging.getLogger("shmq.bridge")

#: How long the lanes may take to finish their steps, in seconds.
_ENDING: Final = 60.0


class Cluster:
    """The broker of the cluster, which is connected by the first lane that reaches it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._broker: Any = None

    def __call__(self) -> Any:
        """The broker. Raises ConnectionLost while the cluster is away."""
        with self._lock:
            if self._broker is None:
                self._broker = shmq.connect(self._url)
            return self._broker

    def close(self) -> None:
        """Close the broker, if there is one."""
        with self._lock:
            if self._broker is not None:
                self._broker.close()


class RunningBridge:
    """All routes of a configuration at work, between entering and leaving it.

    ``drain``: each lane ends once it has nothing left.
    """

    def __init__(self, config: Bridge, *, drain: bool = False) -> None:
        self._stop = threading.Event()
        self._drain = drain
        self._problem: BaseException | None = None
        self._changed = threading.Condition()
        self._here = shmq.connect(config.namespace or None)
        self._there = Cluster(config.url)
        self._lanes: Sequence[Lane] = [
            *(ForwardLane(self._here, self._there, route) for route in config.forward),
            *(BackwardLane(self._here, self._there, route) for route in config.backward),
            *(MirrorLane(self._here, self._there, route) for route in config.mirror),
        ]
        self._threads = [
            threading.Thread(target=self._drive, args=(lane,), name=str(lane.progress), daemon=True)
            for lane in self._lanes
        ]
        self._busy = len(self._threads)

    @property
    def namespace(self) -> str:
        """The namespace of this host."""
        return self._here.namespace

    def numbers(self) -> list[Numbers]:
        """The numbers of all routes."""
        return [lane.progress.read() for lane in self._lanes]

    def stop(self) -> None:
        """Let the lanes end after their steps; from a signal handler, too."""
        self._stop.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Whether all lanes ended within ``timeout`` seconds. Raises what one failed with."""
        with self._changed:
            done = self._changed.wait_for(
                lambda: not self._busy or self._problem is not None, timeout
            )
        if self._problem is not None:
            raise self._problem
        return done

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        if kind is not None and not issubclass(kind, Exception):
            return  # interrupted: what is under way ends with the process
        for thread in self._threads:
            thread.join(_ENDING)
        self._there.close()
        self._here.close()

    def _drive(self, lane: Lane) -> None:
        problem: BaseException | None = None
        try:
            drive(lane, self._stop, self._drain)
        except BaseException as error:  # noqa: BLE001 - it is raised by `wait`
            problem = error
        finally:
            lane.close()
            with self._changed:
                self._busy -= 1
                self._problem = self._problem or problem
                self._changed.notify_all()
