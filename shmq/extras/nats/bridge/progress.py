"""How far a route has come: its counts, its lag, its last acknowledgement; and all as metrics."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Sequence
from typing import Literal

from shmq.metrics.exposition import collect_family, render_metrics
from shmq.metrics.families import BRIDGE

Direction = Literal["forward", "backward", "mirror"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """The numbers of a route at one moment."""

    direction: Direction
    source: str
    target: str
    #: Whether the last attempt reached the cluster.
    connected: bool
    #: Messages that the other side has taken and acknowledged.
    sent: int
    #: Those of them that it had already: a crash or a retry had sent them before.
    duplicates: int
    #: Messages that the other side never takes: they are in the dead-letter queue.
    refused: int
    #: Messages that still wait on this side, and the age of the oldest in seconds.
    lag_messages: int
    lag_seconds: float
    #: When the other side acknowledged the last message, in seconds since 1970; 0: never.
    last_ack: float


class Progress:
    """The numbers of one route, which its thread writes and any thread reads."""

    def __init__(self, direction: Direction, source: str, target: str) -> None:
        self._lock = threading.Lock()
        self._numbers = Numbers(
            direction=direction,
            source=source,
            target=target,
            connected=False,
            sent=0,
            duplicates=0,
            refused=0,
            lag_messages=0,
            lag_seconds=0.0,
            last_ack=0.0,
        )

    def read(self) -> Numbers:
        """The numbers now."""
        with self._lock:
            return self._numbers

    def took(self, sent: int, duplicates: int = 0, refused: int = 0) -> None:
        """Count what the other side answered."""
        with self._lock:
            now = self._numbers
            self._numbers = dataclasses.replace(
                now,
                connected=True,
                sent=now.sent + sent,
                duplicates=now.duplicates + duplicates,
                refused=now.refused + refused,
                last_ack=time.time() if sent else now.last_ack,
            )

    def lags(self, messages: int, seconds: float) -> None:
        """Say what still waits."""
        with self._lock:
            self._numbers = dataclasses.replace(
                self._numbers, lag_messages=messages, lag_seconds=seconds
            )

    def is_connected(self, connected: bool) -> None:
        """Say whether the cluster was reached."""
        with self._lock:
            self._numbers = dataclasses.replace(self._numbers, connected=connected)

    def __str__(self) -> str:
        now = self.read()
        return f"{now.direction} of {now.source!r} to {now.target!r}"


def render_bridge(namespace: str, routes: Sequence[Numbers]) -> bytes:
    """Return all samples of the routes, ended by ``# EOF``."""
    return render_metrics(
        metric
        for family, read in BRIDGE
        for metric in collect_family(
            family,
            [((namespace, one.direction, one.source, one.target), read(one)) for one in routes],
        )
    )
