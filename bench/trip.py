"""Round trips: one process sends a body and the other sends it back."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Literal

from bench import bodies
from bench.limits import Limit, play
from bench.machine import now
from bench.row import SECONDS, Contestant, Figure, Role, Turn
from bench.scratch import unique_name
from bench.stage import PATIENCE, Cast, Side, Stage
from bench.way import Way

MEDIAN = Figure("p50", "µs", higher_is_better=False)

#: Trips before the clock starts.
WARM = 5
#: The fewest trips of a turn, and the most.
LEAST, MOST = 16, 20_000


def figures(taken: list[int], pause: float = 0.0) -> dict[str, float]:
    """The median of the durations of trips, given in ns, and how long all of them took."""
    median = sorted(taken)[len(taken) // 2] / 1000
    return {MEDIAN.key: median, SECONDS: sum(taken) / 1e9 + pause * len(taken)}


def _serve(stage: Stage, ping: Way, pong: Way, pause: float, hiccup: float) -> None:
    sent = bodies.make(64)
    get, put = pong.one_receiver(), ping.one_sender()
    stage.meet()
    for trips in stage.turns():
        taken = []
        for trip in range(WARM + trips):
            body = sent[trip % len(sent)]
            if pause:
                time.sleep(pause)
            if hiccup and trip == trips // 8:
                time.sleep(hiccup)
            begun = now()
            put(body)
            found = get()
            ended = now()
            if found != body:
                bodies.check([found], [body])
            taken.append(ended - begun)
        stage.tell(taken[WARM:])


def _play_back(stage: Stage, ping: Way, pong: Way) -> None:
    get, put = ping.one_receiver(), pong.one_sender()
    stage.meet()
    for trips in stage.turns():
        for _ in range(WARM + trips):
            put(get())


def _no_core(cores: tuple[int, int], where: str) -> str | None:
    apart = where.startswith("two cores")
    return "there is one core here" if apart and cores[0] == cores[1] else None


class Trip(Contestant):
    """The round trips of a way, 64 B.

    If ``pause`` is not 0, the sender sleeps that many seconds before each trip, so that the
    other side sleeps, too; with ``hiccup`` it does so once in a turn. A body that comes back
    changed ends a turn with :class:`bench.stage.Failed`.
    """

    least, most = LEAST, MOST

    def __init__(
        self,
        kind: type[Way],
        where: str,
        cores: tuple[int, int],
        pause: float = 0.0,
        hiccup: float = 0.0,
        patience: float = PATIENCE,
    ) -> None:
        self.kind = kind
        self.where = where
        self.cores = cores
        self.pause = pause
        self.hiccup = hiccup
        self.patience = patience
        self.label = kind.label
        self.note = kind.note
        self.role: Role = "shmq" if kind.label.startswith("shmq") else "peer"

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        return self.kind.missing() or _no_core(self.cores, self.where)

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        name = unique_name()
        ping, pong = self.kind(f"{name}-ping", 64), self.kind(f"{name}-pong", 64)
        try:
            ping.create()
            pong.create()
            sides = [
                Side(_serve, ping, pong, self.pause, self.hiccup, core=self.cores[0]),
                Side(_play_back, ping, pong, core=self.cores[1]),
            ]
            with Cast(sides, self.patience) as cast:
                yield lambda trips: figures(cast.turn(trips)[0], self.pause)
        finally:
            ping.remove()
            pong.remove()


class TripLimit(Limit):
    """The round trips of the C loop: with semaphores, or spinning."""

    least, most = LEAST, MOST

    def __init__(
        self,
        label: str,
        how: Literal["sleep", "spin"],
        where: str,
        cores: tuple[int, int],
        pause: float = 0.0,
    ) -> None:
        self.label = label
        self.how = how
        self.where = where
        self.cores = cores
        self.pause = pause

    def missing(self) -> str | None:
        """See :class:`bench.row.Contestant`."""
        return super().missing() or _no_core(self.cores, self.where)

    @contextlib.contextmanager
    def opened(self) -> Iterator[Turn]:
        """See :class:`bench.row.Contestant`."""
        pause = round(self.pause * 1e9)

        def turn(trips: int) -> dict[str, float]:
            median, _ = play("ping_pong", *self.cores, trips, pause, self.how)
            return {MEDIAN.key: median / 1e3, SECONDS: (median / 1e9 + self.pause) * trips}

        yield turn
