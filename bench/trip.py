"""Round trips: one process sends a body and the other sends it back."""

from __future__ import annotations

import time

from bench import bodies
from bench.limits import Limit, play
from bench.machine import now
from bench.row import Contestant, Figure, Role
from bench.scratch import unique_name
from bench.stage import PATIENCE, Side, Stage, together
from bench.way import Way

MEDIAN = Figure("p50", "µs", higher_is_better=False)
TAIL = Figure("p99", "µs", higher_is_better=False)

#: Trips before the clock starts.
WARM = 20
#: The fewest and the most trips of a turn.
LEAST, MOST = 50, 20_000


def round_trips(
    kind: type[Way], trips: int, cores: tuple[int, int], pause: float, patience: float = PATIENCE
) -> list[int]:
    """The durations of round trips of 64 bytes, in ns, sorted.

    If ``pause`` is not 0, the sender sleeps that many seconds before each trip, so that the
    other side sleeps, too. Raises :class:`bench.stage.Failed` if a body comes back changed.
    """
    name = unique_name()
    ping, pong = kind(f"{name}-ping", 64), kind(f"{name}-pong", 64)
    try:
        ping.create()
        pong.create()
        taken: list[int] = together(
            [
                Side(_serve, ping, pong, trips, pause, core=cores[0]),
                Side(_play_back, ping, pong, trips, core=cores[1]),
            ],
            patience,
        )[0]
    finally:
        ping.remove()
        pong.remove()
    return sorted(taken)


def _serve(stage: Stage, ping: Way, pong: Way, trips: int, pause: float) -> list[int]:
    sent = bodies.make(64)
    get, put = pong.one_receiver(), ping.one_sender()
    stage.meet()
    taken = []
    for trip in range(WARM + trips):
        body = sent[trip % len(sent)]
        if pause:
            time.sleep(pause)
        begun = now()
        put(body)
        found = get()
        ended = now()
        if found != body:
            bodies.check([found], [body])
        taken.append(ended - begun)
    stage.meet()
    return taken[WARM:]


def _play_back(stage: Stage, ping: Way, pong: Way, trips: int) -> None:
    get, put = ping.one_receiver(), pong.one_sender()
    stage.meet()
    for _ in range(WARM + trips):
        put(get())
    stage.meet()


def _figures(median: float, tail: float) -> dict[str, float]:
    return {MEDIAN.key: median / 1000, TAIL.key: tail / 1000}


def _no_core(label: str, cores: tuple[int, int]) -> str | None:
    two = label.endswith("two cores") and cores[0] == cores[1]
    return "there is one core here" if two else None


class Trip(Contestant):
    """The round trips of a way."""

    def __init__(
        self, kind: type[Way], where: str, cores: tuple[int, int], pause: float = 0.0
    ) -> None:
        self.kind = kind
        self.cores = cores
        self.pause = pause
        self.trips = LEAST
        self.label = f"{kind.label}, {where}"
        self.note = kind.note
        self.role: Role = "shmq" if kind.label.startswith("shmq") else "peer"

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        return self.kind.missing() or _no_core(self.label, self.cores)

    def calibrate(self, seconds: float) -> None:
        """See :class:`bench.row.Contestant`."""
        self.trips = LEAST
        trip = self.turn()[MEDIAN.key] / 1e6 + self.pause
        self.trips = max(LEAST, min(MOST, int(seconds / trip)))

    def turn(self) -> dict[str, float]:
        """See :class:`bench.row.Contestant`."""
        taken = round_trips(self.kind, self.trips, self.cores, self.pause)
        return _figures(taken[len(taken) // 2], taken[len(taken) * 99 // 100])


class TripLimit(Limit):
    """The round trips of the C loop: with semaphores, or spinning."""

    def __init__(self, label: str, how: str, cores: tuple[int, int], pause: float = 0.0) -> None:
        self.label = label
        self.how = how
        self.cores = cores
        self.pause = pause
        self.trips = LEAST

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        return super().missing() or _no_core(self.label, self.cores)

    def calibrate(self, seconds: float) -> None:
        """See :class:`bench.row.Contestant`."""
        self.trips = LEAST
        trip = self.turn()[MEDIAN.key] / 1e6 + self.pause
        self.trips = max(LEAST, min(MOST, int(seconds / trip)))

    def turn(self) -> dict[str, float]:
        """See :class:`bench.row.Contestant`."""
        pause = round(self.pause * 1e9)
        return _figures(*play("ping_pong", *self.cores, self.trips, pause, self.how))
